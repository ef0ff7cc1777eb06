"""What windows are asked for: the parameters of both stages, checked."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import fields, force_setattr

from playhead.curate.reasons import WINDOW_REASONS
from playhead.errors import RecipeError
from playhead.recipe.words import describe

_NEEDED = ("start", "end")


class WindowConfig(Struct, frozen=True, kw_only=True, dict=True):
    """The parameters of `build_windows` and `filter_overlaps`, under NeMo Curator's names.

    Law: a value of it is one that both stages can work with; any other raises a RecipeError.
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
    """Numbers are finite, and only counts of speakers are whole by need."""
    if isinstance(default, (bool, str)):
        good = isinstance(value, type(default))
        expected = "true or false" if isinstance(default, bool) else "names with commas between them, in one text"
    elif name in {"min_speakers", "max_speakers"}:
        good, expected = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    else:
        good = is_finite(value)
        expected = "a finite number"
    if not good:
        raise RecipeError(f"{name}: cannot be this", found=describe(value), expected=expected)


def is_finite(value: Any) -> bool:
    """Whether it is a number that a float can be; a whole one may be too large for that."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _check(good: bool, name: str, config: WindowConfig, expected: str) -> None:
    if not good:
        raise RecipeError(f"{name}: out of range", found=describe(getattr(config, name)), expected=expected)
