"""A rank as a member of its recipe's shard cache: registered where the filler sees it, and ready to start a filler.

Every rank tries to take the filler's lock, again and again. The one that gets it starts the filler and hands it the
lock; when that process or its rank ends, however it ends, the lock is free and another rank takes over.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from contextlib import closing, suppress
from threading import Event, Lock, Thread
from weakref import WeakSet

from playhead.deal import Identity
from playhead.errors import PlayheadError, StoreError
from playhead.plan.cursor import Cursor
from playhead.read.cache_filler.copying import remove_parts
from playhead.recipe.values import Recipe
from playhead.store.shard_cache.counters import sum_counters
from playhead.store.shard_cache.directory import FILLER_LOCK, CacheDirectory, open_directory, release, try_lock
from playhead.store.shard_cache.ranks import RankFile, RankRecord

_POLL_SECONDS = 0.25
_PATIENCE_SECONDS = 1.0  # for the filler to end by itself: it may be killed at any moment
_MOST_FAILURES = 5  # one after another


class CacheWarning(UserWarning):
    """The shard cache cannot be used as the recipe asks; the stream is the same, and may be slower."""


class CacheMember:
    """The membership of one loader, from its first batch until it is closed."""

    def __init__(self, recipe: Recipe, about: RankRecord) -> None:
        assert recipe.shard_cache is not None
        self._process = os.getpid()
        self._directory = open_directory(recipe.shard_cache.dir)
        self._file = RankFile(self._directory, recipe.to_dict(), about)
        self._messages: list[str] = []
        self._stopped = Event()
        self._filler: subprocess.Popen[bytes] | None = None
        _all.add(self)
        self._thread = Thread(target=self._watch, name="playhead-cache", daemon=True)
        self._thread.start()

    def restarted(self, cursor: Cursor) -> None:
        """The rank begins again, perhaps at an earlier step."""
        self._file.moved(tuple(cursor.to_record()), restarted=True)

    def moved(self, cursor: Cursor) -> None:
        """The rank has reached a cursor."""
        self._file.moved(tuple(cursor.to_record()))

    def at_step(self, step: int) -> None:
        """The rank has finished every step before this one; called for every batch."""
        self._file.at_step(step)

    def rest(self) -> None:
        """The rank needs nothing until it is restarted."""
        self._file.rest()

    def warn(self) -> None:
        """Pass on what the filler has said, once."""
        while self._messages:
            warnings.warn(self._messages.pop(0), CacheWarning, stacklevel=4)

    def close(self) -> None:
        """End the membership, and the filler if this rank started it. In a fork, leave both to the parent."""
        if self._process != os.getpid():
            return
        self._stopped.set()
        self._end_filler()
        self._thread.join(_PATIENCE_SECONDS)
        self._file.close()
        with suppress(OSError):
            _remove_parts(self._directory)

    def leave_to_parent(self) -> None:
        """In a fork: without this, the filler would not see its rank end while the fork lives."""
        filler, self._filler = self._filler, None
        if filler is None or filler.stdin is None or filler.stdin.closed:
            return
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nothing, filler.stdin.fileno(), inheritable=False)
        os.close(nothing)
        filler.returncode = 0  # it is no child of this process, which need not wait for it

    def _end_filler(self) -> None:
        filler = self._filler
        if filler is None:
            return
        assert filler.stdin is not None
        with suppress(OSError):
            filler.stdin.close()
        try:
            filler.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            filler.kill()
            filler.wait()

    def _watch(self) -> None:
        """Start a filler whenever there is none, unless several have ended before they copied anything."""
        failures, problem = 0, ""
        while failures < _MOST_FAILURES and not self._is_removed() and not self._stopped.is_set():
            problem = "its filler ended unexpectedly"
            try:
                copied = self._fill()
            except OSError as error:
                copied, problem = False, str(error)
            if copied is not None:
                failures = 0 if copied else failures + 1
            self._stopped.wait(_POLL_SECONDS)
        removed = self._is_removed()
        if self._stopped.is_set():
            return
        found, fix = f"{problem}, {failures} times", "see what its filler printed, and the limits on memory and files"
        if removed:
            found, fix = f"{self._directory.root} was removed, or a part of it", "remove what is left of it"
        self._messages.append(
            f"the shard cache is not filled any more: {found}. What it does not hold is read from its storage. "
            f"To use it again, {fix}; then make a new loader"
        )

    def _is_removed(self) -> bool:
        """Whether the cache that was joined is gone, or a part of it; there may be another in its place."""
        return not self._file.is_there or bool(self._directory.missing())

    def _copied_bytes(self) -> int:
        counts = sum_counters(self._directory)
        return counts.copied_bytes + counts.kept_bytes

    def _fill(self) -> bool | None:
        """Run a filler to its end; returns whether it copied anything, None where another rank has started one."""
        with _starting:
            lock = try_lock(self._directory.root / FILLER_LOCK)
            if lock is None:
                return None
            try:
                self._filler = _start_filler(self._directory, lock)
            finally:
                os.close(lock)
        if self._stopped.is_set():
            self._end_filler()
        assert self._filler.stdin is not None
        assert self._filler.stdout is not None
        with closing(self._filler.stdin), self._filler.stdout as lines:  # `close` may have closed the first already
            before = self._copied_bytes()
            for line in lines:
                self._messages.append(line.decode("utf-8", "replace").rstrip("\n"))
        self._filler.wait()
        return self._copied_bytes() > before


_all: WeakSet[CacheMember] = WeakSet()
_starting = Lock()  # a fork made meanwhile would hold the filler's lock, and no other filler could be started


def _after_fork() -> None:
    _starting.release()
    for member in _all:
        member.leave_to_parent()


os.register_at_fork(before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_after_fork)


def _start_filler(directory: CacheDirectory, lock: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "playhead.read.cache_filler.process", str(directory.root)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(lock,), env=environment
    )


def _remove_parts(directory: CacheDirectory) -> None:
    lock = try_lock(directory.root / FILLER_LOCK)
    if lock is not None:
        try:
            remove_parts(directory)
        finally:
            release(lock)


def join_cache(
    recipe: Recipe,
    split: str | None,
    identity: Identity,
    cursor: Cursor,
    total_bytes: int,
    steps_ahead: int = 0,
    *,
    again: bool = False,
) -> CacheMember | None:
    """Join the recipe's shard cache; None, with a warning, where its disk has no space left.

    Where it is tried `again`, the stream goes on without the cache whatever keeps it from being used.
    """
    numbers = tuple(cursor.to_record())
    about = RankRecord("", split, identity.rank, identity.world_size, numbers, os.getpid(), total_bytes, steps_ahead)
    try:
        return CacheMember(recipe, about)
    except PlayheadError as error:
        if not again:
            if not isinstance(error, StoreError):
                raise
            said = f"the shard cache is not used for now, and tried again every minute: {error}"
            warnings.warn(said, CacheWarning, stacklevel=4)
        return None
