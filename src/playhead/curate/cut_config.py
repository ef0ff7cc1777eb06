"""How recordings without speakers are cut into windows."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from playhead.curate.config import is_finite
from playhead.curate.reasons import CUT_REASONS
from playhead.errors import RecipeError

WAYS = ("silence", "hop")


class CutConfig(Struct, frozen=True, kw_only=True):
    """Seconds throughout. Lengths of windows are from `min_seconds` to `max_seconds`, both included.

    `silence`: windows begin and end with speech, and part at the longest silence that the lengths allow; a pause
    shorter than `min_silence` is none. `hop`: a window every `hop_seconds` (by default `max_seconds`).
    """

    stage: ClassVar[str] = "cut"
    reasons: ClassVar[tuple[str, ...]] = tuple(CUT_REASONS)
    max_speakers: ClassVar[int] = 10  # of a histogram; nobody counts them here

    by: Literal["silence", "hop"] = "silence"
    min_seconds: float = 1.0
    max_seconds: float = 30.0
    min_silence: float = 0.0
    hop_seconds: float | None = None

    def __post_init__(self) -> None:
        """A config that is there can be used."""
        if self.by not in WAYS:
            raise RecipeError("by: there is no such way to cut", found=str(self.by), expected=" or ".join(WAYS))
        for name in ("min_seconds", "max_seconds", "hop_seconds"):
            _check(name, getattr(self, name), 1e-6, "a number of seconds of 0.000001 or more")
        _check("min_silence", self.min_silence, 0.0, "a number of seconds of 0 or more")
        for name in ("min_seconds", "max_seconds", "min_silence"):  # 15 and 15.0 are one parameter
            force_setattr(self, name, float(getattr(self, name)))
        if self.min_seconds > self.max_seconds:
            raise RecipeError(
                "min_seconds is above max_seconds: no window can be as long as that",
                found=f"min_seconds {self.min_seconds:g}, max_seconds {self.max_seconds:g}",
                expected="min_seconds of at most max_seconds",
            )
        if self.hop_seconds is not None and self.by != "hop":
            raise RecipeError(
                "hop_seconds is for cutting by hop", found="by: silence", fix="add by: hop, or leave hop_seconds out"
            )

    @property
    def min_duration(self) -> float:
        return self.min_seconds

    @property
    def max_duration(self) -> float:
        return self.max_seconds


def _check(name: str, value: object, least: float, expected: str) -> None:
    if value is None and name == "hop_seconds":
        return
    if not is_finite(value) or value < least:  # type: ignore[operator]
        raise RecipeError(f"{name}: this cannot be used", found=repr(value), expected=expected)
