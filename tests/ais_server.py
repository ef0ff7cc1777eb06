"""A small AIStore on loopback: a gateway that redirects, and a node that has the objects and can misbehave."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from loopback import LoopbackServer

_PAGE = 3


@dataclass
class Ais:
    """Objects by `bucket/name`, what goes wrong next, and what was asked of the gateway and of the node."""

    objects: dict[str, bytes]
    gateway_port: int = 0
    node_port: int = 0
    token: str | None = None
    location: str | None = None  # where the gateway redirects to, in place of its node
    node_redirects: bool = False
    as_json: bool = False
    statuses: list[int] = field(default_factory=list)  # answered first by the node, one a request
    cuts: list[int] = field(default_factory=list)  # then bodies end after so many bytes
    without_ranges: bool = False
    shift: int = 0  # of the bytes in answers to ranges
    repeats_pages: bool = False
    asked: list[str] = field(default_factory=list)
    served: list[str] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.gateway_port}"

    def environment(self) -> dict[str, str]:
        """What makes `ais://` mean this cluster."""
        return {"AIS_ENDPOINT": self.endpoint} | ({"AIS_AUTHN_TOKEN": self.token} if self.token else {})


@contextmanager
def ais_cluster(objects: dict[str, bytes]) -> Iterator[Ais]:
    cluster = Ais(objects)

    class Gateway(_Gateway):
        ais = cluster

    class Node(_Node):
        ais = cluster

    with (
        LoopbackServer(("127.0.0.1", 0), Gateway) as gateway,
        LoopbackServer(("127.0.0.1", 0), Node) as node,
    ):
        cluster.gateway_port, cluster.node_port = gateway.server_port, node.server_port
        threads = [Thread(target=server.serve_forever, args=(0.01,)) for server in (gateway, node)]
        for thread in threads:
            thread.start()
        try:
            yield cluster
        finally:
            for server, thread in zip((gateway, node), threads, strict=True):
                server.shutdown()
                thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    ais: Ais

    def may(self) -> bool:
        expected = f"Bearer {self.ais.token}"
        if self.ais.token is None or self.headers.get("Authorization") == expected:
            return True
        self.answer(401, b"token required")
        return False

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.ais.cuts and 200 <= status < 300:
            self.wfile.write(body[: self.ais.cuts.pop(0)])
            self.close_connection = True
            return
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Say nothing: the tests read `asked` and `served`."""


class _Gateway(_Handler):
    def do_GET(self) -> None:
        address = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.ais.asked.append(f"{self.command} {unquote(address.path)}")
        if parse_qs(address.query) != {"provider": ["ais"]}:
            self.answer(400, b"no provider")
        elif not self.may():
            return
        elif address.path.startswith("/v1/objects/"):
            node = self.ais.location or f"http://127.0.0.1:{self.ais.node_port}"
            self.answer(307, b"", {"Location": f"{node}{self.path}&pid=gateway&utm=1"})
        else:
            self._list(unquote(address.path.removeprefix("/v1/buckets/")), json.loads(body))

    do_HEAD = do_GET  # noqa: N815 - as http.server names it

    def _list(self, bucket: str, asked: dict[str, object]) -> None:
        value = asked["value"]
        assert asked["action"] == "list"
        assert isinstance(value, dict)
        start, after = f"{bucket}/", "" if self.ais.repeats_pages else value["continuation_token"]
        names = sorted(name[len(start) :] for name in self.ais.objects if name.startswith(start + value["prefix"]))
        left = [name for name in names if name > after]
        page, token = left[:_PAGE], left[_PAGE - 1] if len(left) > _PAGE else ""
        if self.ais.as_json:
            found = {"uuid": "u", "continuation_token": token, "flags": 0, "entries": [{"name": name} for name in page]}
            self.answer(200, json.dumps(found).encode(), {"Content-Type": "application/json"})
            return
        entries = [{"n": name, "s": len(self.ais.objects[start + name])} for name in page] or None
        binary = msgspec.msgpack.encode({"UUID": "u", "ContinuationToken": token, "Flags": 0, "Entries": entries})
        self.answer(200, binary, {"Content-Type": "application/msgpack"})


class _Node(_Handler):
    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.ais.served.append(f"{self.command} {path} {self.headers.get('Range', '')}".strip())
        if self.ais.statuses and (status := self.ais.statuses.pop(0)) != 200:
            self.answer(status, b"broken")
        elif self.ais.node_redirects:
            self.answer(307, b"", {"Location": "http://127.0.0.1:9/elsewhere"})
        elif not self.may():
            return
        elif (data := self.ais.objects.get(path.removeprefix("/v1/objects/"))) is None:
            self.answer(404, b"does not exist")
        else:
            self._object(data)

    do_HEAD = do_GET  # noqa: N815 - as http.server names it

    def _object(self, data: bytes) -> None:
        about = {"ais-checksum-type": "xxhash2", "ais-checksum-value": hashlib.sha256(data).hexdigest()[:16]}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None or self.ais.without_ranges:
            self.answer(200, data, about)
            return
        first, end = int(wanted[1]), min(int(wanted[2]) + 1, len(data))
        if first >= len(data):
            self.answer(416, b"")
            return
        first, end = first + self.ais.shift, end + self.ais.shift
        self.answer(206, data[first:end], {"Content-Range": f"bytes {first}-{end - 1}/{len(data)}"})
