"""A real server on loopback that speaks HTTP with ranges and enough of S3, and that can misbehave.

Objects are held by path: `/bucket/key` is `s3://bucket/key` and also `http://host:port/bucket/key`.
"""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Barrier, Condition, Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from flights import PATIENCE_SECONDS

_PAGE = 3  # objects in an answer to a listing: more than one page is soon needed


@dataclass
class Loopback:
    """What is served, what goes wrong next, and what was asked."""

    objects: dict[str, bytes]
    port: int = 0
    statuses: list[int] = field(default_factory=list)  # answered first, one a request
    cuts: list[int] = field(default_factory=list)  # then bodies end after so many bytes, one a request
    without_ranges: bool = False
    without_marks: bool = False  # neither a tag nor a time
    shortened: int = 0  # bytes that are missing in answers to ranges
    silent_seconds: float = 0.0  # before every answer
    refuses_conditions: bool = False  # whatever the tag is
    meeting: Barrier | None = None  # requests of a kind are answered when so many are in flight together
    meets: str = "GET"
    most_bytes: int | None = None  # of bodies; when so many were sent, answers wait until this is None
    requests: list[str] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)  # statuses
    sent_bytes: int = 0  # of bodies
    lock: Condition = field(default_factory=Condition)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def next_of(self, faults: list[int]) -> int | None:
        """What the next request is to suffer, if anything; requests come at the same time."""
        with self.lock:
            return faults.pop(0) if faults else None

    def send(self, num_bytes: int) -> None:
        """Count the bytes of a body, as soon as they may be sent."""
        with self.lock:
            self.lock.wait_for(lambda: self.most_bytes is None or self.sent_bytes < self.most_bytes)
            self.sent_bytes += num_bytes

    def go_on(self) -> None:
        """Send answers without a bound again."""
        with self.lock:
            self.most_bytes = None
            self.lock.notify_all()

    def environment(self) -> dict[str, str]:
        """What makes `s3://` mean this server."""
        credentials = {"AWS_ACCESS_KEY_ID": "loopback", "AWS_SECRET_ACCESS_KEY": "loopback", "AWS_REGION": "loopback"}
        return {
            **credentials,
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_SKIP_SIGNATURE": "true",
        }


@contextmanager
def serving(objects: dict[str, bytes], port: int = 0) -> Iterator[Loopback]:
    """A server of these objects, on a free port unless one is given."""
    loopback = Loopback(objects)

    class Handler(_Handler):
        served = loopback

    with LoopbackServer(("127.0.0.1", port), Handler) as server:
        loopback.port = server.server_port
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield loopback
        finally:
            loopback.go_on()
            server.shutdown()
            thread.join()


class LoopbackServer(ThreadingHTTPServer):
    """A thread for each connection. Clients may go away at any moment, and many may come at once."""

    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # else it would be printed among the output of a test
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # an answer in one packet, or each would wait for the last to be acknowledged
    served: Loopback

    def do_GET(self) -> None:
        served, address = self.served, urlsplit(self.path)
        path, query = unquote(address.path), parse_qs(address.query)
        served.requests.append(f"{self.command} {self.path} {self.headers.get('Range', '')}".strip())
        if served.meeting is not None and self.command == served.meets:
            served.meeting.wait(PATIENCE_SECONDS)
        if served.silent_seconds:
            time.sleep(served.silent_seconds)
        if (status := served.next_of(served.statuses)) not in (None, 200):
            self._answer(status, b"<Error><Code>Broken</Code>\n<Token-0>a-secret</Token-0></Error>")
        elif "list-type" in query:
            self._answer(200, self._listing(path, query), {"Content-Type": "application/xml"})
        elif path not in served.objects:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self._object(served.objects[path])

    do_HEAD = do_GET  # noqa: N815 - as http.server names it

    def do_PUT(self) -> None:
        """Create an object where there is none."""
        served, path = self.served, unquote(urlsplit(self.path).path)
        served.requests.append(f"PUT {self.path}")
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if path in served.objects:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        served.objects[path] = data
        self._answer(200, b"", {"ETag": '"created"'})

    def _object(self, data: bytes) -> None:
        about = {
            "ETag": f'"{hashlib.sha256(data).hexdigest()[:16]}"',
            "Last-Modified": "Sun, 01 Nov 2026 12:00:00 GMT",
        }
        condition = self.headers.get("If-Match")
        if condition is not None and (self.served.refuses_conditions or condition != about["ETag"]):
            self._answer(412, b"")
            return
        if self.served.without_marks:
            about = {}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None or self.served.without_ranges:
            self._answer(200, data, about)
            return
        first, end = int(wanted[1]), min(int(wanted[2] or len(data)) + 1, len(data))
        if first >= len(data):
            self._answer(416, b"")
            return
        self._answer(
            206,
            data[first : end - self.served.shortened],
            {**about, "Content-Range": f"bytes {first}-{end - 1}/{len(data)}"},
        )

    def _listing(self, path: str, query: dict[str, list[str]]) -> bytes:
        start, after = f"{path.rstrip('/')}/", query.get("continuation-token", [""])[0]
        prefix = query.get("prefix", [""])[0]
        keys = sorted(name[len(start) :] for name in self.served.objects if name.startswith(start + prefix))
        left = [key for key in keys if key > after]
        page = left[:_PAGE]
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-01T12:00:00.000Z</LastModified>"
            f"<Size>{len(self.served.objects[start + key])}</Size></Contents>"
            for key in page
        )
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(left) > _PAGE else ""
        cut = str(len(left) > _PAGE).lower()
        return f"<ListBucketResult><IsTruncated>{cut}</IsTruncated>{more}{rows}</ListBucketResult>".encode()

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.served.answered.append(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.served.send(len(body))
        can_be_cut = 200 <= status < 300 or (status == 412 and body)
        cut = self.served.next_of(self.served.cuts) if can_be_cut else None
        self.wfile.write(body[:cut])
        if cut is not None:
            self.close_connection = True

    def log_message(self, *words: object) -> None:
        """Say nothing: the tests read `requests`."""
