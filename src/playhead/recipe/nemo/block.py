"""The keys of one mapping of a configuration: each is taken once, and those left over are reported."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from numbers import Real
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.known_keys import DATA_KEYS, DESTINATIONS, IGNORED, REFUSED
from playhead.recipe.nemo.notes import Notes, shown

MISSING = "???"  # OmegaConf: the value has to be given when the job starts
TARGET = "_target_"
CODE = "a class named by `_target_` is code, which is not imported"


class Block:
    """A mapping at its place; `outer` holds the keys that NeMo passes down to it, which its own replace."""

    def __init__(self, values: Any, place: str, notes: Notes, outer: Mapping[str, Any] | None = None) -> None:
        if not isinstance(values, Mapping):
            raise RecipeError(f"{place}: is not a mapping", found=shown(values), expected="keys and values")
        self.values = values
        self.place = place
        self.notes = notes
        self.outer = outer or {}
        self._taken: set[str] = set()

    def at(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def take(self, name: str, default: Any = None) -> Any:
        """The value of a key; a key that is null, as one that is not there, has the default."""
        self._taken.add(name)
        value = self.values.get(name)
        if value == MISSING:
            raise RecipeError(
                f"{self.at(name)}: has no value yet",
                found=MISSING,
                expected="the value that the job is started with",
                fix=f"write it in the configuration, or give it: --set {self.at(name)}=...",
            )
        return default if value is None else value

    def inherit(self, name: str, default: Any = None) -> Any:
        """The value of a key here or, if there is none, in what is around it."""
        own = self.take(name)
        if own is not None:
            return own
        outer = self.outer.get(name)
        return default if outer is None else outer

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.take(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def number(self, name: str, default: float | None = None) -> float | None:
        value = self.take(name, default)
        return None if value is None else self.as_number(name, value)

    def as_number(self, name: str, value: Any) -> float:
        if not isinstance(value, Real) or isinstance(value, bool):
            raise self._wrong(name, value, "a number")
        return value  # type: ignore[return-value]

    def text(self, name: str) -> str | None:
        return self._as_text(name, self.take(name))

    def inherit_text(self, name: str, default: str) -> str:
        return self._as_text(name, self.inherit(name)) or default

    def _as_text(self, name: str, value: Any) -> str | None:
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, value, "a text")
        return value

    def limits(self, low: str, high: str) -> list[float | None] | None:
        """A range; None if it is open at both ends, as NeMo's defaults -1 and inf are."""
        least, most = self.number(low), self._largest(high)
        least = None if least is None or least <= 0 else least
        most = None if most is None or most == float("inf") else most
        if most is not None and most <= 0:
            raise self._wrong(high, most, "above 0")
        return None if least is None and most is None else [least, most]

    def _largest(self, name: str) -> float | None:
        value = self.take(name)
        if not isinstance(value, list):
            return self.number(name)
        if not value:
            raise self._wrong(name, value, "a number or a list of numbers")
        largest = max(self.as_number(name, each) for each in value)
        why = "the limit is one for all buckets: the largest of the list"
        self.notes.changed(self.at(name), value, f"{largest:g}", why)
        return largest

    def finish(self, told: Container[str] = ()) -> None:
        """Report every key that nobody has taken, and where those are that were; notes tell about some already."""
        for name, value in self.values.items():
            place = self.at(str(name))
            if name in self._taken or value is None:
                if name in DESTINATIONS and value is not None and name not in told and not self.notes.names(place):
                    self.notes.mapped(place, value, DESTINATIONS[name])
            elif (target := next(_targets({name: value}, self.place), None)) is not None:
                self.notes.refused(*target, CODE)
            elif name in REFUSED and value not in REFUSED[name].unless:
                self.notes.refused(place, value, REFUSED[name].why)
            elif name in REFUSED:
                self.notes.ignored(place, value, "it is NeMo's default, and has no effect")
            elif name in IGNORED:
                self.notes.ignored(place, value, IGNORED[name])
            elif name in DATA_KEYS:
                self._note_unread_data(place, value)
            else:
                self.notes.ignored(place, value, "NeMo's loader does not read this key")
                self.notes.check(
                    f"`{place}` is not a key of NeMo's loader, and was left out: check that nothing depends on it"
                )

    def _note_unread_data(self, place: str, value: Any) -> None:
        if "input_cfg" in self._taken and self.has("input_cfg"):
            why = "NeMo reads `input_cfg` alone where it is given"
        else:
            why = f"NeMo does not read it for `type: {self.values.get('type')}`"
        self.notes.ignored(place, value, why)
        if value != MISSING:
            self.notes.check(f"`{place}` names data that was left out: {why}")

    def _wrong(self, name: str, value: Any, expected: str) -> RecipeError:
        from_environment = isinstance(value, str) and "${" in value
        return RecipeError(
            f"{self.at(name)}: is not {expected}",
            found=shown(value),
            fix=f"write the value itself, or give it: --set {self.at(name)}=..." if from_environment else None,
        )


def _targets(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """The places and the values of all `_target_` keys inside a value."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            inner = f"{place}.{key}" if place else str(key)
            if key == TARGET:
                yield inner, item
            yield from _targets(item, inner)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _targets(item, f"{place}[{i}]")
