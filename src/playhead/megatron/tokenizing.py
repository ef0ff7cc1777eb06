"""JSON lines -> a Megatron dataset. The text is split into parts that are tokenized in any order and joined in order.

Laws: neither workers nor interruptions change the result; a part that is finished is not done again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from playhead.errors import DataError, PlayheadError, RecipeError
from playhead.fingerprint import digest, digest_bytes
from playhead.formats.megatron_idx import best_dtype, bin_path, open_idx, write_idx
from playhead.formats.tokens import load_tokenizer
from playhead.jobs import Local
from playhead.megatron.merging import WrittenDataset, merge_prefixes
from playhead.store import File, Files, fresh_directory, open_file, replacing

_PART_BYTES = 64 << 20
_READ_BYTES = 1 << 20
_BATCH = 256


class Tokenized(msgspec.Struct, frozen=True):
    """The dataset written, the time it took, and the number of parts finished by an earlier run."""

    written: WrittenDataset
    num_bytes: int
    seconds: float
    num_parts: int
    reused_parts: int


@dataclass(frozen=True)
class TokenizeRules:
    """How text becomes tokens; `eod` is the token's id. `vocab_size` decides the type of the tokens."""

    tokenizer: str
    key: str
    eod: int | None
    special_tokens: bool
    vocab_size: int


@dataclass(frozen=True)
class TextPart:
    """The lines of a file that begin in [start, end), and where they go: a job."""

    file: File
    start: int
    end: int
    prefix: str
    rules: TokenizeRules

    @property
    def name(self) -> str:
        return f"{self.file.path}, from byte {self.start:,}"

    def run(self) -> None:
        write_part(self)


def tokenize_files(
    files: Files,
    paths: Sequence[str | Path],
    tokenizer: str | Path,
    out: str | Path,
    *,
    key: str = "text",
    eod: str | None = None,
    special_tokens: bool = False,
    workers: int = 1,
    part_bytes: int = _PART_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> Tokenized:
    """Tokenize the texts under `key`; each line is a document. `eod` is a token put after each that is not empty.

    One worker is the default because the tokenizer is multithreaded.
    """
    started = time.perf_counter()
    if not paths:
        raise RecipeError("nothing to tokenize", expected="at least one file of JSON lines")
    rules = _rules_for(str(tokenizer), key, eod, special_tokens)
    texts = [open_file(files, str(path)) for path in paths]
    folder = _folder(Path(f"{out}.parts"), rules, texts, part_bytes)
    parts = list(_parts(texts, part_bytes, folder, rules))
    waiting = [part for part in parts if not _finished(files, part.prefix)]
    _run(waiting, workers, progress or (lambda _done, _total: None), len(parts))
    written = merge_prefixes(files, [part.prefix for part in parts], str(out))
    shutil.rmtree(folder)
    seconds = time.perf_counter() - started
    return Tokenized(written, sum(text.size for text in texts), seconds, len(parts), len(parts) - len(waiting))


def _parts(texts: list[File], part_bytes: int, folder: Path, rules: TokenizeRules) -> Iterator[TextPart]:
    number = 0
    for text in texts:
        for start in range(0, max(text.size, 1), part_bytes):
            yield TextPart(text, start, min(start + part_bytes, text.size), str(folder / f"{number:06d}"), rules)
            number += 1


def _folder(folder: Path, rules: TokenizeRules, texts: list[File], part_bytes: int) -> Path:
    """The finished parts; none if the texts, the tokenizer or an option changed."""
    stamps = [(text.path, text.stamp.size, text.stamp.mark) for text in texts]
    tokenizer = digest_bytes(Path(rules.tokenizer).read_bytes())
    about = digest([tokenizer, rules.key, rules.eod, rules.special_tokens, part_bytes, stamps])
    marker = folder / "about.txt"
    if not marker.is_file() or marker.read_text() != about:
        fresh_directory(folder)
        with replacing(marker) as file:
            file.write(about.encode())
    return folder


def _finished(files: Files, prefix: str) -> bool:
    try:
        open_idx(files, prefix)
    except DataError:
        return False
    return True


def _run(waiting: list[TextPart], workers: int, progress: Callable[[int, int], None], total: int) -> None:
    """Run the parts; after an error no other is started, and running ones are finished."""
    num_done, errors = total - len(waiting), list[PlayheadError]()
    progress(num_done, total)

    def done(_: TextPart, outcome: Any) -> None:
        nonlocal num_done
        if isinstance(outcome, PlayheadError):
            errors.append(outcome)
        else:
            num_done += 1
            progress(num_done, total)

    jobs = (part for part in waiting if not errors)
    Local(min(workers, len(waiting))).run(jobs, done)
    if errors:
        raise errors[0]


def _rules_for(tokenizer: str, key: str, eod: str | None, special_tokens: bool) -> TokenizeRules:
    model = load_tokenizer(tokenizer)
    token = None if eod is None else model.token_to_id(eod)
    if eod is not None and token is None:
        raise RecipeError(f'--eod "{eod}": is not a token of {tokenizer}', expected="a token of the vocabulary")
    return TokenizeRules(tokenizer, key, token, special_tokens, model.get_vocab_size())


def write_part(part: TextPart) -> None:
    """Law: as Megatron's preprocessing, each line is a document of one sequence; one without tokens has no sequence."""
    rules = part.rules
    model, dtype = load_tokenizer(rules.tokenizer), best_dtype(rules.vocab_size)
    lengths: list[int] = []
    marks = [0]
    texts = (_text(line, rules.key, part.file.path, offset) for offset, line in _lines(part))
    with replacing(bin_path(part.prefix)) as file:
        while batch := list(islice(texts, _BATCH)):
            for encoding in model.encode_batch(batch, add_special_tokens=rules.special_tokens):
                ids = encoding.ids
                if ids:
                    tokens = ids if rules.eod is None else [*ids, rules.eod]
                    file.write(np.array(tokens, dtype).tobytes())
                    lengths.append(len(tokens))
                marks.append(len(lengths))
    write_idx(part.prefix, dtype, np.array(lengths, np.int32), np.array(marks, np.int64))


def _lines(part: TextPart) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in the part with their first bytes, blank ones left out; the last may end beyond it."""
    offset, rest = max(part.start - 1, 0), b""  # from the byte before, which ends or continues another line
    skip = part.start > 0
    while offset < part.end:
        piece = part.file.read(offset + len(rest), max(_READ_BYTES, len(rest)))
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines if piece else [rest]:
            if offset >= part.end:
                return
            if line.strip() and not skip:
                yield offset, line
            skip = False
            offset += len(line) + 1


def _text(line: bytes, key: str, file: str, offset: int) -> str:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"{file}, byte {offset:,}: is not JSON", found=str(error), fix="fix or remove the line"
        ) from error
    text = found.get(key) if isinstance(found, dict) else None
    if not isinstance(text, str):
        raise DataError(
            f'{file}, byte {offset:,}: has no text under "{key}"',
            found=", ".join(map(str, found)) if isinstance(found, dict) else type(found).__name__,
            fix="name the field that holds the text with --key",
        )
    return text
