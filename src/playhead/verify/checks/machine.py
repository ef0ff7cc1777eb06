"""The machine: the cache directory, limits of the system, and packages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from rich.filesize import decimal

from playhead.errors import PlayheadError
from playhead.recipe.by_format import holds_conversations
from playhead.recipe.tree import template_of, tokenize_of
from playhead.store import compression_of, is_url
from playhead.store.local import MOST_OPEN
from playhead.verify.checks.context import Context
from playhead.verify.checks.finding import Problem
from playhead.verify.checks.machine_limits import existing
from playhead.verify.checks.registry import check

_LEDGER_BYTES = 64 << 20
_INDEX_SHARE = 0.05  # of the data, at the most: rows of a hundred bytes
_SELECTION_ARRAYS = 5
_OPTIONAL = {
    "pyarrow": "arrow",
    "miniaudio": "audio",
    "soundfile": "audio",
    "soxr": "audio",
    "rapidgzip": "gzip",
    "Pillow": "image",
    "tokenizers": "text",
    "jinja2": "chat",
    "torch": "torch",
    "pyzstd": "zstd",
    "ray": "ray",
}
_MODULES = {"Pillow": "PIL"}
_REQUIRED = ("numpy", "numba", "msgspec", "obstore")
_AT_LEAST = re.compile(r"([\w-]+)(?:\[[^\]]*\])?>=([\d.]+)")


@check("PH060", "error", "the cache directory cannot be written", "recipe")
def unwritable_cache(context: Context) -> Iterator[Problem]:
    directory = Path(context.recipe.cache_dir)
    place = existing(directory)
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return
    needed = any(source.table is None for source in context.sources)
    yield Problem(
        "cache_dir",
        "the cache directory cannot be written",
        found=f"{place} is {'read-only for this user' if place.is_dir() else 'not a directory'}",
        expected="a directory in which indexes can be made"
        if needed
        else "one in which the ledger and the list of bad samples can be written; indexes are there already",
        fix="name another one with `cache_dir:`, or change its permissions",
        severity="error" if needed else "warning",
    )


@check("PH061", "warning", "the disk of the cache directory has little room", "recipe")
def little_room(context: Context) -> Iterator[Problem]:
    free = context.limits.free_bytes
    needed = _LEDGER_BYTES + round(_INDEX_SHARE * _unindexed_bytes(context))
    if free is not None and free < needed:
        yield Problem(
            "cache_dir",
            "the disk of the cache directory has little room",
            found=f"{decimal(free)} free under {context.recipe.cache_dir}",
            expected=f"about {decimal(needed)}",
            fix="free some, or name a directory on another disk with `cache_dir:`",
        )


def _unindexed_bytes(context: Context) -> int:
    """The bytes of the local files that are still to be indexed."""
    total = 0
    for source in context.sources:
        shards = context.shards[source.leaf.path]
        if source.table is None and not isinstance(shards, PlayheadError):
            paths = [Path(path) for shard in shards for _, path in shard.files if not is_url(path)]
            total += sum(path.stat().st_size for path in paths if path.is_file())
    return total


@check("PH062", "warning", "the limit on open files is low for the number of shards", "recipe", "tables")
def few_open_files(context: Context) -> Iterator[Problem]:
    limit = context.limits.open_files
    files = {path for source in context.prepared for path in source.table.index.stamps if not is_url(path)}
    if limit is not None and limit < 4 * MOST_OPEN and len(files) > limit // 4:
        yield Problem(
            "",
            "the limit on open files is low for the number of shards",
            found=f"{limit:,} open files a process, of which a quarter is for shards; there are {len(files):,} files",
            expected=f"{4 * MOST_OPEN:,}, so that {MOST_OPEN} files stay open",
            fix=f"`ulimit -n {4 * MOST_OPEN}` before the job is started, or fewer and larger shards",
        )


@check("PH063", "warning", "the limit on memory maps is low for the number of sources", "recipe", "tables")
def few_memory_maps(context: Context) -> Iterator[Problem]:
    limit = context.limits.memory_maps
    arrays = sum(len(source.table.index.meta.digests) + _SELECTION_ARRAYS for source in context.prepared)
    if limit is not None and 2 * arrays > limit:
        yield Problem(
            "",
            "the limit on memory maps is low for the number of sources",
            found=f"up to {arrays:,} arrays of indexes are mapped; a process may have {limit:,} maps, and libraries "
            "need some",
            expected=f"{2 * arrays:,} maps or more",
            fix=f"`sysctl vm.max_map_count={4 * arrays}`, or fewer sources",
        )


@check("PH064", "error", "a package that the recipe needs is missing, or too old", "recipe")
def missing_packages(context: Context) -> Iterator[Problem]:
    least = dict(_AT_LEAST.findall("\n".join(requires("playhead") or ())))
    for package, place in _needed(context).items():
        found, wanted = _version(package), least.get(package)
        if found is None:
            problem = f"the recipe needs the package {package}, which is not installed"
        elif wanted is not None and _numbers(found) < _numbers(wanted):
            problem = f"the package {package} is too old"
        else:
            continue
        expected = f"{package} {wanted} or later" if wanted else package
        extra = _OPTIONAL[package]
        yield Problem(place, problem, found or "none", expected, f"pip install 'playhead[{extra}]'")


def _needed(context: Context) -> dict[str, str]:
    """The optional packages that the recipe itself shows to be needed, each with a place that needs it."""
    needed: dict[str, str] = {}
    for source in context.sources:
        leaf = source.leaf
        format_name = source.layout.registered.name if source.layout is not None else leaf.source.format
        if format_name in ("parquet", "arrow"):
            needed.setdefault("pyarrow", leaf.path)
        for path in leaf.source.path:
            if (compression := compression_of(path)) is not None:
                needed.setdefault("rapidgzip" if compression == ".gz" else "pyzstd", leaf.path)
        lengths = [length for length in (leaf.source.length, leaf.source.output_length) if length is not None]
        if tokenize_of(context.recipe, leaf) or any(term.tokenizer for length in lengths for term in length.terms):
            needed.setdefault("tokenizers", leaf.path)
        template = template_of(context.recipe, leaf) if holds_conversations(leaf.source) else None
        if template is not None:
            needed.setdefault("tokenizers", leaf.path)
            needed.setdefault("jinja2", leaf.path)
            if template[0].image is not None:
                needed.setdefault("Pillow", leaf.path)
        if any(term.image for length in lengths for term in length.terms):
            needed.setdefault("Pillow", leaf.path)
        if (leaf.source.audio or context.recipe.audio).sample_rate is not None:
            needed.setdefault("soxr", leaf.path)
    return needed


@check("PH065", "note", "versions of the packages that Playhead may use")
def package_versions(_context: Context) -> Iterator[Problem]:
    packages = ["playhead", *_REQUIRED, *_OPTIONAL]
    found = [f"{package} {known}" for package in packages if (known := _version(package)) is not None]
    absent = [package for package in _OPTIONAL if _version(package) is None]
    text = ", ".join(found) + (f"; not installed: {', '.join(absent)}" if absent else "")
    yield Problem("", "the packages of this environment; a job should have the same", found=text)


def _version(package: str) -> str | None:
    """The version of a package that can be imported."""
    try:
        return version(package) if find_spec(_MODULES.get(package, package)) is not None else None
    except (PackageNotFoundError, ValueError):
        return None


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]
