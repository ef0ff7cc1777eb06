"""The main loop of a worker process: it does its owner's work in order until its pipe is closed."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from playhead.errors import PlayheadError, SampleError, WorkerError
from playhead.feed.arena import Arena
from playhead.feed.look_ahead import LookAhead, Queued
from playhead.feed.produce import Blueprint
from playhead.feed.tasks import Work
from playhead.feed.transport import pack
from playhead.read.priority import give_way

# The blueprint of the producer, a function to call before, how often the pool was started before, and the number of
# threads that fetch ahead.
Instructions = tuple[Blueprint, Callable[[int, int], None] | None, int, int]

BUFFER = struct.Struct("=i?")  # a buffer's number, and whether it is new (its descriptor follows); work is longer


def serve(connection: Connection, instructions: Instructions | bytes, number: int, free: Connection) -> None:
    """The main function of a worker process. A forked one gets the instructions themselves, others a pickle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the owner
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a fork has its owner's handler
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    give_way()
    inbox: SimpleQueue[Queued] = SimpleQueue()
    look_ahead, arena = LookAhead(), Arena(free)
    # Listen before building: the owner may exit meanwhile.
    listening = (connection, socket_of(connection), lambda work: inbox.put(look_ahead.add(work)), arena)
    threading.Thread(target=_listen, args=listening, daemon=True).start()
    producer: Any = None
    failure: BaseException | None = None
    try:
        found = pickle.loads(instructions) if isinstance(instructions, bytes) else instructions  # noqa: S301  # our own
        blueprint, setup, num_starts, num_threads = found
        if setup is not None:
            setup(number, num_starts)
        producer = blueprint.build()
        look_ahead.start(producer.fetch if producer.looks_ahead else None, num_threads)
    except Exception as error:  # noqa: BLE001  # raised where the first result is awaited
        failure = _portable(error)
    while True:
        work, take = inbox.get()
        result: Any = failure
        if result is None:
            try:
                result = producer(work, arena.empty, number, take)
            except Exception as error:  # noqa: BLE001  # raised where the result is awaited
                arena.clear()
                result = _portable(error)
        try:
            connection.send_bytes(_message(result, work, arena))
        except OSError:
            os._exit(0)
        del result, take  # its arrays are the owner's now


def socket_of(connection: Connection) -> socket.socket:
    """A duplicate descriptor of a two-way pipe, to send descriptors through; it blocks without a timeout."""
    found = socket.socket(fileno=os.dup(connection.fileno()))
    found.settimeout(None)  # whatever the program's default is
    return found


def _listen(connection: Connection, stream: socket.socket, put: Callable[[Work], None], arena: Arena) -> None:
    """Receive work at once, so that the owner never blocks on a worker that waits for it to take a result."""
    try:
        while True:
            data = connection.recv_bytes()
            if len(data) > BUFFER.size:
                put(Work.from_bytes(data))
                continue
            number, is_new = BUFFER.unpack(data)
            if is_new:
                descriptors = socket.recv_fds(stream, 1, 1)[1]
                arena.announced(number, descriptors[0] if descriptors else None)
            else:
                arena.forget(number)
    except (EOFError, OSError):
        os._exit(0)


def _message(result: Any, work: Work, arena: Arena) -> bytes:
    try:
        return pack(result, arena)
    except Exception as error:  # noqa: BLE001  # pickling runs code of the user's classes
        place = f"step {work.request.step:,}, lane {work.request.lane}"
        problem = f"{place}: the batch cannot be sent from its worker process"
        found = f"{type(error).__name__}: {error}"
        fix = "return arrays, numbers, text and lists from `map` and `collate`, or use worker threads"
        return pack(SampleError(problem, found=found, fix=fix), arena)


def _portable(error: BaseException) -> BaseException:
    """The error itself where it can be pickled; otherwise its message and the line that raised it."""
    if isinstance(error, PlayheadError):
        return error
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"in {frame.filename}, line {frame.lineno}, in {frame.name}"
    return WorkerError(f"a worker raised {type(error).__name__}: {error}", found=place)
