"""What the golden payloads hold. `python tests/golden/freeze_payloads.py` writes them anew.

They were written by commit 2585691, before arrays were read into their place in the batch and handed over in shared
memory: whatever is done for speed, batches are the same bit for bit. A change here means that jobs train on other
numbers than they would have.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from chat_data import messages_recipe, write_messages, write_tokenizer
from playhead import Loader, Recipe
from playhead.prepare import prepare

FILE = Path(__file__).with_name("payloads.json")

NUM_BATCHES = 16
SMALL, BIG = 50, 30_000  # numbers in an array: of a few hundred bytes, and larger than what is shared or not read yet
TOLERANT = {"on_error": "substitute", "max_bad": 1}


@dataclass(frozen=True)
class Case:
    """A stream to freeze: its recipe, over files in the working folder, and functions in place of the recipe's."""

    name: str
    recipe: dict[str, Any]
    map: Callable[..., Any] | None = None
    collate: Callable[..., Any] | None = None
    split: str | None = None


def fails_for_some(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["score"] % 5 == 2:
        raise ValueError("no good")
    return sample


def doubled_for_some(sample: dict[str, Any]) -> dict[str, Any]:
    again = 2 if sample["score"] % 7 == 3 else 1
    return {**sample, "tokens": sample["tokens"] * again, "labels": sample["labels"] * again}


def numbers_of_many_kinds(sample: dict[str, Any]) -> dict[str, Any]:
    """Numbers, arrays of other lengths than the sequence, and what stays a list."""
    size = len(sample["tokens"])
    return {
        "tokens": np.array(sample["tokens"], np.uint16),
        "labels": sample["labels"],
        "yes": size % 2 == 0,
        "half": size / 2,
        "pair": np.array([size, -size], np.int8),
        "grid": np.arange(6 * (size % 3 + 1), dtype=">i4").reshape(-1, 3, 2),
        "text": sample["id"],
        "nested": {"id": sample["id"]},
        "nothing": None,
        "empty": [],
    }


def joined(samples: list[dict[str, Any]]) -> dict[str, Any]:
    tokens = [np.array(sample["tokens"]) for sample in samples]
    return {"all": np.concatenate(tokens), "reversed": tokens[0][::-1], "ids": [sample["id"] for sample in samples]}


def length(row: int) -> int:
    return (row * row * 7919 + row * 104729) % 61 + 1


def write_rows(path: Path, first: int, count: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in range(first, first + count):
            n = length(row)
            tokens = [(row * 31 + k * 17) % 5000 for k in range(n)]
            labels = [-k for k in range(n)]
            about = {"id": f"row {row} é", "n": n, "score": row, "share": row / 7}
            file.write(json.dumps({**about, "tokens": tokens, "labels": labels}) + "\n")


def array_of(dtype: str, row: int, shape: tuple[int, ...], order: Any) -> Any:
    whole = (np.arange(int(np.prod(shape))).reshape(shape) * 37 + row * 11) % 251
    if dtype == "?":
        return np.array(whole % 3 == 0, order=order)
    if dtype == "<U4":
        return np.array(whole.astype(str), dtype, order=order)
    made = whole.astype(np.complex64) * (1 - 2j) if dtype == "<c8" else whole / 4 if "f" in dtype else whole
    return np.array(made, dtype, order=order)


def write_arrays(path: Path, dtype: str, base: int, inner: tuple[int, ...], order: str) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for row in range(9):
            size = 0 if row == 5 and base == SMALL else base + row % 4 * (base // 3)
            content = io.BytesIO()
            np.save(content, array_of(dtype, row, (size, *inner), order), allow_pickle=False)
            about = json.dumps({"n": size, "text": "x" * row}).encode()
            for name, data in ((f"{row:02}.npy", content.getvalue()), (f"{row:02}.json", about)):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


BATCHINGS: dict[str, dict[str, Any]] = {
    "fixed": {"type": "fixed", "size": 3},
    "budget": {"type": "budget", "budget": 130},
    "bucket": {"type": "bucket", "num": 3, "budget": 130},
    "pack": {"type": "pack", "max_length": 64},
    "pack, cut": {"type": "pack", "max_length": 30, "overlong": "truncate"},
    "pack, alone": {"type": "pack", "max_length": 30, "overlong": "alone"},
    "fixed, cut": {"type": "fixed", "size": 3, "max_length": 30, "overlong": "truncate"},
}
ROWS = {
    "as it is": {},
    "pad_to": {"pad_to": 64},
    "pad_batch": {"pad_batch": True},
    "pad_values": {"pad_values": {"labels": -100, "score": -1}},
    "dtypes": {"dtypes": {"tokens": "int16", "share": "float32"}},
    "fields": {"fields": ["labels", "tokens"]},
    "list": {"collate": "list"},
    "cut": {"on_length_mismatch": "truncate"},
}


def row_cases(folder: Path) -> Iterator[Case]:
    for name, first, count in (("a", 0, 50), ("b", 100, 21)):
        write_rows(folder / f"{name}.jsonl", first, count)
    sources = [{"name": name, "path": f"{name}.jsonl", "length": "n"} for name in ("a", "b")]
    common = {"sources": sources, "lanes": 2, "window_size": 48, "seed": 7, "weights_in": "length"}
    for batching, values in BATCHINGS.items():
        recipe = {**common, "batching": values}
        for options, fields in ROWS.items():
            if (options, values["type"]) not in (("pad_to", "pack"), ("pad_batch", "budget")):  # which are refused
                yield Case(f"rows, {batching}, {options}", {**recipe, **fields})
        yield Case(f"rows, {batching}, numbers of many kinds", recipe, map=numbers_of_many_kinds)
        yield Case(f"rows, {batching}, collate", recipe, collate=joined)
        yield Case(f"rows, {batching}, substitutes", {**recipe, **TOLERANT}, map=fails_for_some)
        longer = {"max_bad": 1, "on_length_mismatch": "substitute"}
        yield Case(f"rows, {batching}, substitutes by length", {**recipe, **longer}, map=doubled_for_some)
        longer = {"on_length_mismatch": "truncate"}
        yield Case(f"rows, {batching}, cut by length", {**recipe, **longer}, map=doubled_for_some)
    passes = {key: value for key, value in common.items() if key != "weights_in"}
    evaluation = {"dev": {"sources": sources[1:], "batching": BATCHINGS["fixed"], "lanes": 4}}
    recipe = {**passes, "batching": BATCHINGS["fixed"], "epochs": 1, "evaluation": evaluation}
    yield Case("rows, passes", recipe)
    yield Case("rows, evaluation", recipe, split="dev")


def array_batchings(base: int) -> dict[str, dict[str, Any]]:
    return {
        "fixed": {},
        "pad_to": {"pad_to": base * 3},
        "pad_batch": {"pad_batch": True},
        "pad_values": {"pad_batch": True, "pad_values": {"npy": 1}},
        "pack": {"batching": {"type": "pack", "max_length": base * 3}},
        "pack, cut": {"batching": {"type": "pack", "max_length": base, "overlong": "truncate"}},
        "pack, alone": {"batching": {"type": "pack", "max_length": base, "overlong": "alone"}},
        "budget": {"batching": {"type": "budget", "budget": base * 5}},
        "fixed, cut": {"batching": {"type": "fixed", "size": 3, "max_length": base + 1, "overlong": "truncate"}},
        "dtypes": {"dtypes": {"npy": "float64"}},
        "list": {"collate": "list"},
        "fields": {"fields": ["npy"]},
    }


def array_cases(folder: Path) -> Iterator[Case]:
    kinds = [(dtype, SMALL, inner, "C") for dtype in ("<f4", ">f4", "<i2", "|u1") for inner in ((), (3, 2))]
    kinds += [(dtype, SMALL, (), "C") for dtype in ("?", "<f2", "<f8", ">i8", "<u8", "<c8", "<U4")]
    kinds += [(dtype, SMALL, (3, 2), "F") for dtype in ("<f4", ">i4")]
    kinds += [(dtype, BIG, inner, order) for dtype, inner, order in (("<f4", (), "C"), ("<i2", (2,), "C"))]
    kinds += [(dtype, BIG, (2,), "F") for dtype in (">f4",)]
    for dtype, base, inner, order in kinds:
        name = f"arrays of {dtype}, {base} x {inner}, {order}"
        path = folder / f"{name}.tar".replace(" ", "-").replace("?", "b").replace("|", "").replace(">", "g")
        write_arrays(path, dtype, base, inner, order)
        source = {"name": "s", "path": str(path), "length": {"field": "json.n"}}
        recipe = {"sources": [source], "batching": {"type": "fixed", "size": 4}, "sequence": "npy", "epochs": 1}
        recipe |= {"lanes": 2, **TOLERANT}
        for options, fields in array_batchings(base).items():
            if options in ("pad_values", "dtypes") and dtype in ("<c8", "<U4"):
                continue
            yield Case(f"{name}, {options}", {**recipe, **fields})


def conversation_cases(folder: Path) -> Iterator[Case]:
    write_messages(folder / "talks", 40)
    write_tokenizer(folder / "talks" / "tokenizer.json", trained=False)
    for name, options in {
        "pack": {"batching": {"type": "pack", "max_length": 200}},
        "fixed": {"batching": {"type": "fixed", "size": 3}},
        "stacked": {"image": {"size": [16, 8], "mode": "L"}, "audio": {"dtype": "int16"}},
    }.items():
        recipe = messages_recipe(folder / "talks", **options)
        source = {**recipe["sources"][0], "path": "talks/rows.json", "options": {"data_folder": "talks/media"}}
        files = {"tokenizer": "talks/tokenizer.json", "file": "talks/chat.jinja"}
        values = {**recipe, "sources": [source], "template": {**recipe["template"], **files}}
        yield Case(f"conversations, {name}", values)


def cases(folder: Path) -> dict[str, Case]:
    """All of them by name, their files written."""
    return {case.name: case for make in (row_cases, array_cases, conversation_cases) for case in make(folder)}


def exact(value: Any) -> Any:
    """What must be equal about a value: bytes, dtype and shape of arrays."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, hashlib.sha256(value.tobytes()).hexdigest()
    if isinstance(value, dict):
        return {name: exact(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [exact(item) for item in value]
    return repr(value.item() if isinstance(value, np.generic) else value)


def digest(case: Case, folder: Path, **options: Any) -> str:
    """The digest of what a case delivers, and how many batches that is."""
    recipe = Recipe.parse({**case.recipe, "cache_dir": str(folder / "cache")}, folder)
    prepare(recipe, workers=1)
    shutil.rmtree(folder / "cache" / "quarantine", ignore_errors=True)  # of a case with the same plan
    functions = {"map": case.map, "collate": case.collate, "split": case.split}
    found, count = hashlib.sha256(), 0
    with Loader(recipe, rank=0, world_size=1, **functions, **options) as loader:
        for batch in islice(loader, NUM_BATCHES):
            place = (batch.step, batch.lane, batch.idle, batch.num_samples, batch.rows.tolist())
            found.update(repr((place, [(name, exact(batch[name])) for name in batch])).encode())
            count += 1
    return f"{found.hexdigest()[:16]} of {count}"


def payloads(folder: Path) -> dict[str, str]:
    return {name: digest(case, folder) for name, case in cases(folder).items()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        FILE.write_text(json.dumps(payloads(Path(name)), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
