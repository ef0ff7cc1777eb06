"""What became of every setting: mapped, changed, ignored or refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from playhead.errors import RecipeError

Kind = Literal["mapped", "changed", "ignored", "refused"]

_SHOWN = 100


@dataclass(frozen=True)
class Note:
    """A setting: its place in the configuration, what it was, what it is in the recipe, and why.

    `at` is the key of the recipe, or the name of the source or group, that a comment on it belongs to.
    """

    kind: Kind
    place: str
    was: str
    now: str
    why: str
    at: str | None = None


@dataclass
class Notes:
    """Collects notes, and what to look at before training."""

    found: list[Note] = field(default_factory=list)
    checklist: list[str] = field(default_factory=list)

    def mapped(self, place: str, was: Any, now: str, why: str = "", at: str | None = None) -> None:
        self.found.append(Note("mapped", place, shown(was), now, why, at))

    def changed(self, place: str, was: Any, now: str, why: str, at: str | None = None) -> None:
        self.found.append(Note("changed", place, shown(was), now, why, at))

    def ignored(self, place: str, was: Any, why: str) -> None:
        self.found.append(Note("ignored", place, shown(was), "", why))

    def refused(self, place: str, was: Any, why: str) -> None:
        """Noted, so that a user sees all refusals at once; `stop_if_refused` raises them."""
        self.found.append(Note("refused", place, shown(was), "", why))

    def check(self, text: str) -> None:
        if text not in self.checklist:
            self.checklist.append(text)

    def names(self, place: str) -> bool:
        """Whether some note is about a place."""
        return any(note.place == place for note in self.found)

    def of(self, kind: Kind) -> list[Note]:
        return [note for note in self.found if note.kind == kind]

    def stop_if_refused(self) -> None:
        refused = self.of("refused")
        if not refused:
            return
        lines = [f"{note.place} = {note.was}: {note.why}" for note in refused]
        if len(lines) == 1:
            raise RecipeError(
                f"{refused[0].place}: cannot be imported",
                found=refused[0].was,
                expected=refused[0].why,
                fix="change or remove it in the configuration",
            )
        raise RecipeError(
            f"{len(lines)} settings cannot be imported",
            found="\n            ".join(lines),
            fix="change or remove them in the configuration",
        )


def shown(value: Any) -> str:
    """A value as it is written in YAML, on one line."""
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    elif isinstance(value, (list, tuple)):
        text = f"[{', '.join(shown(item) for item in value)}]"
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = "null" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."
