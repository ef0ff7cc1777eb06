"""Which media the rows of a source may name, and how large they may be. Rows are input: their paths are checked."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from playhead.errors import SampleError
from playhead.formats.media import Media
from playhead.recipe.values import LENGTH_TOLERANCE_SECONDS, MediaOptions
from playhead.store import is_url
from playhead.store.addresses import SCHEMES, is_link_local, without_query
from playhead.store.globbing import fixed_part
from playhead.store.memory import SCHEME

_WEB = ("http://", "https://")
_STORES = re.compile(rf"(?:{'|'.join(SCHEMES)}|memory)://[^/]*", re.IGNORECASE)
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")
_UNSAFE_ON_THE_WEB = re.compile(r"[\x00-\x20\x7f\\]")
_READ_WITH_EMPTY_PARTS = re.compile(r"(?:ais|memory)://", re.IGNORECASE)  # the client of the others, obstore, does not
_NO_NAME = re.compile(r"[\x00\ud800-\udfff]")  # neither a file nor an object has these in its name


@dataclass(frozen=True)
class MediaRules:
    """`roots` are the source's own directories, or buckets; `allow` are further prefixes that rows may name.

    A recording may be shorter than in its row by `length_tolerance` seconds.
    """

    roots: tuple[str, ...]
    allow: tuple[str, ...] = ()
    max_seconds: float = MediaOptions().max_seconds
    max_bytes: int = MediaOptions().max_bytes
    max_pixels: int = MediaOptions().max_pixels
    length_tolerance: float = LENGTH_TOLERANCE_SECONDS
    allowed_by: str = "`media: {allow: [...]}` of the recipe"

    def resolve(self, media: Media) -> str:
        """The path or URL that a medium is fetched from.

        Laws: a URL is under a root or an allowed prefix; a local path is named by a local manifest, or is under an
        allowed prefix; `..` leaves neither. Anything else is a SampleError.
        """
        path = media.path
        if not isinstance(path, str) or not path:
            raise SampleError("a medium has neither bytes nor a path", found=f"path: {path!r}")
        if forbidden := _NO_NAME.search(path):
            raise SampleError(
                f"{path!r}: is the name of a medium, but no file can have it",
                found=f"the character {forbidden[0]!r} in it",
                fix="correct the name in the row, or leave the row out",
            )
        if not is_url(path) and not path.startswith("/"):
            path = _join(media.base, path)
        if not is_url(path):
            return self._local(media, path)
        path = _without_dots(path)
        self._check_url(path)
        return path

    def _local(self, media: Media, path: str) -> str:
        named_by = self.roots if media.base is None else (media.base,)
        if not any(is_url(place) for place in named_by):
            return path
        path = os.path.normpath(path)
        if not any(_is_under(path, prefix) for prefix in self.allow if not is_url(prefix)):
            raise SampleError(
                f"{path}: rows of a remote file may not name local paths",
                found=f"it is named in {without_query(named_by[0])}",
                fix=f"name it by a URL, or add its directory to {self.allowed_by}",
            )
        return path

    def _check_url(self, url: str) -> None:
        shown = without_query(url)
        store = _STORES.match(url)
        on_the_web = url.lower().startswith(_WEB)
        unsafe = (_UNSAFE_ON_THE_WEB if on_the_web else _UNSAFE).search(url)
        if store is None or unsafe or re.search(r"[@\s\\]", store[0]):
            raise SampleError(
                f"{shown}: is not an address that rows may name",
                expected=", ".join(f"{scheme}://" for scheme in SCHEMES) + "; without a user or control characters, "
                "on the web without spaces (%20) or backslashes too",
            )
        if "//" in url[store.end() :] and not _READ_WITH_EMPTY_PARTS.match(url):
            raise SampleError(
                f"{shown}: has an empty part in its name, which cannot be read from this store",
                found="// after the bucket or server",
                fix="correct the name in the row, or rename the object",
            )
        if on_the_web and re.search(r"[?#]", url):
            raise SampleError(
                f"{shown}: a web address with a query",
                fix="use the store's own scheme (s3://, gs://, az://) and credentials instead of a signed address",
            )
        if is_link_local(url):
            raise SampleError(f"{shown}: is a link-local address, which is never read")
        allowed = [prefix for prefix in (*self.roots, *self.allow) if is_url(prefix)]
        if not any(_is_under(url, prefix) for prefix in allowed):
            raise SampleError(
                f"{shown}: is outside the locations that rows of this source may name",
                found=f"{store[0]}/",
                expected="one of: " + ", ".join(map(without_query, allowed)) if allowed else "local paths",
                fix=f"if you trust it, add {store[0]}/ to {self.allowed_by}",
            )


def media_rules(
    paths: Iterable[str], options: MediaOptions | bool = True, length_tolerance: float = LENGTH_TOLERANCE_SECONDS
) -> MediaRules:
    """The rules of a source whose files are at `paths` (patterns too)."""
    given = options if isinstance(options, MediaOptions) else MediaOptions()
    roots = dict.fromkeys(map(_root, paths))
    limits = (given.max_seconds, given.max_bytes, given.max_pixels)
    return MediaRules(tuple(roots), tuple(given.allow), *limits, length_tolerance)


def too_large(path: str, found: str, expected: str, limit: str) -> SampleError:
    """The error for a medium beyond one of the limits."""
    fix = f"leave the row out, or raise the limit in the recipe: `media: {{{limit}: ...}}`"
    return SampleError(f"{path}: is too large for one sample", found=found, expected=expected, fix=fix)


def _root(path: str) -> str:
    """The directory of a local or a web path, the bucket of an object; memory as a whole."""
    store = _STORES.match(path)
    if store is not None and not path.lower().startswith(_WEB):
        return SCHEME if path.startswith(SCHEME) else f"{store[0]}/"
    return fixed_part(path) or "/"


def _join(base: str | None, path: str) -> str:
    if base is None:
        raise SampleError(f"{path}: a relative path without a base directory", fix="use an absolute path")
    return f"{base.rstrip('/')}/{path}" if is_url(base) else os.path.normpath(f"{base}/{path}")


def _without_dots(url: str) -> str:
    """The URL with `.` and `..` resolved inside its store; one that leaves it, or hides them, is refused."""
    scheme, _, rest = url.partition("://")
    store, slash, key = rest.partition("/")
    found = key if {".", ".."}.isdisjoint(key.split("/")) else posixpath.normpath(key)
    decoded = unquote(found) if url.lower().startswith(_WEB) else found
    if ".." in decoded.split("/"):
        raise SampleError(f"{without_query(url)}: leaves its directory or bucket", found="`..` in its path")
    return f"{scheme}://{store}{slash}{found}"


def _is_under(path: str, prefix: str) -> bool:
    """Whether the prefix matches whole parts of the path; the names of stores are compared without case."""
    path, prefix = _plain(path), _plain(prefix)
    return path == prefix or path.startswith(prefix if prefix.endswith("/") else f"{prefix}/")


def _plain(path: str) -> str:
    store = _STORES.match(path)
    return path if store is None else store[0].lower() + path[store.end() :]
