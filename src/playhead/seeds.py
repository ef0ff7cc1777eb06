"""Randomness by name: every random choice is keyed by a path such as (seed, "shuffle", "calls", 3).

A key is folded element by element, so the kernels can extend a key with an integer (an epoch, a block)
and get exactly what `key` gives for the longer path.
"""

from __future__ import annotations

import hashlib

MASK = 0xFFFF_FFFF_FFFF_FFFF
ROOT = 0x9E37_79B9_7F4A_7C15
INTEGER_TAG = 0xD1B5_4A32_D192_ED03
_TEXT_TAG = 0x8CB9_2BA7_2F3D_8DD7


def hash_text(text: str) -> int:
    """A 64-bit hash of a name, the same on every platform and in every process."""
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def mix(value: int) -> int:
    """Scramble 64 bits reversibly (the splitmix64 finaliser)."""
    value &= MASK
    value = ((value ^ (value >> 30)) * 0xBF58_476D_1CE4_E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D0_49BB_1331_11EB) & MASK
    return value ^ (value >> 31)


def fold(key: int, value: int) -> int:
    """Extend a key by one integer."""
    return mix(mix(key ^ INTEGER_TAG) + (value & MASK))


def extend(key: int, *path: int | str) -> int:
    """The key of a longer path: extend(key(*a), *b) == key(*a, *b)."""
    for part in path:
        key = mix(mix(key ^ _TEXT_TAG) + hash_text(part)) if isinstance(part, str) else fold(key, part)
    return key


def key(*path: int | str) -> int:
    """The 64-bit key of a named path."""
    return extend(ROOT, *path)
