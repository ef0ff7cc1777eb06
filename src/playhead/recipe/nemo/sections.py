"""Where a training configuration describes its data: `train_ds`, `validation_ds`, `test_ds`, `trainer`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.interpolation import Document, Path, dotted, parsed

TRAIN, VALIDATION, TEST = "train_ds", "validation_ds", "test_ds"
_DATA_KEYS = ("input_cfg", "manifest_filepath", "cuts_path", "shar_path", "multi_config")
_PARALLEL = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "tensor_parallel_size",
    "pipeline_parallel_size",
)


def find_train(document: Document, section: str | None) -> Path:
    """The path of the dataset to train on."""
    root = document.raw()
    if section is not None:
        path = parsed(section)
        if document.raw(path) is None:
            raise RecipeError(f"--section {section}: there is no such key", expected=_sections_text(root))
        return path
    if isinstance(root, list) or (isinstance(root, Mapping) and any(key in root for key in _DATA_KEYS)):
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
