"""The releases of Megatron whose counts and keys are known."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from playhead.errors import RecipeError

RELEASES = ("0.15", "0.16", "0.17", "0.18", "0.19", "main")
_DEFAULT = "0.16"


def release_of(name: str | None) -> str:
    """The release asked for; else that of the installed megatron.core; else 0.16."""
    if name is None:
        name = _installed() or _DEFAULT
    short = ".".join(name.split(".")[:2])
    if short not in RELEASES:
        raise RecipeError(
            f"Megatron release {name}: is not known",
            expected=f"one of {', '.join(RELEASES)}",
            fix="name the nearest with --megatron-release, and take the tokenizer from a description: --like",
        )
    return short


def since(release: str, first: str) -> bool:
    return RELEASES.index(release) >= RELEASES.index(first)


def _installed() -> str | None:
    try:
        found = version("megatron-core")
    except PackageNotFoundError:
        return None
    short = ".".join(found.split(".")[:2])
    return short if short in RELEASES else None
