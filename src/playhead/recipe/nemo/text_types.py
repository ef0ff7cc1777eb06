"""Types of text: lines, fields of JSON lines, pairs of lines."""

from __future__ import annotations

from playhead.recipe.nemo.entries import Dataset, Entry
from playhead.recipe.nemo.entry_reader import EntryReader, one_or_list


def read_text(reader: EntryReader) -> Entry:
    return with_languages(reader, reader.dataset("text", "text", reader.path("paths")), "language")


def read_text_jsonl(reader: EntryReader) -> Entry:
    field = reader.block.inherit_text("text_field", "text")
    options = {} if field == "text" else {"field": field}
    return with_languages(
        reader, reader.dataset("text", "text_jsonl", reader.path("paths"), options=options), "language"
    )


def read_text_pair(reader: EntryReader) -> Entry:
    second = one_or_list(reader.path("target_paths", "target_path"))
    found = reader.dataset("pair", "text_pair", reader.path("source_paths", "source_path"), options={"second": second})
    return with_languages(reader, found, "source_language", "target_language")


def with_languages(reader: EntryReader, dataset: Dataset, *names: str) -> Dataset:
    dataset.tags |= {name: reader.block.take(name) for name in names if reader.block.has(name)}
    return dataset
