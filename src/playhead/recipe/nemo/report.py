"""What became of every setting, and the migration report: notes, a checklist, and the commands to run next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from playhead.errors import RecipeError
from playhead.recipe.values import Recipe

Kind = Literal["mapped", "changed", "ignored", "refused"]

_SHOWN = 100
_TITLES: dict[Kind, str] = {"changed": "Changed", "ignored": "Ignored", "mapped": "Mapped"}
_MEANINGS: dict[Kind, str] = {
    "changed": "These settings mean something else now. Read each of them.",
    "ignored": "These settings have no counterpart in a recipe; the last column says why.",
    "mapped": "These settings mean the same in the recipe.",
}


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


@dataclass(frozen=True)
class Imported:
    """The values of a recipe as a user could write them, the recipe they make, and the notes."""

    config: str
    values: dict[str, Any]
    recipe: Recipe
    notes: Notes


def num_sources(values: dict[str, Any]) -> int:
    """The number of sources to train on, in the values of a recipe."""

    def count(entry: dict[str, Any]) -> int:
        return sum(map(count, entry["sources"])) if "sources" in entry else 1

    return sum(map(count, values["sources"]))


def commands(recipe: str) -> list[tuple[str, str]]:
    """The commands to run before a job is started, and what each is for."""
    return [
        (f"playhead prepare {recipe}", "build the indexes; every broken row is named"),
        (f"playhead check {recipe}", "find what would stop or spoil the run"),
        (f"playhead plan {recipe}", "see the shares, the batches and the padding"),
        (f"playhead verify {recipe}", "prove the promises on this data, with real kills and resumes"),
        (f"playhead run {recipe} --steps 20", "read some steps"),
    ]


def report_json(imported: Imported, recipe: str, report: str) -> dict[str, Any]:
    """The report as plain values."""
    rows: dict[str, Any] = {kind: [_row(note) for note in imported.notes.of(kind)] for kind in _TITLES}
    return {
        "config": imported.config,
        "recipe": recipe,
        "report": report,
        "num_sources": num_sources(imported.values),
        **rows,
        "checklist": imported.notes.checklist,
        "commands": [command for command, _ in commands(recipe)],
    }


def report_markdown(imported: Imported, recipe: str) -> str:
    """The report as a page."""
    lines = [
        f"# {imported.config} as {recipe}",
        "",
        f"Sources: {num_sources(imported.values)}. Settings: "
        + ", ".join(f"{len(imported.notes.of(kind))} {kind}" for kind in ("mapped", "changed", "ignored"))
        + ".",
        "",
        "## Before the first run",
        "",
        *(f"- [ ] {item}" for item in imported.notes.checklist),
        "",
        "```text",
        *_aligned(recipe),
        "```",
    ]
    for kind, title in _TITLES.items():
        notes = imported.notes.of(kind)
        if notes:
            lines += ["", f"## {title}", "", _MEANINGS[kind], ""]
            lines += ["| place | was | now | why |", "|---|---|---|---|"]
            lines += [f"| {' | '.join(map(_cell, (note.place, note.was, note.now, note.why)))} |" for note in notes]
    return "\n".join(lines) + "\n"


def _aligned(recipe: str) -> list[str]:
    found = commands(recipe)
    width = max(len(command) for command, _ in found)
    return [f"{command:<{width}}  # {purpose}" for command, purpose in found]


def _row(note: Note) -> dict[str, str]:
    return {"place": note.place, "was": note.was, "now": note.now, "why": note.why}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
