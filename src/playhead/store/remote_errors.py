"""Errors of object stores as messages: the request, the response, and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from playhead.errors import DataError, StoreError
from playhead.store.addresses import Address, without_queries

_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SKIP_SIGNATURE=true for a public bucket)",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT (GOOGLE_SKIP_SIGNATURE=true for a public bucket)",
    "az": "AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_CLIENT_ID",
}
_ENDPOINTS = {
    "s3": "AWS_ENDPOINT_URL (with AWS_ALLOW_HTTP=true, or `allow_http: true` in `store`, for an http:// one) "
    "and AWS_REGION",
    "gs": "GOOGLE_BASE_URL",
    "az": "AZURE_STORAGE_ENDPOINT (with AZURE_ALLOW_HTTP=true, or `allow_http: true` in `store`, for an http:// one) "
    "and AZURE_STORAGE_ACCOUNT_NAME",
}
_OR_OPTIONS = {"read": "or", "write": "or, for sidecars,"}  # `playhead curate` has no recipe
_NO_CREDENTIALS = ("/latest/api/token", "/latest/meta-data", "metadata/identity", "metadata.google", "Account must be")
_REFUSED = ("401 Unauthorized", "403 Forbidden")  # a refused listing has no specific exception
_NO_CONNECTION = ("error sending request", "builder error", "timed out")
_HALF_AN_ANSWER = "response body error"
_EMPTY_PART = "contained empty path segment"
_BODY = re.compile(r"(status code: \d{3} [^:<\n]*):.*", re.DOTALL)
_CODE = re.compile(r"<Code>(\w+)</Code>")


class NoAnswerError(StoreError):
    """An answer was lost on the way: whether what was asked for was done is not known."""


@contextmanager
def asking(
    url: str,
    address: Address,
    expected: type[Exception] | tuple[type[Exception], ...] = (),
    doing: Literal["read", "write"] = "read",
) -> Iterator[None]:
    """Law: whatever the store or the network does, the result is an error that names the URL.

    The client's own error is left out: its addresses contain queries. The caller handles what is `expected`.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except expected:
        raise
    except (BaseError, OSError, ValueError) as error:
        raise explained(url, address, error, doing) from None


def explained(
    url: str, address: Address, error: Exception, doing: Literal["read", "write"] = "read"
) -> DataError | StoreError:
    from obstore.exceptions import NotSupportedError, PermissionDeniedError, UnauthenticatedError

    answer = without_queries(_without_body(str(error)).partition("\n")[0])
    kind = "az" if address.scheme.startswith("ab") else address.scheme
    if "405 Method Not Allowed" in answer:  # which obstore takes for a missing object
        return StoreError(
            f"{url}: its server refuses HEAD requests",
            found="status 405",
            expected="a server that tells the size of a file by HEAD, and answers Range requests",
            fix="copy the file to a bucket or a disk",
        )
    if _EMPTY_PART in answer:
        return DataError(
            f"{url}: has an empty part in its name, which cannot be read from this store",
            found="// after the bucket or server",
            fix="correct the address, or rename the object",
        )
    if isinstance(error, FileNotFoundError) or "404 Not Found" in answer:
        if doing == "write":
            return DataError(f"{url}: there is no {address.store}", fix="correct the address, or create the bucket")
        fix = "correct the address, or restore the object"
        perhaps = f"; perhaps there is no {address.store}" if address.can_list else ""
        return DataError(f"{url}: no such object", fix=fix + perhaps)
    no_credentials = any(sign in answer for sign in _NO_CREDENTIALS)
    refused = isinstance(error, (PermissionDeniedError, UnauthenticatedError))
    if no_credentials or refused or any(sign in answer for sign in _REFUSED):
        return StoreError(
            f"{url}: no credentials" if no_credentials else f"{url}: access denied",
            found=answer,
            expected=f"credentials in {_CREDENTIALS[kind]}" if kind in _CREDENTIALS else "a public address",
            fix=f"set these variables, {_OR_OPTIONS[doing]} `store` of the source; or ask the owner for the right to "
            f"{doing} it"
            if kind in _CREDENTIALS
            else "use the store's own scheme (s3://, gs://, az://) and credentials, or copy the file to a disk",
        )
    if isinstance(error, NotSupportedError):
        return StoreError(
            f"{url}: its server does not support byte ranges",
            found=answer,
            expected="a server that answers Range requests",
            fix="copy the file to a bucket or a disk",
        )
    if any(sign in answer for sign in _NO_CONNECTION):
        settings = (
            f"; the endpoint is set by {_ENDPOINTS[kind]}, {_OR_OPTIONS[doing]} by `store` of the source"
            if kind in _ENDPOINTS
            else ""
        )
        return NoAnswerError(
            f"{url}: its store cannot be reached", found=answer, fix=f"check the address and the network{settings}"
        )
    done = "read" if doing == "read" else "written"
    kind_of_error = NoAnswerError if _HALF_AN_ANSWER in answer else StoreError
    return kind_of_error(
        f"{url}: cannot be {done}", found=answer, fix="try again; if it persists, ask the store's operator"
    )


def _without_body(text: str) -> str:
    """An error of a client with the code in place of the server's words, which may repeat keys and tokens."""
    code = _CODE.search(text)
    return _BODY.sub(rf"\1 ({code[1]})" if code else r"\1", text)
