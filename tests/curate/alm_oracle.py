"""NeMo Curator's own two files, without what they stand on. Used in the tests only.

`make test` installs the package without its dependencies; the files are loaded with stubs in place of the framework.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

VERSION = "1.4.0"
_FILES = {"builder": "alm_data_builder.py", "overlap": "alm_data_overlap.py"}


def is_installed() -> bool:
    try:
        return bool(files("nemo-curator"))
    except PackageNotFoundError:
        return False


def curated(row: dict[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """What both stages make of a row, each given its own parameters."""
    own = {name: parameters[name] for name in ("overlap_percentage", "target_duration")}
    builder = _module("builder").ALMDataBuilderStage(**{k: v for k, v in parameters.items() if k not in own})
    overlap = _module("overlap").ALMDataOverlapStage(**own)
    task = types.SimpleNamespace(data=row)
    return overlap.process(builder.process(task)).data


@cache
def _module(which: str) -> Any:
    path = next(file for file in files("nemo-curator") or [] if file.name == _FILES[which])
    return _loaded(f"curator_{which}", Path(str(path.locate())))


def _loaded(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.sum = _plain_sum  # from Python 3.12 on the built-in one compensates
    stubs = {"nemo_curator": {}, "nemo_curator.stages": {}, "nemo_curator.stages.base": {"ProcessingStage": _Stage}}
    stubs["nemo_curator.tasks"] = {"AudioTask": object}
    before = {stub: sys.modules.get(stub) for stub in stubs}
    try:
        for stub, names in stubs.items():
            sys.modules[stub] = types.ModuleType(stub)
            vars(sys.modules[stub]).update(names)
        sys.modules[name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
    finally:
        for stub, was in before.items():
            sys.modules.pop(stub)
            if was is not None:
                sys.modules[stub] = was
    return module


def _plain_sum(numbers: Any) -> Any:
    found = 0
    for number in numbers:
        found = found + number
    return found


class _Stage:
    def __class_getitem__(cls, _: Any) -> type:
        return cls

    def _log_metrics(self, metrics: dict[str, float]) -> None:
        pass
