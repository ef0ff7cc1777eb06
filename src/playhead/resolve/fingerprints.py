"""The plan's fingerprints: of everything that decides the stream, and of nothing that does not."""

from __future__ import annotations

from typing import Any

from playhead.fingerprint import digest
from playhead.index.table import Table
from playhead.order.blend import Blend
from playhead.plan.chain import Link
from playhead.plan.rules import BucketRule, BudgetRule, FixedRule, PackRule
from playhead.plan.segments import Segment, Stream

# Changing what any plan contains means raising this, in the same commit as the golden orders.
PLAN_VERSION = 2
_RULE_NAMES = {FixedRule: "Fixed", BudgetRule: "Budget", BucketRule: "Bucket", PackRule: "Pack"}


def first_link(streams: tuple[Stream, ...], fuse: Blend | None, tables: list[list[Table]]) -> Link:
    """The fingerprint of a recipe without amendments, in force from the start.

    Equal where plans are equal. Paths, marks, stores, caches and workers are not in it: data may move.
    """
    found = digest(
        {
            "plan_version": PLAN_VERSION,
            "fuse": None if fuse is None else fuse.shares.tolist(),
            "streams": [_stream(stream, found) for stream, found in zip(streams, tables, strict=True)],
        }
    )
    return Link(found, (0,) * len(streams))


def next_link(link: Link, amendment: Any, first_windows: tuple[int, ...]) -> Link:
    """The link of an amendment (a JSON-like value) to the plan that `link` is of: it depends on all before it."""
    return Link(digest([link.fingerprint, amendment]), first_windows)


def _stream(stream: Stream, tables: list[Table]) -> dict[str, Any]:
    return {
        "name": stream.name,
        "seed": stream.seed,
        "epochs": stream.epochs,
        "segments": [_segment(segment) for segment in stream.segments],
        "sources": [
            {
                "name": name,
                "shuffle": order.shuffle,
                "num_rows": order.num_rows,
                "first_row": order.first_row,
                "lengths": table.lengths_digest,
                "shards": [order.group, order.shard_rows.tolist()] if order.shuffle == "shards" else None,
            }
            for name, order, table in zip(stream.source_names, stream.orders, tables, strict=True)
        ],
    }


def _segment(segment: Segment) -> dict[str, Any]:
    return {
        "first_window": segment.first_window,
        "window_size": segment.window_size,
        "lanes": segment.lanes,
        "balance": segment.balance,
        "rule": [_RULE_NAMES[type(segment.rule)], segment.rule],
        "pieces": [
            {
                "first_draw": piece.first_draw,
                "stop_draw": piece.stop_draw,
                "members": piece.members.tolist(),
                "shares": piece.blend.shares.tolist(),
                "pass_draws": piece.blend.pass_draws,
            }
            for piece in segment.pieces
        ],
        "excluded": {str(source): rows.tolist() for source, rows in segment.excluded.items()},
    }
