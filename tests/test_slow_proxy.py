"""The network of our own that storage is tried on."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator

import pytest

from loopback import Loopback, serving
from slow_proxy import Network, SlowProxy, slow_proxy

DATA = bytes(range(256)) * 4000


@pytest.fixture
def server() -> Iterator[Loopback]:
    with serving({"/b/data": DATA}) as served:
        yield served


@pytest.fixture
def proxy(server: Loopback) -> Iterator[SlowProxy]:
    with slow_proxy(server.port) as started:
        yield started


def get(proxy: SlowProxy, method: str = "GET") -> tuple[int, bytes]:
    wire = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    try:
        wire.request(method, "/b/data")
        answer = wire.getresponse()
        return answer.status, answer.read()
    finally:
        wire.close()


def test_answers_go_through_unchanged_and_are_counted(proxy: SlowProxy, server: Loopback) -> None:
    wire = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    for method, body in [("GET", DATA), ("HEAD", b""), ("GET", DATA)]:
        wire.request(method, "/b/data")
        assert wire.getresponse().read() == body
    wire.request("GET", "/b/none")
    assert wire.getresponse().status == 404
    wire.close()
    assert proxy.counts() == {"port": proxy.port, "requests": 4, "bytes": 2 * len(DATA) + 37, "cut": 0, "failed": 0}
    assert len(server.requests) == 4


def test_every_request_takes_at_least_the_latency(proxy: SlowProxy) -> None:
    proxy.set(latency_seconds=0.1)
    start = time.monotonic()
    get(proxy)
    assert time.monotonic() - start >= 0.1


def test_connections_share_the_bandwidth(proxy: SlowProxy) -> None:
    rate = 10e6
    proxy.set(bytes_per_second=rate)
    threads = [threading.Thread(target=get, args=(proxy,)) for _ in range(4)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - start >= 4 * len(DATA) / rate - 0.05


def test_answers_are_cut_and_requests_refused_with_the_chance_given(proxy: SlowProxy, server: Loopback) -> None:
    proxy.set(fail=1.0)
    assert get(proxy) == (503, b"")
    assert not server.requests
    proxy.set(fail=0.0, cut=1.0)
    for _ in range(3):
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            get(proxy)
    proxy.set(cut=0.0)
    assert get(proxy) == (200, DATA)
    counts = proxy.counts()
    assert (counts["failed"], counts["cut"]) == (1, 3)


def test_a_killed_proxy_refuses_connections_until_it_is_started_on_its_port(proxy: SlowProxy) -> None:
    port = proxy.port
    proxy.kill()
    with pytest.raises(ConnectionRefusedError):
        get(proxy)
    proxy.start()
    assert proxy.port == port
    assert get(proxy) == (200, DATA)


def test_a_server_that_is_gone_is_a_lost_connection() -> None:
    with serving({}) as server:
        port = server.port
    with slow_proxy(port, Network()) as proxy, pytest.raises((http.client.HTTPException, ConnectionError)):
        get(proxy)
