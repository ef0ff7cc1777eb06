"""The options of the stores that a recipe's sources name: endpoints and credentials, source by source."""

from __future__ import annotations

from collections.abc import Iterator

from playhead.errors import RecipeError
from playhead.recipe.by_format import path_options
from playhead.recipe.tree import Leaf, leaves
from playhead.recipe.values import Recipe, Source
from playhead.store.addresses import address_of, is_store_url
from playhead.store.clients import StoreOptions, check_options


def stores_of(recipe: Recipe) -> dict[str, StoreOptions]:
    """By the URL of a store. Law: a store has the options of every source that names it and gives some."""
    found: dict[str, tuple[StoreOptions, Leaf]] = {}
    for leaf in leaves(recipe):
        for store in named_stores(leaf.source) if leaf.source.store else ():
            options, other = found.setdefault(store, (leaf.source.store, leaf))
            if options != leaf.source.store:
                raise _different(leaf, other, store)
    return {store: options for store, (options, _) in found.items()}


def check_stores(recipe: Recipe) -> None:
    """Refuse options of a store that it does not have, that nothing uses, or that two sources give apart."""
    for leaf in leaves(recipe):
        if not leaf.source.store:
            continue
        place, stores = f"{leaf.path}.store", named_stores(leaf.source)
        if not stores:
            raise RecipeError(
                f'{place}: "{leaf.source.name}" names no store that it could be for',
                expected="a path such as s3://bucket/data/*.jsonl",
                fix="remove `store`, or give the address of the data in its store",
            )
        for store in stores:
            check_options(store, leaf.source.store, place)
    stores_of(recipe)


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


def _different(leaf: Leaf, other: Leaf, store: str) -> RecipeError:
    mine, theirs = leaf.source.store, other.source.store
    names = sorted(name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name))
    return RecipeError(  # values may be secrets
        f'{leaf.path}.store: "{leaf.source.name}" and {other.path} "{other.source.name}" name one store, {store}, '
        "with different options",
        found=f"other values of {', '.join(names)}",
        expected="one endpoint and one set of credentials for a store in a recipe",
        fix="give the same `store` to both, or to one of them only",
    )
