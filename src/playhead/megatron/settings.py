"""A job by names and values, as from YAML or Python -> a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from playhead.errors import DataError, RecipeError
from playhead.megatron.arguments import Request, read_request
from playhead.megatron.flags import words_of


def request_of(arguments: Mapping[str, Any], words: Sequence[str] = ()) -> Request:
    """A job by its arguments; `words` are further ones, as on a command line, and replace those of the same name."""
    named = {str(name).replace("-", "_"): value for name, value in arguments.items()}
    release, like = named.pop("megatron_release", None), named.pop("like", None)
    keep, iteration = named.pop("keep_partial_validation_sequence", False), named.pop("at_iteration", 0)
    return read_request(
        [*words_of(named), *words],
        release=None if release is None else str(release),
        like=like,
        keep_partial=bool(keep),
        iteration=int(iteration),
    )


def read_settings(path: str | Path) -> dict[str, Any]:
    """A YAML file of a job's arguments by name."""
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read", found=error.strerror, fix="correct the path") from error
    except yaml.YAMLError as error:
        raise RecipeError(f"{path}: is not YAML", found=str(error).replace("\n", " ")) from error
    if not isinstance(found, dict):
        raise RecipeError(f"{path}: is not a list of arguments by name", expected="lines such as `seq_length: 4096`")
    return found
