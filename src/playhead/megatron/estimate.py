"""The cost of preparing a cache: bytes on disk, bytes of memory, approximate seconds."""

from __future__ import annotations

from playhead.errors import RecipeError
from playhead.megatron.cache_plan import BlendEntry, Entry
from playhead.megatron.entry_files import arrays_of, num_bytes_of

_BASE_BYTES = 150 << 20  # Python, numpy, numba and the compiled kernels
_CHUNK_BYTES = 32 << 20
_SECONDS_PER_GB = 6.0  # measured, see docs/megatron.md


def memory_of(entry: Entry) -> int:
    """The peak memory: the documents' order with the lengths, and the samples' order."""
    if isinstance(entry, BlendEntry):
        return _CHUNK_BYTES
    documents, _, shuffled = arrays_of(entry)
    return documents.num_bytes + 4 * (entry.end - entry.first) + shuffled.num_bytes + _CHUNK_BYTES


def memory_needed(entries: list[Entry], workers: int) -> int:
    """The memory of the largest entries that can be built at the same time."""
    largest = sorted((memory_of(entry) for entry in entries), reverse=True)
    return _BASE_BYTES + sum(largest[:workers])


def workers_for(entries: list[Entry], workers: int, memory_bytes: int | None) -> int:
    """As many workers as fit into the memory; one that does not fit is an error."""
    if memory_bytes is None or not entries:
        return workers
    if memory_needed(entries, 1) > memory_bytes:
        raise RecipeError(
            "the largest dataset does not fit into the memory limit",
            found=f"{memory_bytes >> 20:,} MB",
            expected=f"at least {(memory_needed(entries, 1) >> 20) + 1:,} MB",
            fix="raise --memory",
        )
    return max(count for count in range(1, workers + 1) if memory_needed(entries, count) <= memory_bytes)


def seconds_needed(entries: list[Entry], workers: int) -> float:
    return sum(map(num_bytes_of, entries)) / 1e9 * _SECONDS_PER_GB / max(1, min(workers, len(entries)))
