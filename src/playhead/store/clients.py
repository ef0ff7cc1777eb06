"""Clients of object stores, one for each store and its options, shared by the whole process.

Endpoints and credentials are those of the environment, as obstore documents them, and before these the options that
are given for a store (a bucket, a container, a server). An option `env:NAME` is the value of that variable when the
client is made: it is nowhere else, and in no message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from typing import Any

from playhead.errors import RecipeError, StoreError
from playhead.store.addresses import Address, is_link_local, without_query

StoreOptions = Mapping[str, str | bool | float]
Stores = Mapping[str, StoreOptions]  # by the URL of the store, as in s3://bucket

MOST_RETRIES = 24  # with the waits below, at least half a minute in 99 of 100 cases: a server may be started again
RETRY_SECONDS = 90
REQUEST_SECONDS = 30  # also the default time-out of obstore for buckets
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 10.0
NO_STORES: Stores = {}
AIS_OPTIONS = {  # with the variables that are looked at where they are not given
    "endpoint_url": "AIS_ENDPOINT",
    "connect_timeout": "AIS_CONNECT_TIMEOUT",
    "read_timeout": "AIS_READ_TIMEOUT",
    "authn_token": "AIS_AUTHN_TOKEN",
    "client_ca": "AIS_CLIENT_CA",
}
AIS_ENDPOINT = "AIS_ENDPOINT, or `store: {endpoint_url: ...}` of the source"  # in messages
_FROM_ENVIRONMENT = "env:"
_READ_BY_OBSTORE = {"s3": b"AWS_", "gs": b"GOOGLE_", "az": b"AZURE_", "abfs": b"AZURE_", "abfss": b"AZURE_"}
_ENDPOINTS = re.compile(
    r"(aws_)?endpoint(_url(_s3)?)?|(azure_(storage_)?)?endpoint|(google_)?base_url", re.IGNORECASE
)  # of the store; those of metadata services have other names
_SECONDS = ("timeout", "connect_timeout", "read_timeout", "pool_idle_timeout")
_OF_CONNECTIONS = frozenset(
    (
        *_SECONDS,
        "allow_http",
        "allow_invalid_certificates",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "root_certificate",
        "user_agent",
    )
)
_started: list[int] = []  # the process in which obstore's threads run


def client_of(address: Address, stores: Stores = NO_STORES) -> Any:
    """The client of a store. Refused in a fork of a process that already used one: it would hang."""
    if not _started:
        _started.append(os.getpid())
    if _started[0] != os.getpid():
        raise StoreError(
            f"{address.store}: cannot be read in a fork of a process that reads object stores",
            fix='start worker processes with "spawn" or "forkserver" (`multiprocessing_context` of playhead.torch)',
        )
    settings = _settings(address.scheme)
    options = looked_up(address.store, stores.get(address.store, {}))
    check_endpoints(address.store, {**settings, **options})
    return _client(address.store, tuple(settings.items()), tuple(sorted(options.items())))


def stores_were_read() -> bool:
    """Whether forks of this process cannot read object stores."""
    return bool(_started)


def _settings(scheme: str) -> dict[str, str]:
    """What obstore reads from the environment for stores of a kind. It is looked at for every request."""
    prefix = _READ_BY_OBSTORE.get(scheme)
    if prefix is None:
        return {}
    names = [os.fsdecode(name) for name in os.environb if name.startswith(prefix)]  # decoding all of them takes long
    return {name: os.environ[name] for name in sorted(names)}


def looked_up(store: str, options: StoreOptions) -> dict[str, str]:
    """Options as texts, with those of the environment in place of their names."""
    found = {}
    for name, value in options.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if text.startswith(_FROM_ENVIRONMENT):
            variable = text[len(_FROM_ENVIRONMENT) :]
            if not os.environ.get(variable):
                raise StoreError(
                    f"{store}: its option {name} cannot be looked up",
                    found=f"the environment variable {variable} is not set",
                    fix=f"set it (export {variable}=...) wherever this recipe is used",
                )
            text = os.environ[variable]
        found[name] = text
    return found


def check_endpoints(store: str, settings: Mapping[str, str]) -> None:
    """Refuse an endpoint that is no web address, on which obstore would abort, or that is link-local."""
    for name, value in settings.items():
        if not value or _ENDPOINTS.fullmatch(name) is None:
            continue
        if not value.lower().startswith(("http://", "https://")) or is_link_local(value):
            raise StoreError(
                f"{store}: its endpoint cannot be used",
                found=f"{name} {without_query(value)}",
                expected="an address with http:// or https:// that is not link-local, as in http://127.0.0.1:9000",
                fix=f"correct {name}, in `store` of the source or in the environment",
            )


def check_options(store: str, options: StoreOptions, place: str) -> None:
    """Refuse an option that the clients of this kind of store do not have. Nothing is looked up or asked."""
    if store.startswith("ais:"):
        for name in options:
            if name not in AIS_OPTIONS:
                raise _unknown(store, name, place, f"one of {', '.join(AIS_OPTIONS)}")
        return
    from obstore.exceptions import BaseError, UnknownConfigurationKeyError

    for name in options:
        if name in _OF_CONNECTIONS:
            continue
        try:
            _made(store, {name: "true"})
        except UnknownConfigurationKeyError:
            raise _unknown(store, name, place) from None
        except (BaseError, ValueError):  # a value of another form; for a web server, no option but those above
            if store.startswith("http"):
                raise _unknown(store, name, place) from None


def _unknown(store: str, name: str, place: str, known: str = "") -> RecipeError:
    known = known or f"one of {', '.join(sorted(_OF_CONNECTIONS))}"
    if not store.startswith(("http", "ais:")):
        known = "an option of obstore for this kind of store, such as endpoint_url, access_key_id or region for s3://"
    return RecipeError(f"{place}.{name}: {store} has no such option", found=name, expected=known)


@lru_cache(maxsize=64)
def _client(store: str, environment: tuple[tuple[str, str], ...], options: tuple[tuple[str, str], ...]) -> Any:  # noqa: ARG001 - obstore reads the environment itself
    """A client for the current environment; a changed environment gets another client."""
    from obstore.exceptions import BaseError

    try:
        return _made(store, dict(options))
    except (BaseError, ValueError):
        if not options:
            raise
    raise StoreError(  # without the values, which may be secrets
        f"{store}: its options cannot be used",
        found=f"a value of {_culprit(store, dict(options))} that is not allowed",
        expected="values as obstore documents them for these options",
        fix="correct `store` of the source in the recipe, or the variable that it names",
    )


def _culprit(store: str, options: Mapping[str, str]) -> str:
    """The option without which the others can be used; all of them if there is no such option."""
    from obstore.exceptions import BaseError

    for name in options:
        with suppress(BaseError, ValueError):
            _made(store, {other: options[other] for other in options if other != name})
            return name
    return ", ".join(options)


def _made(store: str, options: Mapping[str, str]) -> Any:
    from obstore.store import from_url

    backoff = {
        "init_backoff": timedelta(seconds=FIRST_WAIT_SECONDS),
        "max_backoff": timedelta(seconds=LONGEST_WAIT_SECONDS),
        "base": 4,  # waits are drawn from the first to this many times the last: with 3 they hardly grow
    }
    retries = {"max_retries": MOST_RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS), "backoff": backoff}
    connections: dict[str, Any] = {name: _seconds(name, options[name]) for name in options if name in _OF_CONNECTIONS}
    if store.startswith("http"):
        usual = {"allow_http": store.startswith("http:"), "timeout": timedelta(seconds=REQUEST_SECONDS)}
        connections = usual | connections
    config = {name: value for name, value in options.items() if name not in _OF_CONNECTIONS} or None
    return from_url(store, config=config, retry_config=retries, client_options=connections or None)  # type: ignore[call-overload]


def _seconds(name: str, value: str) -> str | timedelta:
    """A time-out may be a bare number of seconds; obstore itself takes texts such as 30s."""
    try:
        return timedelta(seconds=float(value)) if name in _SECONDS else value
    except ValueError:
        return value
