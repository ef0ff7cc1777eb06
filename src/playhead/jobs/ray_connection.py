"""Connecting to a Ray cluster. A process has one Ray, so a cluster that was not started here is not stopped here."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from playhead.errors import PrepareError

_SECONDS_TO_ANSWER = 10.0
_OBJECT_STORE_BYTES = 80 << 20  # results are small; Ray takes no less than 75 MB
_LONGEST_PLACE = 40  # the path of a Unix socket ends after 107 characters, and Ray adds some 60


@dataclass
class Connection:
    """A Ray that jobs can be sent to. `owned`: started by this connection; `place`: the directory of such a cluster.

    `terminator` is the previous handler of SIGTERM, and `terminated` whether SIGTERM was received.
    """

    owned: bool
    place: Path | None = None
    terminator: Any = None
    terminated: bool = False

    def num_cpus(self) -> int:
        import ray

        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal's handler
        """Replaces Ray's handler, which ends the process and leaves its agents running."""
        self.terminated = True
        raise KeyboardInterrupt

    def leave_if_terminated(self) -> None:
        """Run the previous handler of SIGTERM, now that nothing is in flight."""
        if not self.terminated:
            return
        self.terminated = False
        if callable(self.terminator):
            self.terminator(signal.SIGTERM, None)
        raise SystemExit(128 + signal.SIGTERM)

    def close(self) -> None:
        """Stop what was started here: a connection, or a whole cluster with its files."""
        import ray

        if self.owned:
            ray.shutdown()
        if self.terminator is not None:
            signal.signal(signal.SIGTERM, self.terminator)
        if self.place is not None:
            shutil.rmtree(self.place, ignore_errors=True)


def connect(address: str | None, workers: int | None) -> Connection:
    """Join the cluster at the address, or at RAY_ADDRESS, or start one here. A Ray that the caller started is used."""
    ray = _import_ray()
    if ray.is_initialized():
        return Connection(owned=False)
    found = address or os.environ.get("RAY_ADDRESS") or "local"
    place = _place() if found == "local" else None
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if place is not None:
        # Read by Ray when it starts a cluster: no usage statistics are sent.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        quiet |= {"num_cpus": workers, "include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
        quiet["_temp_dir"] = str(place)
    before = _terminator()
    try:
        _knock(found)
        ray.init(address=found, **quiet)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)
        raise _unreachable(found, error) from error
    _deaths_to_stderr()
    connection = Connection(owned=True, place=place)
    if before is not None:
        connection.terminator = before
        signal.signal(signal.SIGTERM, connection.interrupt)
    return connection


def _knock(address: str) -> None:
    """Refuse at once an address at which nothing listens: Ray would retry for more than a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), _SECONDS_TO_ANSWER).close()


def _terminator() -> Any:
    """The current handler of SIGTERM; None if it cannot be changed from this thread."""
    return signal.getsignal(signal.SIGTERM) if threading.current_thread() is threading.main_thread() else None


def _place() -> Path:
    """A private directory: it is removed afterwards, and `auto` of other programs does not find the cluster."""
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="ray-", dir=usual if len(usual) <= _LONGEST_PLACE else "/tmp"))  # noqa: S108


def _deaths_to_stderr() -> None:
    """Ray prints the death of any worker to stdout, where our results go; it has no option to disable this."""
    from ray._private import worker as inside

    plain = getattr(inside, "print_to_stdstream", None)
    if plain is None or hasattr(plain, "to_stderr"):
        return

    def printed(data: dict[str, Any], *rest: Any, **named: Any) -> None:
        plain({**data, "is_err": True} if data.get("pid") == "raylet" else data, *rest, **named)

    printed.to_stderr = True  # type: ignore[attr-defined]
    inside.print_to_stdstream = printed


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise PrepareError(
            "the engine `ray` needs the package ray, which is not installed",
            fix="pip install 'playhead[ray]', or leave out --engine ray",
        ) from error
    return ray


def _unreachable(address: str, error: Exception) -> PrepareError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if address == "local":
        return PrepareError("Ray could not be started on this machine", found=lines[0])
    return PrepareError(
        f"no Ray cluster could be joined at {address}",
        found=lines[0],
        expected="auto, host:port or ray://host:port of a running cluster",
        fix="correct --ray-address or RAY_ADDRESS, or give neither: a cluster is then started on this machine; "
        "one that asks for a token needs RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here",
    )
