"""URLs of objects, parsed into a store and a key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from socket import inet_aton
from urllib.parse import unquote, urlsplit

from playhead.errors import DataError

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://([^/]*)/?(.*)\Z", re.IGNORECASE | re.DOTALL)
_HTTP = ("http", "https")
_BUCKETS = ("s3", "gs", "az", "abfs", "abfss", "ais")
SCHEMES = (*_BUCKETS, *_HTTP)
_QUERY = re.compile(r"(https?://[^\s?#\"'()<>]*)[?#][^\s\"'()<>]*", re.IGNORECASE)
_METADATA_HOSTS = {"metadata", "metadata.google.internal", "metadata.azure.internal", "instance-data"}
_METADATA_ADDRESSES = {"fd00:ec2::254", "100.100.100.200"}


@dataclass(frozen=True)
class Address:
    """An object: the URL of its store (a bucket, a container or a web server) and its key there."""

    store: str
    key: str

    @property
    def scheme(self) -> str:
        return self.store.partition("://")[0]

    @property
    def can_list(self) -> bool:
        return self.scheme not in _HTTP


def is_url(path: str) -> bool:
    return "://" in path and _URL.match(path) is not None  # most paths are local


def is_store_url(path: str) -> bool:
    """Whether a path is in an object store or on a web server."""
    match = _URL.match(path)
    return match is not None and match[1].lower() in SCHEMES and bool(match[2])


def without_queries(text: str) -> str:
    """A text in which web addresses are shown without their queries: they may hold signatures."""
    return _QUERY.sub(r"\1", text)


@lru_cache(maxsize=1 << 12)
def address_of(url: str) -> Address:
    """Keys of buckets are not encoded in a URL; the path of a web address is percent-encoded, as usual."""
    match = _URL.match(url)
    assert match is not None, url
    scheme, store, key = match[1].lower(), match[2], match[3]
    shown = url if scheme in _BUCKETS else url.partition("?")[0]  # in a key ? is a character or a wildcard
    if scheme == "msc":
        raise DataError(
            f"{shown}: is a Multi-Storage Client address",
            found="a profile of its configuration, which only it can read",
            expected="the bucket's own address, as in s3://bucket/key",
            fix="name the bucket itself here and wherever else the same data is named",
        )
    if scheme not in SCHEMES:
        raise DataError(
            f"{shown}: no store for {scheme}://",
            expected=", ".join(f"{known}://" for known in SCHEMES) + ", or a local path",
            fix="give the address of the bucket itself, or mount it and give a path",
        )
    if not store:
        raise DataError(f"{shown}: names no bucket, container or server", expected=f"{scheme}://<name>/<key>")
    if scheme in _HTTP:
        if "@" in store:
            raise DataError(
                f"{without_query(url)}: a web address with a user name or password",
                expected="an address without them: addresses are in messages and in indexes",
                fix="use the store's own scheme (s3://, gs://, az://), whose credentials are given apart",
            )
        if is_link_local(url):
            raise DataError(
                f"{shown}: a link-local address",
                expected="a server of data: cloud metadata services, which hold credentials, have such addresses",
                fix="correct the address",
            )
        if "?" in url or "#" in url:
            raise DataError(
                f"{shown}: a web address with a query",
                expected="one without ?, such as https://host/data/part-0.jsonl",
                fix="use the store's own scheme (s3://, gs://, az://) and credentials instead of a signed address",
            )
        key = unquote(urlsplit(url).path[1:])
    return Address(f"{scheme}://{store}", key)


def without_query(path: str) -> str:
    """A path or URL for messages: without possible secrets, which are its query and its user name."""
    match = _URL.match(path)
    if match is None:
        return path
    key = re.split(r"[?#]", match[3], maxsplit=1)[0]
    return f"{match[1]}://{match[2].rpartition('@')[2]}/{key}"


def is_link_local(url: str) -> bool:
    """Whether a web address is link-local, where cloud metadata services provide credentials."""
    if not url.lower().startswith(("http://", "https://")):
        return False
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return True
    if host in _METADATA_HOSTS:
        return True
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return _is_link_local_number(host)
    mapped = getattr(found, "ipv4_mapped", None) or found
    return bool(mapped.is_link_local) or str(mapped) in _METADATA_ADDRESSES


def _is_link_local_number(host: str) -> bool:
    """Other spellings of an IPv4 address that resolvers accept: 0xa9fea9fe, 2852039166, 0251.0376.1."""
    try:
        return inet_aton(host)[:2] == b"\xa9\xfe"
    except (OSError, ValueError):
        return False
