"""The settings of NeMo's sampler as batching, lengths and rules of a recipe."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from playhead.recipe.nemo import Imported, ImportOptions, import_nemo

AUDIO = {"type": "nemo", "manifest_filepath": "/data/a.json"}
PAIR = {"type": "txt_pair", "source_paths": "/data/en.txt", "target_paths": "/data/pl.txt"}
CHAT = {"type": "nemo_sft_jsonl", "paths": "/data/chat.jsonl"}
TOKENS = {"use_multimodal_sampling": True, "token_equivalent_duration": 0.08}
BINS = {"use_bucketing": True, "bucket_duration_bins": [2, 5]}
T = {"tokenizer": "/t.json"}


def imported(folder, dataset: dict[str, Any], root: dict[str, Any] | None = None, **options: Any) -> Imported:
    (folder / "config.yaml").write_text(json.dumps({"train_ds": {"shuffle": True, **dataset}, **(root or {})}))
    return import_nemo(folder / "config.yaml", ImportOptions(base_dir=folder, tokenizer="/t.json", **options))


BATCHING = {
    "a size": ({"batch_size": 8}, {"type": "fixed", "size": 8}),
    "a duration": ({"batch_duration": 60}, {"type": "budget", "budget": 60, "overlong": "alone"}),
    "a penalty": (
        {"batch_duration": 60, "quadratic_duration": 15},
        {"type": "budget", "budget": 60, "quadratic": 15, "overlong": "alone"},
    ),
    "both limits": ({"batch_duration": 60, "batch_size": 8}, {"type": "budget", "budget": 60, "overlong": "alone"}),
    "bins and a longest sample": (
        {**BINS, "batch_duration": 60, "max_duration": 20},
        {"type": "bucket", "edges": [2, 5, 20], "budget": 60, "overlong": "alone"},
    ),
    "bins beyond the longest sample": (
        {**BINS, "batch_duration": 60, "max_duration": 5},
        {"type": "bucket", "edges": [2, 5], "budget": 60, "overlong": "alone"},
    ),
    "bins that end with a full batch": (
        {**BINS, "batch_duration": 60},
        {"type": "bucket", "edges": [2, 5, 60], "budget": 60, "overlong": "alone"},
    ),
    "bins without an end": ({**BINS, "batch_size": 4}, {"type": "bucket", "num": 3, "size": 4, "overlong": "alone"}),
    "bins turn bucketing on": (
        {"bucket_duration_bins": [2, 5], "batch_duration": 9},
        {"type": "bucket", "edges": [2, 5, 9], "budget": 9, "overlong": "alone"},
    ),
    "sizes of bins": (
        {**BINS, "bucket_batch_size": [8, 4], "batch_size": 3},
        {"type": "bucket", "edges": [2, 5], "size": [8, 4], "overlong": "drop"},
    ),
    "a number of buckets": (
        {"use_bucketing": True, "batch_duration": 9},
        {"type": "bucket", "num": 30, "budget": 9, "overlong": "alone"},
    ),
    "buckets of equal width": (
        {"use_bucketing": True, "batch_size": 9, "num_buckets": 4, "min_duration": 2, "max_duration": 10},
        {"type": "bucket", "edges": [4, 6, 8, 10], "size": 9, "overlong": "alone"},
    ),
    "bins of tokens and a longest sample": (
        {**BINS, **TOKENS, "batch_tokens": 60, "max_tokens": 20, "max_duration": 9},
        {"type": "bucket", "edges": [2, 5, 20], "budget": 60, "overlong": "alone"},
    ),
    "a number of buckets of tokens": (
        {**TOKENS, "use_bucketing": True, "num_buckets": 4, "batch_tokens": 60, "max_tokens": 20},
        {"type": "bucket", "num": 4, "budget": 60, "overlong": "alone"},
    ),
    "tokens": (
        {**TOKENS, "batch_tokens": 900, "quadratic_factor": 100, "batch_duration": 5},
        {"type": "budget", "budget": 900, "quadratic": 100, "overlong": "alone"},
    ),
    "packs": ({**TOKENS, "batch_tokens": 900, "pack": True}, {"type": "pack", "max_length": 900, "overlong": "drop"}),
}


@pytest.mark.parametrize(("settings", "expected"), BATCHING.values(), ids=BATCHING.keys())
def test_batches_are_made_as_nemo_makes_them(tmp_path, settings, expected):
    assert imported(tmp_path, {"input_cfg": [AUDIO], **settings}).values["batching"] == expected


@pytest.mark.parametrize(("low", "high", "num"), [(0.3, 40, 30), (0, 1, 3), (1, 2, 1)])
def test_buckets_of_equal_width_have_the_bounds_that_numpy_gives_nemo(tmp_path, low, high, num):
    settings = {"use_bucketing": True, "batch_size": 9, "num_buckets": num, "min_duration": low, "max_duration": high}
    edges = imported(tmp_path, {"input_cfg": [AUDIO], **settings}).values["batching"]["edges"]
    assert edges == pytest.approx(np.linspace(low, high, num + 1)[1:].tolist(), abs=0.0005)


LENGTHS = {
    "seconds": (AUDIO, {"batch_duration": 60, "max_duration": 30}, None, None, {"duration": [None, 30]}),
    "tokens of audio and its text": (
        AUDIO,
        {**TOKENS, "batch_tokens": 900},
        {"sum": [{"field": "duration", "per_second": 12.5}, {"field": "text", **T}]},
        None,
        None,
    ),
    "tokens of audio alone": (
        AUDIO,
        {**TOKENS, "batch_tokens": 900, "measure_total_length": False},
        {"field": "duration", "per_second": 12.5},
        None,
        None,
    ),
    "seconds and tokens": (
        AUDIO,
        {"bucket_duration_bins": [[2, 3], [4, 5]], "bucket_batch_size": [2, 1], "max_tps": 9},
        None,
        {"field": "text", **T},
        {"@output_length/duration": [None, 9]},
    ),
    "a rate of tokens without buckets of two lengths": (
        AUDIO,
        {"batch_size": 4, "min_tps": 0.5},
        None,
        {"field": "text", **T},
        {"@output_length/duration": [0.5, None]},
    ),
    "a rate that NeMo does not compare": (
        AUDIO,
        {"batch_size": 4, "max_tps": 5, "pretokenize": False},
        None,
        None,
        None,
    ),
    "a pair as a whole": (
        PAIR,
        {**TOKENS, "batch_tokens": 900, "max_tokens": 64, "min_tpt": 1, "max_tpt": 3},
        {"sum": [{"field": "source", **T}, {"field": "target", **T}]},
        {"field": "target", **T},
        {"@length": [None, 64], "@output_length/@length": [0.5, 0.75]},
    ),
    "a pair by its source": (
        PAIR,
        {**TOKENS, "batch_tokens": 900, "measure_total_length": False, "max_tpt": 3},
        {"field": "source", **T},
        {"field": "target", **T},
        {"@output_length/@length": [None, 3]},
    ),
    "a conversation": (
        CHAT,
        {**TOKENS, "batch_tokens": 900, "min_tokens": 4},
        {"turns": "all"},
        None,
        {"@length": [4, None]},
    ),
    "a conversation by its input": (
        CHAT,
        {**TOKENS, "batch_tokens": 900, "measure_total_length": False},
        {"turns": "input"},
        None,
        None,
    ),
    "a conversation by both": (
        CHAT,
        {**TOKENS, "bucket_duration_bins": [[2, 3], [4, 5]], "bucket_batch_size": [2, 1], "max_tpt": 2},
        {"turns": "input"},
        {"turns": "output"},
        {"@output_length/@length": [None, 2]},
    ),
}


@pytest.mark.parametrize(("entry", "settings", "length", "output", "keep"), LENGTHS.values(), ids=LENGTHS.keys())
def test_lengths_and_filters_are_those_of_nemo(tmp_path, entry, settings, length, output, keep):
    (source,) = imported(tmp_path, {"input_cfg": [entry], **settings}).values["sources"]
    assert (source.get("length"), source.get("output_length"), source.get("keep")) == (length, output, keep)


@pytest.mark.parametrize(
    ("root", "lanes"),
    [
        ({"trainer": {"devices": 8, "num_nodes": 4, "accumulate_grad_batches": 2}}, 64),
        ({"trainer": {"devices": 8}}, 8),
        ({"trainer": {"devices": "${gpus}"}, "gpus": 2}, 2),
        ({"trainer": {"devices": 8}, "model": {"tensor_model_parallel_size": 4}}, 2),
        ({"trainer": {"devices": 8, "strategy": {"tensor_parallel_size": 2}}}, 4),
        ({"trainer": {"devices": 8}, "model": {"tensor_model_parallel_size": 3}}, None),
        ({"trainer": {"devices": -1}}, None),
        ({"trainer": {"devices": "auto"}}, None),
        ({"trainer": {"devices": "${env:GPUS}"}}, None),
        ({}, None),
    ],
)
def test_lanes_are_the_micro_batches_of_all_ranks_or_come_first_on_the_checklist(tmp_path, root, lanes):
    found = imported(tmp_path, {"input_cfg": [AUDIO], "batch_size": 2}, root)
    assert found.recipe.lanes == lanes
    assert found.notes.checklist[0].startswith("Set `lanes`" if lanes is None else f"`lanes: {lanes}` was computed")
    assert imported(tmp_path, {"input_cfg": [AUDIO], "batch_size": 2}, root, lanes=6).recipe.lanes == 6


@pytest.mark.parametrize(("settings", "shuffle"), [({"shuffle": False}, "none"), ({"shuffle": True}, "global")])
def test_rows_are_shuffled_where_nemo_shuffles(tmp_path, settings, shuffle):
    entries = [AUDIO, {"type": "lhotse_shar", "shar_path": "/data/shar"}]
    audio, shar = imported(tmp_path, {"input_cfg": entries, "batch_size": 2, **settings}).recipe.sources
    assert (audio.shuffle, shar.shuffle) == (shuffle, "global" if settings["shuffle"] else "shards")
