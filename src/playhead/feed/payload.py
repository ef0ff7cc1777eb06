"""The fingerprint of settings outside the plan that affect batch contents: a change of it is a warning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from playhead.fingerprint import digest, digest_bytes
from playhead.formats.contract import WithOtherFiles
from playhead.formats.registry import format_of
from playhead.index.layout import tokens_by_digest
from playhead.read.codecs import decoders
from playhead.recipe.plain import to_plain
from playhead.recipe.storage import files_of
from playhead.recipe.tree import Leaf, noises_of
from playhead.recipe.values import Recipe
from playhead.store import Files, open_file

_OF_RECIPE = (
    *("map", "collate", "decode", "media", "audio", "image", "video", "augment", "fields", "sequence", "sequence_rate"),
    *("pad_to", "pad_batch", "pad_values", "masks", "dtypes", "on_length_mismatch", "length_tolerance"),
)
_OF_SOURCE = ["map", "audio", "image", "augment", "options", "tags", "as_conversation"]
_OF_NOISE = ["audio", "options"]


def payload_fingerprint(
    recipe: Recipe, leaves: Sequence[Leaf], functions: Sequence[str | None], files: Files | None = None
) -> str:
    """`functions` are the names of those given in place of the recipe's map and collate.

    Defaults are left out, so that new options do not change it.
    """
    decided: dict[str, Any] = {
        "functions": functions,
        "recipe": _chosen(recipe, _OF_RECIPE),
        "sources": [_chosen(leaf.source, _OF_SOURCE) for leaf in leaves],
        "noises": [[leaf.source.name, _chosen(leaf.source, _OF_NOISE)] for leaf in noises_of(recipe, leaves)],
        "tokens": [tokens_by_digest(recipe, leaf) for leaf in leaves],
    }
    if recipe.media is not False:
        decided["decoders"] = decoders()
    files = files_of(recipe, "build", files)
    others = [_other_files(leaf, files) for leaf in leaves]
    if any(others):
        decided["files"] = others
    return digest(decided)[:16]


def _other_files(leaf: Leaf, files: Files) -> list[str]:
    """Digests of the files other than its shards that the samples of a source depend on."""
    known = format_of(leaf.source, leaf.path).format
    paths = known.other_files(leaf.source) if isinstance(known, WithOtherFiles) else ()
    return [digest_bytes(b"".join(open_file(files, path).pieces())) for path in paths]


def _chosen(value: Any, names: Sequence[str]) -> dict[str, Any]:
    found = to_plain(value, only=names)
    return {name: found[name] for name in names if name in found}
