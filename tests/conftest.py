"""Hypothesis profiles, the order and the groups of tests, and a Ray cluster for the tests that ask for one.

`ci` (the default profile) finds the same examples every time; HYPOTHESIS_PROFILE chooses another.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Two shared cores are slow now and then, and another release of Hypothesis draws other examples: neither is a
# failure of the code.
_calm = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much]}
settings.register_profile("ci", derandomize=True, max_examples=60, database=None, **_calm)
settings.register_profile("quick", derandomize=True, max_examples=20, database=None, **_calm)
settings.register_profile("dev", max_examples=30, **_calm)
settings.register_profile("thorough", max_examples=2000, **_calm)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# The processes that tests start read Playhead's bytecode: compiling it took a fifth of their time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A client without credentials would ask a cloud's metadata service for some: tests ask nobody but this machine.
os.environ |= {"AWS_METADATA_ENDPOINT": "http://127.0.0.1:9", "AZURE_MSI_ENDPOINT": "http://127.0.0.1:9"}

# The tests of a file stay together, for they share what they have made. Of the rest of the rule:
_PAGES = "test_docs.py"  # pages share nothing
_RAY_FILES = ("jobs/test_engines.py", "curate/test_curate_everywhere.py", "curate/test_shards.py")  # one cluster
# A long file that is begun last leaves a core idle.
_LONGEST_FIRST = (
    *_RAY_FILES,
    _PAGES,
    "cli/test_verify_command.py",
    "cli/test_demo_command.py",
    "verify/test_ranks.py",
    "verify/test_broken_loaders.py",
    "prepare/test_compiling.py",
    "curate/test_curate_runs.py",
    "curate/test_windows_stages.py",
    "prepare/test_kills.py",
    "laws/test_plan_laws.py",
    "test_tutorial.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(_LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file.endswith(_PAGES):
                return nodeid
            return "ray" if file.endswith(_RAY_FILES) else file

    config.option.loadscopereorder = False  # else it begins with the files of most tests
    return Groups(config, log)


_RAY = """
import sys, ray
found = ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
                 object_store_memory=80 << 20, _temp_dir=sys.argv[1])
print(found.address_info["gcs_address"], flush=True)
sys.stdin.read()
ray.shutdown()
"""


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """The address of a cluster that another process keeps; it ends with this one, however this one ends."""
    # Read by Ray when it is imported; without a token of its own it would make one in the home directory.
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(), "RAY_USAGE_STATS_ENABLED": "0"}
    patch = pytest.MonkeyPatch()
    for name, value in settings.items():
        patch.setenv(name, value)
    folder = Path(f"/tmp/r{os.getpid()}")  # noqa: S108 - the path of a socket must be short
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", _RAY, str(folder)], **pipes) as keeper:
        yield keeper.stdout.readline().strip()
        keeper.communicate()
    patch.undo()
    shutil.rmtree(folder)
    assert keeper.returncode == 0
