"""A simulated job on the terminal."""

from __future__ import annotations

from rich.filesize import decimal

from playhead.cli.screen import console, count, grid, labelled, percent
from playhead.inspect.simulation import SimulationResult


def print_simulation(found: SimulationResult, ranks_per_node: int) -> None:
    screen = console()
    lanes = f"{found.lanes:,} lanes"
    if found.lanes != found.lanes_of_recipe:
        lanes += f" ({found.lanes_of_recipe:,} in the recipe)"
    screen.print(f"{found.num_ranks:,} ranks, {found.num_rows:,} rows, {lanes}")
    table = grid(
        "<sub-stream", ">window", ">steps in it", ">samples to a step", ">planning a step", ">memory", ">slowest lane"
    )
    for stream in found.streams:
        table.add_row(
            stream.name,
            f"{stream.window_size:,} draws",
            f"{stream.steps_per_window:,.1f}",
            f"{stream.samples_per_step:,.1f}",
            f"{1000 * stream.planning_seconds:,.2f} ms of CPU",
            decimal(stream.planning_bytes),
            f"+{percent(stream.uneven)}",
        )
    screen.print(table)
    memory = f"{decimal(found.node_planning_bytes)} to plan on {count(ranks_per_node, 'rank')}"
    labelled(screen, "memory of a node", f"{memory}; indexes of {decimal(found.index_bytes)}, mapped and shared")
    labelled(screen, "state", f"{found.state_bytes:,} bytes")
    opening = "unknown: the recipe is not prepared" if found.requests is None else f"{found.requests:,}, of any rank"
    labelled(screen, "requests to open", opening)
    if found.invented:
        labelled(screen, "not prepared", f"{', '.join(found.invented)}: their lengths are invented")
    for stream in found.streams:
        labelled(screen, "windows planned", f"{stream.name}: {', '.join(f'{number:,}' for number in stream.windows)}")
    broken = [f"{stream.name}, {law}" for stream in found.streams for law in stream.broken]
    kept = "kept: every draw on one lane, every lane on one rank, no row twice in an epoch"
    labelled(screen, "laws", f"broken: {'; '.join(broken)}" if broken else kept)
