"""Every file of a cache is, to the byte, what megatron-core writes for the same job."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import oracle
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from playhead.errors import DataError
from playhead.megatron.build_entry import build_blend, build_dataset
from playhead.megatron.cache_plan import CachePlan, plan_cache
from playhead.megatron.entry_files import manifest_of
from playhead.megatron.job import MegatronBlend as Blend
from playhead.megatron.job import MegatronJob as Job
from playhead.megatron.job_indexes import open_indexes
from playhead.megatron.samples import num_samples_of, sample_dtype, sample_rows
from playhead.store import all_files


def plan_of(job: Job) -> CachePlan:
    return plan_cache(job, open_indexes(job, all_files(), 1))


def build_ours(job: Job, cache: Path) -> CachePlan:
    cache.mkdir()
    indexes = open_indexes(job, all_files(), 1)
    plan = plan_cache(job, indexes)
    for entry in plan.datasets:
        build_dataset(cache, entry, indexes[entry.prefix], manifest_of(entry, indexes), lambda _: None)
    for blend in plan.blends:
        build_blend(cache, blend, manifest_of(blend, indexes), lambda _: None)
    return plan


def files_of(cache: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in cache.iterdir() if not path.name.endswith("-manifest.json")}


def check_equal(job: Job, folder: Path, *, full_validation: bool = False) -> None:
    plan = build_ours(job, folder / "ours")  # first: what it refuses, the oracle may never finish
    try:
        theirs = oracle.build(job, folder / "theirs", full_validation=full_validation)
    except AssertionError:  # the oracle asserts that a kept partial sample does not end in an empty document
        assume(not job.keep_partial_validation)
        raise
    ours, expected = files_of(folder / "ours"), files_of(folder / "theirs")
    assert ours.keys() == expected.keys()
    for name, data in expected.items():
        assert ours[name] == data, name
    loaded = oracle.build(job, folder / "ours", full_validation=full_validation)
    assert files_of(folder / "ours") == ours  # it hit the cache
    for mine, his, lengths in zip(loaded, theirs, plan.lengths, strict=True):
        assert oracle.samples_of(mine) == oracle.samples_of(his)
        assert sum(lengths) == len(oracle.samples_of(his))


@st.composite
def jobs(draw: st.DrawFn) -> tuple[list[list[int]], Job, bool]:
    """Datasets by their document lengths, and a job over them whose prefixes are their numbers."""
    lengths = st.lists(st.one_of(st.integers(0, 12), st.integers(0, 90)), min_size=8, max_size=40)
    datasets = draw(st.lists(lengths, min_size=1, max_size=4))
    full = draw(st.booleans())
    size = st.integers(0, 120)
    sizes = (draw(size), None if full else draw(size), draw(size))

    def blend(*, weighted: bool) -> Blend:
        names = tuple(str(i) for i in range(len(datasets)))
        weights = st.floats(0.01, 50) | st.integers(1, 9).map(float)
        return Blend(names, tuple(draw(weights) for _ in names) if weighted else None)

    common = {
        "sequence_length": draw(st.integers(2, 24)),
        "seed": draw(st.integers(0, 2**32 - 1)),
        "sizes": sizes,
        "tokenizer": oracle.tokenizer_key(),
        "keep_partial_validation": draw(st.booleans()),
        "surplus": draw(st.sampled_from([0.005, 0.05])),
    }
    if draw(st.booleans()):
        split = draw(st.sampled_from(["80,10,10", "60, 40", "100", "1,1,1", "33.4,33.3,33.3", "50,0,50"]))
        return datasets, Job(**common, blend=blend(weighted=not full and draw(st.booleans())), split=split), full
    several = draw(st.booleans())
    valid = blend(weighted=not full and not several and draw(st.booleans())) if draw(st.booleans()) else None
    train, test = blend(weighted=draw(st.booleans())), draw(st.sampled_from([None, Blend(("0",), (3.0,))]))
    return datasets, Job(**common, blends=(train, valid, test), multiple_validation_sets=several), full


def refusals_of(datasets: list[list[int]], job: Job) -> set[str]:
    """What must be refused: a dataset without a token for a split, or, in a blend by size, without a sample."""
    found = set()
    for split, (name, blend) in enumerate(zip(("train", "valid", "test"), job.blends or [job.blend] * 3, strict=True)):
        for prefix in blend.prefixes if blend else ():
            lengths = datasets[int(prefix)]
            if job.split is not None and (bounds := oracle.split_of(job.split, split)) is None:
                continue
            if job.split is not None:
                lengths = lengths[slice(*(round(bound * len(lengths)) for bound in bounds))]
            is_alone = len(blend.prefixes) == 1 or (job.multiple_validation_sets and name == "valid")
            smallest = 2 if job.keep_partial_validation and name == "valid" else job.sequence_length + 1
            if sum(lengths) == 0:
                found.add(f"{prefix}: no token for {name}")
            elif blend.weights is None and not is_alone and sum(lengths) < smallest:
                found.add(f"{prefix}: has no {name} sample to blend")
    return found


@given(jobs())
def test_any_job_gives_the_files_of_the_oracle_and_the_oracle_reads_them(generated) -> None:
    datasets, job, full = generated
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i, lengths in enumerate(datasets):
            oracle.write_dataset(folder / str(i), oracle.documents_of(lengths, i))

        def placed(blend: Blend | None) -> Blend | None:
            return blend and replace(blend, prefixes=tuple(str(folder / prefix) for prefix in blend.prefixes))

        job = replace(job, blend=placed(job.blend), blends=job.blends and tuple(map(placed, job.blends)))
        expected = {f"{folder}/{refusal}" for refusal in refusals_of(datasets, generated[1])}
        event("refused" if expected else "built")
        if expected:
            with pytest.raises(DataError) as caught:
                build_ours(job, folder / "ours")
            assert caught.value.problem in expected
        else:
            check_equal(job, folder, full_validation=full)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    rng = np.random.default_rng(5)
    a = oracle.write_dataset(tmp_path / "a", oracle.documents_of(rng.integers(0, 50, 200), 1))
    b = oracle.write_dataset(tmp_path / "b", oracle.documents_of(rng.integers(0, 400, 60), 2))
    return a, b


def job_over(**changes: object) -> Job:
    standard = {"sequence_length": 16, "seed": 7, "sizes": (700, 40, 9), "tokenizer": oracle.tokenizer_key()}
    return Job(**{**standard, **changes})


def test_several_epochs_with_a_separate_last_one_and_without(pair, tmp_path: Path) -> None:
    separate = set()
    for i, size in enumerate([600, 900, 1150, 1300]):
        folder = tmp_path / str(i)
        folder.mkdir()
        job = job_over(blend=Blend((pair[0],)), split="100", sizes=(size, 0, 0))
        check_equal(job, folder)
        (entry,) = plan_of(job).datasets
        assert entry.num_epochs > 1
        separate.add(entry.separate_last)
    assert separate == {True, False}


def test_a_single_prefix_with_a_weight_is_a_blend_only_under_one_distribution(pair, tmp_path: Path) -> None:
    weighted = Blend((pair[0],), (1.0,))
    (tmp_path / "x").mkdir()
    check_equal(job_over(blend=weighted, split="90,5,5"), tmp_path / "x")
    job = job_over(blends=(weighted, None, None))
    check_equal(job, tmp_path)
    assert not plan_of(job).blends


@pytest.mark.parametrize("option", ["fast_cache_load", "defer_npy_index_mmap"])
def test_the_oracle_reads_our_cache_in_its_quick_ways(pair, tmp_path: Path, option: str) -> None:
    job = job_over(blends=(Blend(pair, (0.3, 0.7)), Blend((pair[1],)), Blend((pair[0],))))
    build_ours(job, tmp_path / "ours")
    ordinary = oracle.build(job, tmp_path / "theirs")
    quick = oracle.build(job, tmp_path / "ours", **{option: True})
    for mine, his in zip(quick, ordinary, strict=True):
        assert [mine[i]["tokens"].tolist() for i in range(len(his))] == oracle.samples_of(his)


def test_int64_sample_indexes_are_those_of_the_oracle() -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 40, 500).astype(np.int32)
    documents = rng.permutation(np.arange(500, dtype=np.int32))
    tokens = int(lengths.sum())
    expected = oracle.helpers.build_sample_idx_int64(lengths, documents, 9, 1, tokens, True, 1)
    rows = sample_rows(lengths, documents, 0, 9, num_samples_of(tokens, 9, keep_partial=False), np.dtype(np.int64))
    found = np.concatenate([piece.copy() for piece in rows])
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
    assert [sample_dtype(n) for n in (2**31 - 1, 2**31)] == [np.int32, np.int64]


def test_a_kept_partial_sample_is_counted_in_single_precision() -> None:
    tokens = 2**25 + 4  # 2^25 + 3 is no float32: it becomes 2^25 + 4
    assert num_samples_of(tokens, 2**25 + 3, keep_partial=True) == 1
    lengths = np.array([tokens], np.int32)
    documents = np.zeros(1, np.int32)
    for length in (2, 3, 1000, 2**24 - 1):
        theirs = oracle.helpers.build_sample_idx_int32(lengths, documents, length, 1, tokens, False, 1)
        assert len(theirs) - 1 == num_samples_of(tokens, length, keep_partial=True)
        rows = sample_rows(lengths, documents, 0, length, len(theirs) - 1, np.dtype(np.int32))
        assert np.array_equal(np.concatenate([piece.copy() for piece in rows]), theirs)


def test_a_blend_that_asks_more_than_a_dataset_can_give_leaves_nothing(pair, tmp_path: Path) -> None:
    job = job_over(blends=(Blend(pair, (0.1, 0.9)), None, None), sizes=(900, 0, 0), surplus=-0.6)
    with pytest.raises(DataError, match="needs more samples than were built") as caught:
        build_ours(job, tmp_path / "ours")
    assert "--mid-level-dataset-surplus" in str(caught.value)
    assert not [name for name in files_of(tmp_path / "ours") if "Blended" in name or name.endswith(".tmp")]
