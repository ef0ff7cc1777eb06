"""Requests to a gateway of AIStore and the node it redirects to, sent again where they fail, through urllib3."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Self
from urllib.parse import urljoin, urlsplit

from playhead.errors import StoreError
from playhead.store.addresses import Address, is_link_local, without_query
from playhead.store.clients import (
    AIS_ENDPOINT,
    AIS_OPTIONS,
    FIRST_WAIT_SECONDS,
    LONGEST_WAIT_SECONDS,
    MOST_RETRIES,
    RETRY_SECONDS,
    Stores,
    check_endpoints,
    looked_up,
)

_CONNECT_SECONDS = "3"
_READ_SECONDS = "30"
_MOST_CONNECTIONS = 32  # kept open to one node
_AGAIN = {408, 429, 500, 502, 503, 504}
_REDIRECTS = {301, 302, 307, 308}


class Gateway(NamedTuple):
    """Where a cluster is asked, and how."""

    endpoint_url: str
    connect_timeout: float
    read_timeout: float
    authn_token: str
    client_ca: str


@dataclass(frozen=True)
class Answer:
    """What the cluster answered, after redirects and retries."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def expect(self, path: str, *statuses: int) -> Self:
        """The answer itself, if it has one of these statuses; otherwise it is a StoreError."""
        if self.status in statuses:
            return self
        if self.status in {401, 403}:
            raise StoreError(
                f"{path}: access denied",
                found=f"status {self.status}",
                expected="a token in AIS_AUTHN_TOKEN, or in `store: {authn_token: ...}` of the source",
                fix="set or correct it (that of the source comes first), or ask the owner for the right to read it",
            )
        raise StoreError(
            f"{path}: cannot be read",
            found=f"status {self.status}: {self.body[:200].decode(errors='replace')}".rstrip(": "),
            fix="try again; if it persists, ask the store's operator",
        )


def gateway_of(address: Address, stores: Stores) -> Gateway:
    """From the options of a bucket, and from the environment for those that are not given."""
    given = looked_up(address.store, stores.get(address.store, {}))
    found = {name: given.get(name) or os.environ.get(variable, "") for name, variable in AIS_OPTIONS.items()}
    endpoint = urlsplit(found["endpoint_url"])
    if endpoint.scheme not in {"http", "https"} or not endpoint.netloc:
        raise StoreError(
            f"{address.store}: no gateway of AIStore is known",
            found=f"AIS_ENDPOINT={without_query(found['endpoint_url'])}"
            if found["endpoint_url"]
            else "no AIS_ENDPOINT",
            expected="the address of a gateway, as in AIS_ENDPOINT=http://ais.example:51080",
            fix="set this environment variable, or `store: {endpoint_url: ...}` of the source",
        )
    check_endpoints(address.store, {"endpoint_url": found["endpoint_url"]})
    return Gateway(
        found["endpoint_url"],
        _seconds(address, "connect_timeout", found["connect_timeout"] or _CONNECT_SECONDS),
        _seconds(address, "read_timeout", found["read_timeout"] or _READ_SECONDS),
        found["authn_token"],
        found["client_ca"],
    )


def _seconds(address: Address, name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise StoreError(
            f"{address.store}: {AIS_OPTIONS[name]} is not a number of seconds",
            found=text,
            expected="a number, such as 30",
        ) from None


def ask(
    path: str, gateway: Gateway, method: str, where: str, headers: Mapping[str, str], body: bytes | None = None
) -> Answer:
    """An answer of the node that the gateway names. Failures on the way are tried again, from the gateway on."""
    import_urllib3()
    from urllib3.exceptions import HTTPError

    url = f"{gateway.endpoint_url.rstrip('/')}{where}?provider=ais"
    token = {"Authorization": f"Bearer {gateway.authn_token}"} if gateway.authn_token else {}
    end, wait = time.monotonic() + RETRY_SECONDS, FIRST_WAIT_SECONDS
    for attempt in range(MOST_RETRIES + 1):
        is_last = attempt == MOST_RETRIES or time.monotonic() > end
        try:
            answer = _redirected(path, gateway, method, url, {**headers, **token}, body)
            if is_last or answer.status not in _AGAIN:
                return Answer(answer.status, answer.headers, answer.data)
        except HTTPError as error:
            if is_last:
                raise StoreError(
                    f"{path}: its store cannot be reached",
                    found=f"{type(error).__name__} at {without_query(gateway.endpoint_url)}, or at one of its nodes",
                    fix=f"check {AIS_ENDPOINT}; the network, and that the nodes are reachable from here",
                ) from None  # the error's own text has addresses with queries
        time.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)
    raise AssertionError("the last attempt returns or raises")


def _redirected(
    path: str, gateway: Gateway, method: str, url: str, headers: Mapping[str, str], body: bytes | None
) -> Any:
    answer = _send(gateway, method, url, headers, body)
    if answer.status not in _REDIRECTS:
        return answer
    node = urljoin(url, answer.headers.get("Location", ""))
    if urlsplit(node).scheme not in {"http", "https"} or is_link_local(node) or _is_downgrade(url, node):
        raise StoreError(
            f"{path}: its gateway redirects to an address that is not followed",
            found=without_query(node),
            expected="a node of the cluster; not a link-local address, and https where the gateway has it",
            fix=f"check {AIS_ENDPOINT}; and the addresses that the nodes of the cluster announce",
        )
    answer = _send(gateway, method, node, headers, body)
    if answer.status in _REDIRECTS:
        raise StoreError(
            f"{path}: a node redirects again",
            found=without_query(urljoin(node, answer.headers.get("Location", ""))),
            expected="an answer: only the gateway redirects",
            fix=f"check {AIS_ENDPOINT}: it is the address of a gateway of the cluster itself",
        )
    return answer


def _is_downgrade(before: str, after: str) -> bool:
    return before.lower().startswith("https:") and not after.lower().startswith("https:")


def _send(gateway: Gateway, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Any:
    pool = _pool(os.getpid(), gateway)
    return pool.request(method, url, headers=headers, body=body, redirect=False, retries=False)


@lru_cache(maxsize=16)
def _pool(process: int, gateway: Gateway) -> Any:  # noqa: ARG001 - a fork has connections of its own
    import urllib3

    timeout = urllib3.Timeout(connect=gateway.connect_timeout, read=gateway.read_timeout)
    return urllib3.PoolManager(maxsize=_MOST_CONNECTIONS, timeout=timeout, ca_certs=gateway.client_ca or None)


def import_urllib3() -> None:
    try:
        import urllib3  # noqa: F401 - whether it is there
    except ImportError as error:
        raise StoreError(
            "ais:// needs the package urllib3", found="it is not installed", fix="pip install 'playhead[ais]'"
        ) from error
