"""JSON lines -> a Megatron dataset. The text is cut into parts that are tokenized in any order and joined in theirs.

Laws: neither workers nor interruptions change the result; a part that is finished is not done again.
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from msgspec import Struct

from playhead.errors import DataError, PlayheadError, RecipeError
from playhead.fingerprint import digest, digest_bytes
from playhead.megatron.idx import bin_path, idx_path, open_idx
from playhead.megatron.merging import Written, merge_prefixes
from playhead.megatron.text_parts import Part, Rules, rules_for, write_part
from playhead.store import fresh_directory, replacing, stamp

_PART_BYTES = 64 << 20

Done = Callable[[int, int], None]


class Tokenized(Struct, frozen=True):
    """What was written, how fast, and how many parts an earlier run had finished."""

    written: Written
    num_bytes: int
    seconds: float
    num_parts: int
    reused_parts: int


def tokenize_files(
    files: Sequence[str | Path],
    tokenizer: str | Path,
    out: str | Path,
    *,
    key: str = "text",
    eod: str | None = None,
    special_tokens: bool = False,
    workers: int = 1,
    part_bytes: int = _PART_BYTES,
    progress: Done | None = None,
) -> Tokenized:
    """Tokenize the texts under `key`; each line is a document. `eod` is a token put after each that is not empty."""
    started = time.perf_counter()
    if not files:
        raise RecipeError("nothing to tokenize", expected="at least one file of JSON lines")
    target = str(out)
    rules = rules_for(str(tokenizer), key, eod, special_tokens)
    parts = _parts([str(file) for file in files], part_bytes)
    folder = _folder(Path(f"{target}.parts"), rules, parts, part_bytes)
    todo = [(part, str(folder / f"{i:06d}")) for i, part in enumerate(parts)]
    waiting = [(part, prefix) for part, prefix in todo if not _finished(prefix)]
    _run(waiting, rules, workers, progress or (lambda _done, _total: None), len(parts) - len(waiting))
    written = merge_prefixes([prefix for _, prefix in todo], target)
    shutil.rmtree(folder)
    seconds = time.perf_counter() - started
    num_bytes = sum(part.end - part.start for part in parts)
    return Tokenized(written, num_bytes, seconds, len(parts), len(parts) - len(waiting))


def _parts(files: list[str], part_bytes: int) -> list[Part]:
    parts = []
    for file in files:
        size = stamp(file).size
        starts = range(0, max(size, 1), part_bytes)
        parts += [Part(file, start, min(start + part_bytes, size)) for start in starts]
    return parts


def _folder(folder: Path, rules: Rules, parts: list[Part], part_bytes: int) -> Path:
    """The parts so far; none where the texts, the tokenizer or an option changed."""
    stamps = [(part.file, part.start, stamp(part.file).size, stamp(part.file).mark) for part in parts]
    tokenizer = digest_bytes(Path(rules.tokenizer).read_bytes())
    about = digest([tokenizer, rules.key, rules.eod, rules.special_tokens, part_bytes, stamps])
    marker = folder / "about.txt"
    if not marker.is_file() or marker.read_text() != about:
        fresh_directory(folder)
        with replacing(marker) as file:
            file.write(about.encode())
    return folder


def _finished(prefix: str) -> bool:
    if not (Path(idx_path(prefix)).exists() and Path(bin_path(prefix)).exists()):
        return False
    try:
        open_idx(prefix)
    except DataError:
        return False
    return True


def _run(waiting: list[tuple[Part, str]], rules: Rules, workers: int, done: Done, before: int) -> None:
    total = before + len(waiting)
    done(before, total)
    if workers <= 1 or len(waiting) <= 1:
        for i, (part, prefix) in enumerate(waiting, 1):
            write_part(part, prefix, rules)
            done(before + i, total)
        return
    with ProcessPoolExecutor(min(workers, len(waiting)), mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(write_part, part, prefix, rules) for part, prefix in waiting]
        try:
            for i, future in enumerate(futures, 1):
                future.result()
                done(before + i, total)
        except PlayheadError:
            pool.shutdown(cancel_futures=True)
            raise
