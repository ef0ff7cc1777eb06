"""The options of the stores that a recipe names: endpoints and credentials, source by source or store by store."""

from __future__ import annotations

from collections.abc import Iterator

from playhead.errors import RecipeError
from playhead.recipe.by_format import path_options
from playhead.recipe.tree import leaves
from playhead.recipe.values import Recipe, Source
from playhead.store.addresses import address_of, is_store_url, without_query
from playhead.store.clients import StoreOptions, check_options


def stores_of(recipe: Recipe) -> dict[str, StoreOptions]:
    """By the URL of a store. Law: a store has the options that are given for it, wherever that is."""
    found: dict[str, tuple[str, StoreOptions]] = {}
    for place, stores, options in _given(recipe):
        for store in stores:
            other, theirs = found.setdefault(store, (place, options))
            if options != theirs:
                raise _different(store, place, options, other, theirs)
    return {store: options for store, (_, options) in found.items()}


def check_stores(recipe: Recipe) -> None:
    """Refuse options of a store that it does not have, that nothing uses, or that are given twice and apart."""
    for url in recipe.stores:
        if not is_store_url(url) or address_of(url).key:
            raise RecipeError(
                f"stores: {without_query(url)} is no store",
                expected="the URL of a bucket, a container or a server, as in s3://audio",
                fix="leave out what comes after it: options are those of a store as a whole",
            )
    for place, stores, options in _given(recipe):
        if not stores:
            raise RecipeError(
                f"{place}: the source names no store that it could be for",
                expected="a path such as s3://bucket/data/*.jsonl",
                fix="remove `store`, or give the address of the data in its store; options of a store that only rows "
                "name (media) are given in `stores` of the recipe, by its URL",
            )
        for store in stores:
            check_options(store, options, place)
    stores_of(recipe)


def _given(recipe: Recipe) -> Iterator[tuple[str, list[str], StoreOptions]]:
    """Where options are given, the stores that they are for, and the options."""
    for url, options in recipe.stores.items():
        yield f"stores.{url}", [address_of(url).store], options
    for leaf in leaves(recipe):
        if leaf.source.store:
            yield f"{leaf.path}.store", named_stores(leaf.source), leaf.source.store


def named_stores(source: Source) -> list[str]:
    """The URLs of the stores (bucket, container, server) in which a source has files."""
    urls = [path for path in _paths(source) if is_store_url(path)]
    return list(dict.fromkeys(address_of(url).store for url in urls))


def _paths(source: Source) -> Iterator[str]:
    yield from (*source.path, *source.drop_ids, *source.drop_rows)
    for name in path_options(source):
        yield from _texts(source.options[name])


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)


def _different(store: str, place: str, options: StoreOptions, other: str, theirs: StoreOptions) -> RecipeError:
    names = sorted(name for name in {*options, *theirs} if options.get(name) != theirs.get(name))
    return RecipeError(  # values may be secrets
        f"{place} and {other} are for one store, {store}, with different options",
        found=f"other values of {', '.join(names)}",
        expected="one endpoint and one set of credentials for a store in a recipe",
        fix="give the same options in both places, or in one of them only",
    )
