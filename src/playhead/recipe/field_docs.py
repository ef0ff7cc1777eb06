"""One sentence for every field of the recipe, shown by editors that use the schema."""

from __future__ import annotations

_OVERLONG = "What happens to samples too long for a batch: stop, leave them out, give them a batch alone, or cut them."

FIELD_DOCS: dict[str, dict[str, str]] = {
    "Recipe": {
        "sources": "The datasets to train on: sources, and groups of sources.",
        "batching": "How samples become micro-batches.",
        "seed": "Decides every shuffle and every mix.",
        "lanes": "How many micro-batches make up an optimizer step, whatever the hardware.",
        "weights_in": "What a weight is a share of: samples, or total length.",
        "temperature": "Shares from sizes: size ** temperature; 1 is proportional, near 0 is uniform.",
        "exhaustion": "What happens when a source has been read to its end.",
        "epochs": "Read every row exactly this many times, then end.",
        "window_size": "How many draws are planned together.",
        "balance": "How many lanes of a step get micro-batches of like cost.",
        "fuse": "How groups with their own batching share the stream: zip, or a weight for each.",
        "parts": "Cut the shards into this many parts that are read side by side.",
        "cache_dir": "Where indexes are kept.",
        "indexes_root": "Where .idx sidecars of read-only data are kept.",
        "evaluation": "Named finite sets, read in order, every row once.",
    },
    "Source": {
        "name": "The source's own name; it decides its shuffle, so renaming it changes the order.",
        "path": "Files: paths, globs, brace patterns, or a list of these.",
        "format": "How the files are read; guessed from their names if left out.",
        "weight": "This source's share among its neighbours.",
        "shuffle": "none: file order; global: every row anywhere; shards: within groups of shards, for slow storage.",
        "shuffle_group": "With `shuffle: shards`, how many shards are mixed at a time.",
        "length": "Where a sample's length comes from; a text is the name of a field.",
        "output_length": "The same for the length of the output, for buckets of two lengths.",
        "ids": "The field that holds a sample's id.",
        "keep": "Rules a row must meet, by column or ratio of columns: a range, a list of words, or a pattern.",
        "drop_ids": "Files of ids to leave out, one on a line.",
        "drop_rows": "Files of row numbers to leave out, one on a line.",
        "columns": "Further numeric fields to keep in the index.",
        "options": "Options of the format.",
    },
    "Group": {
        "name": "The group's name.",
        "sources": "Its members: sources, and groups of sources.",
        "weight": "The group's share among its neighbours; its members divide it.",
        "temperature": "Shares of its members from their sizes: size ** temperature.",
        "weights_in": "What its members' weights are shares of; only with its own batching.",
        "batching": "The group's own batching: its samples then never share a micro-batch with others.",
        "lanes": "With `fuse: zip`, how many lanes of every step it fills.",
        "window_size": "How many draws are planned together; only with its own batching.",
        "balance": "How many lanes of a step get micro-batches of like cost; only with its own batching.",
    },
    "Evaluation": {
        "sources": "The sources of the set.",
        "batching": "How samples become micro-batches.",
        "lanes": "How many micro-batches make up a step of the set.",
    },
    "Length": {
        "field": "The field that holds the length.",
        "function": "A function of your own, `package.module:function`, that gives the length of a sample.",
        "unit": "What the length counts. Seconds are planned in milliseconds.",
    },
    "Fixed": {
        "size": "Samples in a micro-batch.",
        "max_length": "The longest sample allowed.",
        "overlong": _OVERLONG,
    },
    "Budget": {
        "budget": "The most that count * longest effective length may come to.",
        "quadratic": "Q: the effective length of a sample of length d is d + d * d / Q.",
        "overlong": _OVERLONG,
    },
    "Bucket": {
        "edges": "The upper edge of each bucket: numbers, or [input, output] pairs.",
        "num": "How many buckets to make, of equal total length: K, or [K, M] for input and output length.",
        "size": "Samples in a micro-batch: one number, or one for each bucket.",
        "budget": "The most that count * longest effective length may come to.",
        "quadratic": "Q: the effective length of a sample of length d is d + d * d / Q.",
        "overlong": _OVERLONG,
    },
    "Pack": {
        "max_length": "The length of a bin.",
        "overlong": _OVERLONG,
    },
}
