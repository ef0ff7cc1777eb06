"""A slow and unreliable network on loopback: an HTTP proxy in a process of its own, in front of one server.

It adds latency to every request, shares one bandwidth among all connections, cuts answers short and answers 503; all of
it can be changed while it runs. It can be killed, and started again on the same port.

    with slow_proxy(server_port, Network(latency_seconds=0.05, bytes_per_second=200e6)) as proxy:
        read_from(proxy.address)
        proxy.set(cut=0.1)
"""

from __future__ import annotations

import json
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

_BUFFER_BYTES = 1 << 20
_TURN_BYTES = (16 << 10, 256 << 10)  # the smallest and the largest turn of a connection that shares a bandwidth
_TURN_SECONDS = 0.002
_CREDIT_SECONDS = 0.02  # what a thread that woke up late may make up for
_SILENT_SECONDS = 60.0
_PORTS = (15_000, 32_000)


@dataclass(frozen=True)
class Network:
    """What the proxy does to requests; the chances are between 0 and 1."""

    latency_seconds: float = 0.0  # before a request is passed on
    bytes_per_second: float | None = None  # of all bodies together, both ways; None is no limit
    cut: float = 0.0  # chance that an answer ends early and its connection is closed
    fail: float = 0.0  # chance that a request is answered with 503 and not passed on
    seed: int = 0


@dataclass
class SlowProxy:
    """A proxy process and its control; `address` is where clients find the server."""

    server_port: int
    network: Network
    port: int = 0
    process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, again on the port it had before."""
        assert self.process is None
        command = [sys.executable, __file__, str(self.port), str(self.server_port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self._ask(asdict(self.network))["port"])

    def set(self, **changes: Any) -> None:
        """Change the network, for requests that arrive from now on and for bytes still to be sent."""
        self.network = replace(self.network, **changes)
        self._ask(asdict(self.network))

    def counts(self) -> dict[str, int]:
        """Requests, bytes of bodies in answers, answers cut short and refused so far."""
        return self._ask(None)

    def kill(self) -> None:
        """End it at once: its connections are lost, and new ones are refused."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        with self.process:  # closes its pipes and waits
            self.process = None

    def _ask(self, network: dict[str, Any] | None) -> dict[str, int]:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(network) + "\n")
        self.process.stdin.flush()
        answer: dict[str, int] = json.loads(self.process.stdout.readline())
        return answer


@contextmanager
def slow_proxy(server_port: int, network: Network | None = None) -> Iterator[SlowProxy]:
    """A proxy in front of a server on loopback, ended with the block."""
    proxy = SlowProxy(server_port, network or Network())
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()


@dataclass
class _Line:
    """The bandwidth that connections share, and the counters."""

    network: Network = field(default_factory=Network)
    free_at: float = 0.0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("requests", "bytes", "cut", "failed"), 0))
    lock: threading.Lock = field(default_factory=threading.Lock)
    chance: random.Random = field(default_factory=random.Random)

    def wait(self, num_bytes: int) -> None:
        """Wait for the turn of so many bytes: turns are given in the order of the calls."""
        rate = self.network.bytes_per_second
        if rate is None:
            return
        with self.lock:
            now = time.monotonic()
            self.free_at = due = max(self.free_at, now - _CREDIT_SECONDS) + num_bytes / rate
        if due > now:
            time.sleep(due - now)

    def turn(self) -> int:
        """The bytes that a connection receives before it waits."""
        rate = self.network.bytes_per_second
        return _BUFFER_BYTES if rate is None else min(max(_TURN_BYTES[0], int(rate * _TURN_SECONDS)), _TURN_BYTES[1])

    def count(self, name: str, number: int = 1) -> None:
        with self.lock:
            self.counts[name] += number

    def happens(self, chance: float) -> bool:
        return chance > 0 and self.chance.random() < chance


@dataclass
class _Side:
    """One end of a connection: a socket, and what was received of the next message already."""

    wire: socket.socket
    early: bytes = b""

    def head(self) -> bytes | None:
        """Everything up to the empty line; None where the other side is gone."""
        while (end := self.early.find(b"\r\n\r\n")) < 0:
            if not (more := self.wire.recv(64 << 10)):
                return None
            self.early += more
        head, self.early = self.early[: end + 4], self.early[end + 4 :]
        return head

    def pass_on(self, size: int | None, to: socket.socket, line: _Line, buffer: memoryview) -> bool:
        """Send `size` bytes of a body to the other side, all there are for None; whether it was whole."""
        left = 1 << 62 if size is None else size
        while left:
            if self.early:
                piece = memoryview(self.early)[:left]
                self.early = self.early[len(piece) :]
            else:
                got = self.wire.recv_into(buffer, min(left, line.turn()), socket.MSG_WAITALL)
                if not got:
                    return size is None
                piece = buffer[:got]
            line.wait(len(piece))
            to.sendall(piece)
            line.count("bytes", len(piece))
            left -= len(piece)
        return True

    def pass_chunks(self, to: socket.socket, line: _Line, buffer: memoryview) -> bool:
        """Send a chunked body to the other side."""
        while True:
            while (end := self.early.find(b"\r\n")) < 0:
                if not (more := self.wire.recv(64 << 10)):
                    return False
                self.early += more
            size = int(self.early[:end].partition(b";")[0], 16)
            if not self.pass_on(end + 2 + size + 2, to, line, buffer):  # the last one ends in an empty line too
                return False
            if not size:
                return True


def _size(head: bytes) -> int | None:
    found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return int(found[1]) if found else None


def _is_chunked(head: bytes) -> bool:
    return re.search(rb"\r\ntransfer-encoding: *[^\r]*chunked", head, re.IGNORECASE) is not None


def _serve(client: _Side, server_port: int, line: _Line) -> None:
    """Pass on the requests of one connection, one after another, until one side closes it."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    server: _Side | None = None
    try:
        while (head := client.head()) is not None:
            network = line.network
            line.count("requests")
            if network.latency_seconds:
                time.sleep(network.latency_seconds)
            if re.search(rb"\r\nexpect: *100-continue", head, re.IGNORECASE):
                client.wire.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                head = re.sub(rb"\r\nexpect: *100-continue", b"", head, flags=re.IGNORECASE)
            if line.happens(network.fail):
                line.count("failed")
                client.wire.sendall(
                    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
                return
            if server is None or _is_closed(server.wire):
                server = _Side(_connected(server_port, server))
            server.wire.sendall(head)
            if _is_chunked(head):
                client.pass_chunks(server.wire, line, buffer)
            else:
                client.pass_on(_size(head) or 0, server.wire, line, buffer)
            if not _answer(head, server, client.wire, line, buffer):
                return
    finally:
        if server is not None:
            server.wire.close()


def _answer(request: bytes, server: _Side, client: socket.socket, line: _Line, buffer: memoryview) -> bool:
    """Pass on an answer; whether the connection can be used again."""
    head = server.head()
    while head is not None and head[9:10] == b"1":  # 100 Continue and its kind
        client.sendall(head)
        head = server.head()
    if head is None:
        return False
    size = _size(head)
    if request.startswith(b"HEAD ") or head[9:12] in {b"204", b"304"}:
        size = 0
    if line.happens(line.network.cut):
        line.count("cut")
        end = line.chance.randrange(len(head) + (size or 0))
        client.sendall(head[:end])
        server.pass_on(max(0, end - len(head)), client, line, buffer)
        return False
    client.sendall(head)
    if size is None and _is_chunked(head):
        return server.pass_chunks(client, line, buffer)
    whole = server.pass_on(size, client, line, buffer)
    return whole and size is not None and re.search(rb"\r\nconnection: *close", head, re.IGNORECASE) is None


def _connected(port: int, before: _Side | None) -> socket.socket:
    if before is not None:
        before.wire.close()
    return _blocking(socket.create_connection(("127.0.0.1", port), timeout=_SILENT_SECONDS))


def _blocking(wire: socket.socket) -> socket.socket:
    """The kernel keeps the time-out: a time-out of Python's is a second call for every one."""
    wire.settimeout(None)
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for way in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        wire.setsockopt(socket.SOL_SOCKET, way, struct.pack("ll", int(_SILENT_SECONDS), 0))
    return wire


def _is_closed(idle: socket.socket) -> bool:
    """Whether the server ended a connection on which no answer is due."""
    return bool(select.select([idle], [], [], 0)[0])


def _accept(listener: socket.socket, server_port: int, line: _Line) -> None:
    def serve(accepted: socket.socket) -> None:
        with closing(accepted), suppress(OSError):  # a lost connection is what this proxy is for
            _serve(_Side(_blocking(accepted)), server_port, line)

    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


def _listening(port: int) -> socket.socket:
    """On a port; 0 is any below those that the system gives to connections, so it is still free for another start."""
    while True:
        try:
            free = port or random.randrange(*_PORTS)  # noqa: S311 - no secret
            return socket.create_server(("127.0.0.1", free), backlog=512)
        except OSError:
            if port:
                raise


def main(port: int, server_port: int) -> None:
    """Listen until standard input ends, which it also does when the process that started this one dies."""
    line = _Line()
    listener = _listening(port)
    threading.Thread(target=_accept, args=(listener, server_port, line), daemon=True).start()
    for asked in sys.stdin:
        if (network := json.loads(asked)) is not None:
            if network["seed"] != line.network.seed or not line.counts["requests"]:
                line.chance.seed(network["seed"])
            line.network = Network(**network)
        print(json.dumps({"port": listener.getsockname()[1], **line.counts}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
