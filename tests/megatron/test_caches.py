"""Caches of whole jobs: built, kept, resumed, checked; and what is refused."""

from __future__ import annotations

import json
import resource
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import oracle
import pytest

from jobs import flags_over, write_pair
from playhead import megatron
from playhead.errors import DataError, PlayheadError, PrepareError, RecipeError
from playhead.megatron.arguments import read_request
from playhead.megatron.cache_report import CacheProgress
from playhead.megatron.check_job import check_request
from playhead.megatron.prepare_job import CacheOptions, prepare_request
from playhead.store import CountingFiles, all_files
from small_data import bytes_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_pair(tmp_path)
    return tmp_path


def prepare(folder: Path, *changes: str, **settings: object):
    return prepare_words(flags_over(folder, *changes), **settings)


def prepare_words(words: list[str], *, progress=None, **options: object):
    return prepare_request(read_request(words), all_files(), CacheOptions(**options), progress)


def check(folder: Path, *changes: str):
    return check_request(read_request(flags_over(folder, *changes)), all_files())


def states(folder: Path, *changes: str) -> set[str]:
    return {finding.state for finding in check(folder, *changes).findings}


def test_a_job_by_its_flags_gives_the_files_of_the_oracle(folder: Path) -> None:
    report = prepare(folder)
    request = read_request(flags_over(folder))
    assert report.targets == (500, 24, 8) == request.job.sizes
    oracle.build(request.job, folder / "theirs")
    ours = {name: data for name, data in bytes_of(folder / "cache").items() if "manifest" not in str(name)}
    assert ours == bytes_of(folder / "theirs")


def test_the_number_of_workers_does_not_change_a_byte(folder: Path) -> None:
    prepare(folder, workers=1)
    first = bytes_of(folder / "cache")
    shutil.rmtree(folder / "cache")
    steps: list[CacheProgress] = []
    prepare(folder, workers=4, progress=steps.append)
    assert bytes_of(folder / "cache") == first
    assert {step.phase for step in steps} == {"indexes", "documents", "samples", "shuffle", "blend", "done"}


def test_what_is_whole_is_kept_and_what_is_not_is_built_again(folder: Path) -> None:
    assert {entry.action for entry in prepare(folder).entries} == {"built"}
    before = bytes_of(folder / "cache")
    assert {entry.action for entry in prepare(folder).entries} == {"kept"}
    victims = sorted((folder / "cache").glob("*GPTDataset*_index.npy"))
    victims[0].write_bytes(victims[0].read_bytes()[:-4])
    victims[-1].unlink()
    actions = [entry.action for entry in prepare(folder).entries]
    assert 1 <= actions.count("built") <= 2
    assert bytes_of(folder / "cache") == before
    assert {entry.action for entry in prepare(folder, force=True).entries} == {"built"}


def test_a_cache_of_megatron_itself_is_recognised_by_its_files_and_kept(folder: Path) -> None:
    request = read_request(flags_over(folder))
    oracle.build(request.job, folder / "cache")
    theirs = bytes_of(folder / "cache")
    report = check(folder)
    assert report.good
    assert {finding.state for finding in report.findings} == {"ok"}
    assert all("no manifest" in finding.details[0] for finding in report.findings)
    assert {entry.action for entry in prepare(folder).entries} == {"kept"}
    assert bytes_of(folder / "cache") == theirs
    assert {entry.action for entry in prepare(folder, force=True).entries} == {"built"}
    assert {name: data for name, data in bytes_of(folder / "cache").items() if "manifest" not in str(name)} == theirs


@pytest.mark.parametrize("count", [120, 90])
def test_a_cache_of_megatron_itself_that_was_made_from_other_data_is_stale(folder: Path, count: int) -> None:
    """With as many documents of as many tokens only the places where samples begin tell."""
    lengths = np.random.default_rng(5).integers(0, 50, 120)
    oracle.build(read_request(flags_over(folder)).job, folder / "cache")
    oracle.write_dataset(folder / "a", oracle.documents_of(np.random.default_rng(7).permutation(lengths)[:count], 1))
    stale = [finding for finding in check(folder).findings if finding.state == "stale"]
    assert {finding.split for finding in stale} >= {"train"}
    prepare(folder)
    assert states(folder) == {"ok"}
    oracle.build(read_request(flags_over(folder)).job, folder / "theirs")
    for name, data in bytes_of(folder / "theirs").items():
        assert bytes_of(folder / "cache")[name] == data


def test_a_dry_run_writes_nothing_and_says_what_it_would_take(folder: Path) -> None:
    before = bytes_of(folder)
    dry = prepare(folder, dry_run=True)
    assert bytes_of(folder) == before
    real = prepare(folder)
    assert [entry.name for entry in dry.entries] == [entry.name for entry in real.entries]
    sizes = sum(path.stat().st_size for path in (folder / "cache").iterdir() if "manifest" not in path.name)
    assert dry.num_bytes == real.num_bytes == sizes
    assert dry.memory_bytes > 0
    assert dry.seconds > 0


def test_a_good_cache_is_called_good(folder: Path) -> None:
    prepare(folder)
    report = check(folder)
    assert report.good
    assert any("--data-path" in reason for reason in report.fast_load)


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--seed", "99", "--seed: 1234 in the cache, 99 for this job"),
        ("--seq-length", "32", "--seq-length: 16 in the cache, 32 for this job"),
        ("--split", "70,15,15", '--split: "80,10,10" in the cache, "70,15,15" for this job'),
        ("--train-samples", "600", "the number of samples"),
        ("--vocab-size", "77", "the tokenizer's flags"),
    ],
)
def test_the_argument_that_differs_is_named(folder: Path, flag: str, value: str, words: str) -> None:
    prepare(folder)
    report = check(folder, flag, value)
    assert not report.good
    details = [detail for finding in report.findings for detail in finding.details]
    assert any(words in detail for detail in details), details


def test_data_that_changed_makes_a_cache_stale_and_preparing_mends_it(folder: Path) -> None:
    prepare(folder)
    oracle.write_dataset(folder / "a", oracle.documents_of(np.random.default_rng(6).integers(1, 50, 120), 1))
    findings = check(folder).findings
    stale = [finding for finding in findings if finding.state == "stale"]
    assert stale
    assert all("a.idx changed" in detail for finding in stale for detail in finding.details)
    prepare(folder)
    assert states(folder) == {"ok"}
    oracle.build(read_request(flags_over(folder)).job, folder / "theirs")
    for name, data in bytes_of(folder / "theirs").items():
        assert bytes_of(folder / "cache")[name] == data


def test_data_of_another_number_of_documents_makes_a_cache_stale_and_not_broken(folder: Path) -> None:
    prepare(folder)
    oracle.write_dataset(folder / "a", oracle.documents_of(np.random.default_rng(6).integers(1, 50, 90), 1))
    found = {finding.state: finding.details for finding in check(folder).findings}
    assert set(found) == {"stale", "ok"}
    assert "a.idx changed" in found["stale"][0]
    prepare(folder)
    assert states(folder) == {"ok"}


def test_a_broken_cache_is_called_broken(folder: Path) -> None:
    prepare(folder)
    next((folder / "cache").glob("*shuffle_index.npy")).unlink()
    assert states(folder) == {"ok", "broken"}


def test_fast_load_works_with_data_for_each_split(folder: Path) -> None:
    arguments = {
        "train_data_path": ["0.5", str(folder / "a"), "0.5", str(folder / "b")],
        "valid_data_path": [str(folder / "b")],
        "seq_length": 16,
        "train_samples": 300,
        "global_batch_size": 4,
        "full_validation": True,
        "tokenizer_type": "NullTokenizer",
        "vocab_size": oracle.VOCAB,
        "data_cache_path": str(folder / "cache"),
    }
    counts = folder / "sequences.json"
    report = megatron.prepare(**arguments, per_dataset_sequences=counts)
    assert report.targets[1] is None
    found = megatron.check(**arguments)
    assert (found.good, found.fast_load) == (True, ())
    sequences = json.loads(counts.read_text())
    assert sequences == {str(folder / "a"): [120, 121], str(folder / "b"): [40, 41]}
    job = read_request(["--seed=1234"], arguments).job
    slow = oracle.build(job, folder / "theirs", full_validation=True)
    fast = oracle.build(
        job, folder / "cache", full_validation=True, fast_cache_load=True, sequences_per_dataset=sequences
    )
    for mine, his in zip(fast, slow, strict=True):
        assert oracle.samples_of(mine) == oracle.samples_of(his)


@pytest.mark.parametrize("split", ["80,10,10", "100"])
def test_every_index_is_read_once_also_where_its_counts_are_written(folder: Path, split: str) -> None:
    request = read_request(flags_over(folder, "--split", split))
    sizes = [120, 40]
    for options in ({}, {"per_dataset_sequences": folder / "counts.json"}):
        files = CountingFiles(all_files())
        prepare_request(request, files, CacheOptions(dry_run=not options, **options))
        lengths = 0 if not options else 4 * sum(sizes)  # of the sequences of all splits, to cut them into samples
        header, last_mark = 34, 8
        assert files.counts["bytes"] == sum(2 * header + last_mark + 4 * size for size in sizes) + lengths
        assert files.counts["stamp"] == 2 * len(sizes)
    assert json.loads((folder / "counts.json").read_text()) == {
        str(folder / "a"): [120, 121],
        str(folder / "b"): [40, 41],
    }


@pytest.mark.parametrize(
    ("dtype", "vocabulary", "wrong"),
    [(np.int32, 499, True), (np.int32, 70_000, False), (np.uint16, 499, False), (np.uint16, 70_000, True)],
)
def test_counts_of_sequences_are_refused_where_megatron_would_read_other_tokens(
    folder: Path, dtype: type, vocabulary: int, wrong: bool
) -> None:
    oracle.write_dataset(folder / "c", oracle.documents_of(range(1, 90)), dtype)
    arguments = {
        "train_data_path": [str(folder / "c")],
        "seq_length": 16,
        "train_samples": 50,
        "global_batch_size": 4,
        "eval_interval": 5,
        "tokenizer_type": "NullTokenizer",
        "vocab_size": vocabulary,
        "data_cache_path": str(folder / "cache"),
    }
    counts = folder / "sequences.json"
    megatron.prepare(**arguments)
    assert megatron.check(**arguments).misread == ()
    assert bool(megatron.check(**arguments, per_dataset_sequences_path="s.json").misread) == wrong
    if not wrong:
        megatron.prepare(**arguments, per_dataset_sequences=counts)
        assert counts.exists()
        return
    with pytest.raises(RecipeError, match="Megatron would read other tokens"):
        megatron.prepare(**arguments, per_dataset_sequences=counts)
    assert not counts.exists()


def test_int32_data_needs_the_size_of_a_vocabulary_that_is_not_known(folder: Path) -> None:
    oracle.write_dataset(folder / "c", oracle.documents_of(range(1, 90)), np.int32)
    data = ["--data-path", str(folder / "c"), "--split=90,5,5", f"--data-cache-path={folder / 'cache'}"]
    counts = ["--seq-length=16", "--train-samples=50", "--global-batch-size=4", "--eval-interval=5"]
    tokenizer = ["--tokenizer-type=HuggingFaceTokenizer", "--tokenizer-model=m"]
    words = [*data, *counts, *tokenizer, "--per-dataset-sequences-path=s.json"]
    assert "--vocab-size" in check_request(read_request(words), all_files()).misread[0]
    assert check_request(read_request([*words, "--vocab-size=128256"]), all_files()).misread == ()


def test_a_split_without_a_sequence_is_refused_where_megatron_would_go_round_for_ever(folder: Path) -> None:
    with pytest.raises(DataError, match="no token for test"):
        prepare(folder, "--split", "969,30,1")
    assert not (folder / "cache").exists()


def test_a_weighted_blend_with_full_validation_is_refused(folder: Path) -> None:
    with pytest.raises(RecipeError, match="weighted blend without a number of samples"):
        prepare(folder, "--full-validation")


def _header(**changes: int) -> bytes:
    values = {"version": 1, "code": 8, "sequences": 120, "marks": 121, **changes}
    return struct.pack("<9sQBQQ", b"MMIDIDX\0\0", *values.values())


def _last_mark(path: Path, mark: int) -> None:
    path.write_bytes(path.read_bytes()[:-8] + struct.pack("<q", mark))


@pytest.mark.parametrize(
    ("break_it", "problem"),
    [
        (lambda f: (f / "a.idx").unlink(), "a.idx: no such file"),
        (lambda f: (f / "a.bin").unlink(), "a.bin: no such file"),
        (lambda f: (f / "a.idx").write_bytes(b""), "is not a Megatron index"),
        (lambda f: (f / "a.idx").write_bytes(b"MMIDIDY\0\0" + bytes(100)), "is not a Megatron index"),
        (lambda f: (f / "a.idx").write_bytes(_header()[:20]), "does not have the size that its header implies"),
        (lambda f: (f / "a.idx").write_bytes(_header(version=2) + bytes(9999)), "version 2"),
        (lambda f: (f / "a.idx").write_bytes(_header(code=9) + bytes(9999)), "token type 9"),
        (
            lambda f: (f / "a.idx").write_bytes((f / "a.idx").read_bytes()[:-8]),
            "does not have the size that its header implies",
        ),
        (lambda f: (f / "a.bin").write_bytes(b"12"), "does not have the size that its index implies"),
        (lambda f: _last_mark(f / "a.idx", 119), "its documents do not end with its sequences"),
        (lambda f: _last_mark(f / "a.idx", 1 << 40), "its documents do not end with its sequences"),
    ],
)
def test_broken_data_is_named_and_nothing_is_written(folder: Path, break_it, problem: str) -> None:
    break_it(folder)
    with pytest.raises(DataError) as caught:
        prepare(folder)
    assert problem in str(caught.value)
    assert not (folder / "cache").exists()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ("--train-iters 99999999999999999999", "--train-iters 99999999999999999999"),
        ("--train-iters 9223372036854775807", "more samples than can be counted"),
        ("--seq-length 3000000000", "--seq-length 3000000000"),
        ("--mid-level-dataset-surplus nan", "--mid-level-dataset-surplus nan"),
        ("--mid-level-dataset-surplus inf", "--mid-level-dataset-surplus inf"),
        ("--mid-level-dataset-surplus 1e308", "more samples than can be counted"),
        ("--data-path nan a 1 b", "not a positive number"),
        ("--data-path 1 a inf b", "not a positive number"),
        ("--data-path 1e308 a 1e308 b", "add up to more than a number can hold"),
        (f"--split {'9' * 400},1,0", "is not a valid split"),
    ],
)
def test_numbers_that_nothing_can_be_made_of_are_refused_and_nothing_is_written(
    folder: Path, flags: str, problem: str
) -> None:
    given = [str(folder / word) if word in ("a", "b") else word for word in flags.split()]
    words = flags_over(folder, *given)
    if "--train-iters" in given:
        place = words.index("--train-samples")
        del words[place : place + 2]
    with pytest.raises(RecipeError) as caught:
        prepare_words(words)
    assert problem in str(caught.value)
    assert not (folder / "cache").exists()


def test_an_empty_cache_path_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    before = bytes_of(folder)
    with pytest.raises(RecipeError, match="--data-cache-path: is empty"):
        prepare(folder, "--data-cache-path", "")
    assert bytes_of(folder) == before


def test_a_count_that_no_disk_can_hold_is_said_before_anything_is_written(folder: Path) -> None:
    assert prepare(folder, "--train-samples", str(10**17), dry_run=True).num_bytes > 10**17
    with pytest.raises(PrepareError, match="not enough space for the cache"):
        prepare(folder, "--train-samples", str(10**17))


def test_all_broken_datasets_are_listed(folder: Path) -> None:
    (folder / "a.idx").unlink()
    (folder / "b.bin").unlink()
    with pytest.raises(PrepareError, match="2 of 2 datasets cannot be read") as caught:
        prepare(folder)
    assert "a.idx" in str(caught.value)
    assert "b.bin" in str(caught.value)


def test_too_little_memory_is_refused_before_anything_is_written(folder: Path) -> None:
    with pytest.raises(RecipeError, match="does not fit into the memory"):
        prepare(folder, memory_mb=10)
    assert not (folder / "cache").exists()


def test_a_full_disk_is_said_before_anything_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(PrepareError, match="not enough space for the cache"):
        prepare(folder)
    assert list((folder / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_a_directory_is_said(folder: Path) -> None:
    (folder / "cache").write_text("a file")
    with pytest.raises(PrepareError, match="cannot be written") as caught:
        prepare(folder)
    assert "--data-cache-path" in str(caught.value)


LIMITED = """
import resource, sys
from playhead.megatron.arguments import read_request
from playhead.megatron.prepare_job import CacheOptions, prepare_request
from playhead.store import all_files
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
prepare_request(read_request(sys.argv[1:]), all_files(), CacheOptions(workers=1))
"""


def test_a_write_that_fails_half_way_leaves_no_half_written_entry(folder: Path) -> None:
    prepare(folder, dry_run=True)
    program = LIMITED.format(limit=2500)  # document indexes fit, sample indexes do not
    done = subprocess.run(
        [sys.executable, "-c", program, *flags_over(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert "--data-cache-path" in done.stderr
    left = {path.name for path in (folder / "cache").iterdir()}
    assert not [name for name in left if name.endswith(".tmp")]
    whole = {name.split("-description")[0] for name in left if name.endswith("description.txt")}
    assert all(any(name.startswith(entry) for entry in whole) for name in left)
    prepare(folder)
    assert states(folder) == {"ok"}
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 2500


WRITING = """
import sys
from pathlib import Path
from playhead.megatron.staging import staged
with staged(Path(sys.argv[1]), ()) as create:
    create(Path(sys.argv[1]) / sys.argv[2]).write(b"half")
    print("written", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("command", ["prepare", "check"])
def test_what_a_killed_run_left_is_swept_up_and_what_a_living_one_writes_is_not(folder: Path, command: str) -> None:
    cache = folder / "cache"
    prepare(folder)
    names = [f"{digit * 32}-GPTDataset-train-sample_index.npy" for digit in "ab"]
    killed, living = (
        subprocess.Popen(
            [sys.executable, "-c", WRITING, str(cache), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in names
    )
    for process in (killed, living):
        assert process.stdout.readline() == "written\n"
    killed.kill()
    killed.wait()
    (cache / ".notes.tmp").write_text("of another program")
    assert len(list(cache.glob(".*.tmp"))) == 3
    prepare(folder, dry_run=True)
    assert len(list(cache.glob(".*.tmp"))) == 3
    {"prepare": prepare, "check": check}[command](folder)
    left = sorted(path.name for path in cache.glob(".*.tmp"))
    assert left == [f".{names[1]}.{living.pid}.tmp", ".notes.tmp"]
    living.communicate("")
    assert living.returncode == 0
    assert (cache / names[1]).exists()
    assert [path.name for path in cache.glob(".*.tmp")] == [".notes.tmp"]


def test_errors_are_errors(folder: Path) -> None:
    with pytest.raises(PlayheadError) as caught:
        prepare(folder, "--data-path", str(folder / "none"))
    assert caught.value.fix is not None
