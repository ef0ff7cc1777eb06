"""What is asked, of which runs, and how large they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from playhead.deal import worlds_that_fit
from playhead.errors import EndOfStreamError
from playhead.plan.plan import Plan
from playhead.plan.segments import segment_at, window_draws
from playhead.verify.job import LoaderOptions, SavePlace
from playhead.verify.launch import LaunchOptions
from playhead.verify.verdict import QUESTIONS

MOST_STEPS = 48
FEWEST_STEPS = 8
_BATCHES = 512  # of all lanes together, in a run of the default size
WHOLE_PASS = 200_000  # samples; of more a part is taken, unless they are asked for


@dataclass(frozen=True)
class VerifySettings:
    """What a user asks for. `varied` are the options of a loader that may be changed: one of the user's may not take
    them all.
    """

    recipe_path: Path
    records: Path
    world_size: int
    options: LoaderOptions
    steps: int
    save_at: tuple[int, ...] = ()
    questions: tuple[str, ...] = tuple(QUESTIONS)
    payload: bool = True
    sample: int | None = None
    kills: int = 3
    loader: str | None = None
    varied: tuple[str, ...] = ("workers", "worker_kind", "start_method", "arrays")
    id_field: str = "id"
    launch: LaunchOptions = field(default_factory=LaunchOptions)
    seed: int = 0


def default_world(lanes: int) -> int:
    """Two ranks where the lanes can be shared by two, else the fewest that can share them, else one."""
    return next((world for world in worlds_that_fit(lanes) if world > 1), 1)


def default_steps(lanes: int) -> int:
    return min(MOST_STEPS, max(FEWEST_STEPS, _BATCHES // lanes))


def num_steps(plan: Plan, most: int) -> int:
    """The steps of a run: as many as asked for, or all there are."""
    try:
        return plan.seek(most).step
    except EndOfStreamError:
        pass
    count, cursor = 0, plan.start()
    while (found := plan.advance(cursor)) is not None and plan.round_of(cursor) == 0:
        count, cursor = count + 1, found
    return min(count, most)


def save_places(settings: VerifySettings, steps: int, lanes: int) -> tuple[SavePlace, ...]:
    """Where the first run saves: at the ends of some steps, and inside one where a rank has several lanes of it."""
    per_rank = lanes // settings.world_size
    ends = settings.save_at or (steps // 4, steps // 2)
    places = [SavePlace(f"after-{end:06}", end - 1) for end in sorted({*ends}) if 0 < end < steps]
    if per_rank > 1:
        places.append(SavePlace("inside", max(0, steps // 3), per_rank // 2))
    return tuple(places)


@dataclass(frozen=True)
class PassPart:
    """How much of a pass is delivered: all of it, or whole windows.

    Of those, for each sub-stream, their number, their draws, and the steps of it that they fill.
    """

    num_rows: int
    steps: int
    is_whole: bool = True
    windows: tuple[int, ...] = ()
    draws: tuple[int, ...] = ()
    stream_steps: tuple[int, ...] = ()


def part_of_pass(plan: Plan, sample: int | None) -> PassPart:
    """The whole pass, or whole windows of it that hold at least `sample` samples."""
    num_rows = sum(order.num_rows for stream in plan.streams for order in stream.orders)
    wanted = WHOLE_PASS if sample is None else sample
    cursor = plan.start()
    done = [0] * len(plan.streams)
    stream_steps = [0] * len(plan.streams)
    whole = [0] * len(plan.streams)
    while wanted >= num_rows or sum(_draws(plan, done)) < wanted:
        parts = plan.parts_at(cursor)
        found = plan.advance(cursor)
        assert found is not None  # the pass has an end, which is found below
        for part in parts:
            if part.place is not None:
                stream_steps[part.stream] += 1
        cursor = found
        if plan.round_of(cursor):
            return PassPart(num_rows, cursor.step)
        for i, place in enumerate(cursor.places):
            if place.window > done[i]:
                done[i], whole[i] = place.window, stream_steps[i]
    return PassPart(num_rows, cursor.step, False, tuple(done), tuple(_draws(plan, done)), tuple(whole))


def _draws(plan: Plan, windows: list[int]) -> list[int]:
    """The draws of the first windows of each sub-stream."""
    found = []
    for stream, count in zip(plan.streams, windows, strict=True):
        last = count - 1
        found.append(0 if not count else window_draws(segment_at(stream, last), last)[1])
    return found
