"""How recordings are cut into windows: the checked parameters, and the reasons why speech is in no window."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import fields, force_setattr

from playhead.errors import RecipeError
from playhead.recipe.words import describe

# In the order of the rows' stats. `win` counts starts that made no window; of these, the last two name the segment
# at which it ended.
WINDOW_REASONS = {
    "bw": "the bandwidth is too low",
    "sr": "the sample rate is too low",
    "spk": "too few or too many speakers",
    "win": "no window of the asked duration starts here",
    "no_spkr": "no window: the next segment has no speaker",
    "next_seg_bm": "no window: the next segment has too low a bandwidth",
}
TOO_SHORT, BETWEEN_HOPS, PAST_END = "too_short", "between_hops", "past_end"
CUT_REASONS = {
    TOO_SHORT: "too short for a window, alone or with what is near",
    BETWEEN_HOPS: "between two windows, because the hop is longer",
    PAST_END: "after the end of the recording",
}
MEANINGS = {**WINDOW_REASONS, **CUT_REASONS}

WAYS = ("silence", "hop")
_NEEDED = ("start", "end")


class WindowConfig(Struct, frozen=True, kw_only=True, dict=True):
    """The parameters of `build_windows` and `filter_overlaps`, under NeMo Curator's names.

    Law: a valid value works for both stages; any other raises a RecipeError.
    """

    stage: ClassVar[str] = "windows"
    reasons: ClassVar[tuple[str, ...]] = tuple(WINDOW_REASONS)

    target_window_duration: float = 120.0
    tolerance: float = 0.1
    min_bandwidth: float = 8000
    min_sample_rate: float = 16000
    min_speakers: int = 2
    max_speakers: int = 5
    truncation: bool = True
    drop_fields: str = "words"
    drop_fields_top_level: str = "words,segments"
    overlap_percentage: float = 50
    target_duration: float = 120.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            _check_kind(field.name, value, field.default)
            if field.type is float:  # 120 and 120.0 are one parameter
                force_setattr(self, field.name, float(value))
        _check(self.target_window_duration > 0, "target_window_duration", self, "a number of seconds above 0")
        _check(0 <= self.tolerance < 1, "tolerance", self, "a fraction of at least 0 and below 1")
        _check(self.min_bandwidth >= 0, "min_bandwidth", self, "a number of hertz, 0 or more")
        _check(self.min_sample_rate > 0, "min_sample_rate", self, "a number of hertz above 0")
        _check(self.min_speakers >= 0, "min_speakers", self, "a whole number, 0 or more")
        _check(self.max_speakers >= 1, "max_speakers", self, "a whole number, 1 or more")
        _check(
            self.min_speakers <= self.max_speakers,
            "min_speakers",
            self,
            f"at most `max_speakers`, which is {self.max_speakers}",
        )
        _check(0 <= self.overlap_percentage <= 100, "overlap_percentage", self, "a percentage, 0 to 100")
        _check(self.target_duration > 0, "target_duration", self, "a number of seconds above 0")
        lacking = [name for name in _NEEDED if name in self.dropped]
        if lacking:
            raise RecipeError(
                f"drop_fields: `{lacking[0]}` cannot be dropped from segments",
                found=describe(self.drop_fields),
                expected="fields that windows can do without",
            )

    @cached_property
    def min_duration(self) -> float:
        return self.target_window_duration - self.target_window_duration * self.tolerance

    @cached_property
    def max_duration(self) -> float:
        return self.target_window_duration + self.target_window_duration * self.tolerance

    @cached_property
    def dropped(self) -> frozenset[str]:
        return _names(self.drop_fields)

    @cached_property
    def dropped_top_level(self) -> frozenset[str]:
        return _names(self.drop_fields_top_level)


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _check_kind(name: str, value: Any, default: Any) -> None:
    """Numbers are finite, and only counts of speakers must be whole."""
    if isinstance(default, (bool, str)):
        good = isinstance(value, type(default))
        expected = "true or false" if isinstance(default, bool) else "names separated by commas, in one string"
    elif name in {"min_speakers", "max_speakers"}:
        good, expected = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    else:
        good = is_finite(value)
        expected = "a finite number"
    if not good:
        raise RecipeError(f"{name}: is not a valid value", found=describe(value), expected=expected)


def is_finite(value: Any) -> bool:
    """Whether it is a number that a float can represent; an integer may be too large."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _check(good: bool, name: str, config: WindowConfig, expected: str) -> None:
    if not good:
        raise RecipeError(f"{name}: out of range", found=describe(getattr(config, name)), expected=expected)


class CutConfig(Struct, frozen=True, kw_only=True):
    """Seconds throughout. Lengths of windows are from `min_seconds` to `max_seconds`, both included.

    `silence`: windows begin and end with speech, and part at the longest silence that the lengths allow; a pause
    shorter than `min_silence` is ignored. `hop`: a window every `hop_seconds` (by default `max_seconds`).
    """

    stage: ClassVar[str] = "cut"
    reasons: ClassVar[tuple[str, ...]] = tuple(CUT_REASONS)
    max_speakers: ClassVar[int] = 10  # of a histogram; speakers are not counted here

    by: Literal["silence", "hop"] = "silence"
    min_seconds: float = 1.0
    max_seconds: float = 30.0
    min_silence: float = 0.0
    hop_seconds: float | None = None

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        if self.by not in WAYS:
            raise RecipeError("by: unknown method", found=str(self.by), expected=" or ".join(WAYS))
        for name in ("min_seconds", "max_seconds", "hop_seconds"):
            _check_seconds(name, getattr(self, name), 1e-6, "a number of seconds of 0.000001 or more")
        _check_seconds("min_silence", self.min_silence, 0.0, "a number of seconds of 0 or more")
        for name in ("min_seconds", "max_seconds", "min_silence"):  # 15 and 15.0 are one parameter
            force_setattr(self, name, float(getattr(self, name)))
        if self.min_seconds > self.max_seconds:
            raise RecipeError(
                "min_seconds is above max_seconds",
                found=f"min_seconds {self.min_seconds:g}, max_seconds {self.max_seconds:g}",
                expected="min_seconds of at most max_seconds",
            )
        if self.hop_seconds is not None and self.by != "hop":
            raise RecipeError(
                "hop_seconds requires `by: hop`", found="by: silence", fix="add by: hop, or leave hop_seconds out"
            )

    @property
    def min_duration(self) -> float:
        return self.min_seconds

    @property
    def max_duration(self) -> float:
        return self.max_seconds


def _check_seconds(name: str, value: object, least: float, expected: str) -> None:
    if value is None and name == "hop_seconds":
        return
    if not is_finite(value) or value < least:  # type: ignore[operator]
        raise RecipeError(f"{name}: is not a valid value", found=repr(value), expected=expected)
