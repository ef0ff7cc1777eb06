"""What a run was asked to do, kept beside its outputs: a later one goes on with the same, or is told what differs."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from playhead.curate.inputs import Input
from playhead.curate.layout import Layout
from playhead.errors import PrepareError
from playhead.store import replacing

_VERSION = 1
_SHOWN = 5


class Request(Struct, frozen=True):
    """Everything that the outputs depend on."""

    stage: str
    parameters: dict[str, Any]
    loss_details: bool
    rows_per_shard: int
    repeat: int
    inputs: tuple[Input, ...]
    version: int = _VERSION


class Ledger(Struct, frozen=True):
    """A request, and once it is done the size of each output, if it is always the same."""

    request: Request
    outputs: dict[str, int | None] | None = None


def write_ledger(layout: Layout, ledger: Ledger) -> None:
    with replacing(layout.ledger) as file:
        file.write(msgspec.json.format(msgspec.json.encode(ledger), indent=1))


def read_ledger(layout: Layout, request: Request) -> Ledger | None:
    """The ledger of an earlier run of the same request; None where there was no run. Anything else is refused."""
    if not layout.ledger.exists():
        left = layout.own_files()
        if left:
            raise refusal(layout, [f"{left[0].name} is there, and no curate.json that says what it is"])
        return None
    try:
        found = msgspec.json.decode(layout.ledger.read_bytes(), type=Ledger)
    except msgspec.DecodeError as error:
        raise refusal(layout, [f"curate.json cannot be read: {error}"]) from error
    differences = differences_of(found.request, request)
    if differences:
        raise refusal(layout, differences)
    for name, size in (found.outputs or {}).items():
        path = layout.out / name
        if not path.exists() or size not in (None, path.stat().st_size):
            raise refusal(layout, [f"{name} is missing, or has been changed since it was written"])
    return found


def differences_of(before: Request, now: Request) -> list[str]:
    """In what two requests differ, in words."""
    if before.stage != now.stage:
        return [f"`curate {before.stage}` before, `curate {now.stage}` now"]
    pairs = [(name, before.parameters.get(name), value) for name, value in now.parameters.items()]
    pairs += [(name, getattr(before, name), getattr(now, name)) for name in ("version", "rows_per_shard", "repeat")]
    pairs.append(("loss details", before.loss_details, now.loss_details))
    found = [f"{name}: {was} before, {is_now} now" for name, was, is_now in pairs if was != is_now]
    return found + _input_differences(before.inputs, now.inputs)


def _input_differences(before: tuple[Input, ...], now: tuple[Input, ...]) -> list[str]:
    was, is_now = ({each.path: each.stamp for each in inputs} for inputs in (before, now))
    found = [f"{path}: not among the inputs any more" for path in was if path not in is_now]
    found += [f"{path}: a new input" for path in is_now if path not in was]
    found += [f"{path}: has changed since" for path in was if path in is_now and was[path] != is_now[path]]
    return found or (["the inputs: in another order"] if [*was] != [*is_now] else [])


def refusal(layout: Layout, differences: list[str]) -> PrepareError:
    """What a directory is answered with that cannot be gone on with, because of these differences."""
    more = f"; and {len(differences) - _SHOWN:,} more" if len(differences) > _SHOWN else ""
    return PrepareError(
        f"{layout.out}: holds the outputs of another run",
        found="; ".join(differences[:_SHOWN]) + more,
        expected="an empty directory, or a run of the same inputs and parameters to go on with",
        fix="choose another --out, or write it anew with --force",
    )
