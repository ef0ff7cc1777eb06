"""The parts of a configuration: where its data is described, and the keys of each mapping, taken once."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from numbers import Real
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.interpolation import Document, Path, dotted, parsed
from playhead.recipe.nemo.known_keys import DATA_KEYS, DESTINATIONS, IGNORED, REFUSED
from playhead.recipe.nemo.report import Notes, shown

TRAIN, VALIDATION, TEST = "train_ds", "validation_ds", "test_ds"
DATASET_KEYS = ("input_cfg", "manifest_filepath", "cuts_path", "shar_path")  # a dataset has one of them
_PARALLEL = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "tensor_parallel_size",
    "pipeline_parallel_size",
)
MISSING = "???"  # OmegaConf: the value has to be given when the job starts
TARGET = "_target_"
CODE = "a class named by `_target_` is code, which is not imported"


def find_train(document: Document, section: str | None) -> Path:
    """The path of the dataset to train on."""
    root = document.raw()
    if section is not None:
        path = parsed(section)
        if document.raw(path) is None:
            raise RecipeError(f"--section {section}: there is no such key", expected=_sections_text(root))
        return path
    if isinstance(root, list) or (
        isinstance(root, Mapping) and any(key in root for key in (*DATASET_KEYS, "multi_config"))
    ):
        return ()
    found = [path for path in _paths_of(root, TRAIN) if isinstance(document.raw(path), (Mapping, str))]
    if len(found) == 1:
        return found[0]
    if not found:
        raise RecipeError(
            "the configuration describes no data",
            expected="`train_ds` (in model, data or at the top), a dataset with `input_cfg`, or a list of datasets",
            fix="name the part that does: --section model.my_dataset",
        )
    raise RecipeError(
        "the configuration describes several datasets to train on",
        found=", ".join(dotted(path) for path in found),
        fix=f"choose one: --section {dotted(found[0])}",
    )


def find_evaluation(document: Document, train: Path) -> Iterator[tuple[str, Path]]:
    """The validation and test sets beside the dataset to train on."""
    if not train:
        return
    for name in (VALIDATION, TEST):
        path = (*train[:-1], name)
        if document.raw(path) is not None:
            yield name.removesuffix("_ds"), path


def num_lanes(document: Document) -> tuple[int, str] | None:
    """Micro-batches in an optimizer step, where the trainer says so: ranks times accumulation; and how it is found."""
    counts = {
        "devices": _setting(document, "trainer", "devices"),
        "num_nodes": _setting(document, "trainer", "num_nodes") or 1,
        "accumulate_grad_batches": _setting(document, "trainer", "accumulate_grad_batches") or 1,
    }
    if not all(isinstance(count, int) and not isinstance(count, bool) and count > 0 for count in counts.values()):
        return None
    lanes = 1
    for count in counts.values():
        lanes *= count
    text = " * ".join(f"{name} {count}" for name, count in counts.items())
    for place in (("model",), ("trainer", "strategy")):
        for name in _PARALLEL:
            size = _setting(document, *place, name)
            if size is not None and (not isinstance(size, int) or size < 1 or lanes % size):
                return None
            if size is not None and size > 1:
                lanes, text = lanes // size, f"{text} / {name} {size}"
    return lanes, text


def _setting(document: Document, *path: str) -> Any:
    """A setting of the trainer or the model; None also where it is computed by something unknown here."""
    try:
        return document.get(path)
    except RecipeError:
        return None


def _paths_of(node: Any, name: str, path: Path = ()) -> Iterator[Path]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == name:
                yield (*path, key)
            else:
                yield from _paths_of(value, name, (*path, key))


def _sections_text(root: Any) -> str:
    found = [dotted(path) for name in (TRAIN, VALIDATION, TEST) for path in _paths_of(root, name)]
    return f"for example {', '.join(found)}" if found else "a dotted path, such as model.train_ds"


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
