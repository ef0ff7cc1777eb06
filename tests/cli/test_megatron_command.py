from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from commands import as_json, playhead, printed, refused
from playhead.formats.megatron_idx import write_idx
from small_data import bytes_of

PROGRESS_WORDS = ("documents", "samples", "shuffle")


def write_dataset(prefix: Path, lengths: list[int]) -> str:
    write_idx(
        str(prefix), np.dtype(np.uint16), np.array(lengths, np.int32), np.arange(len(lengths) + 1, dtype=np.int64)
    )
    Path(f"{prefix}.bin").write_bytes(bytes(2 * sum(lengths)))
    return str(prefix)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "a", [5 + i % 40 for i in range(100)])
    write_dataset(tmp_path / "b", [100 + i for i in range(50)])
    return tmp_path


JOB = (
    *("--data-path", "0.25", "a", "0.75", "b", "--split", "80,10,10", "--seq-length", "16", "--train-iters", "100"),
    *("--micro-batch-size", "1", "--prepare-cache-world-size", "8", "--tensor-model-parallel-size", "2"),
    *("--eval-iters", "2", "--eval-interval", "50", "--data-cache-path", "cache", "--vocab-file", "v.json"),
)
EXTRA = ("--num-layers", "12", "--bf16", "--lr", "1e-4", "--num-workers", "2")


def test_a_cache_is_prepared_kept_and_checked(folder: Path) -> None:
    out = printed(folder, "megatron", "prepare-cache", *JOB, *EXTRA)
    assert "world size       8, data-parallel size 4" in out
    assert "batch size       4, 100 iterations" in out
    assert "ignored          --num-layers --bf16 --lr --num-workers" in out
    assert out.count("GPTDataset") == 6
    assert out.count("BlendedDataset") == 3
    before = bytes_of(folder / "cache")
    again = printed(folder, "megatron", "prepare-cache", *JOB, *EXTRA)
    assert again.endswith("nothing changed\n")
    assert bytes_of(folder / "cache") == before
    assert printed(folder, "megatron", "check-cache", *JOB).endswith("the job will hit this cache\n")


def test_a_dry_run_prints_names_sizes_time_and_memory(folder: Path) -> None:
    out = printed(folder, "megatron", "prepare-cache", *JOB, "--dry-run")
    assert not (folder / "cache").exists()
    assert out.splitlines()[-1] == "a dry run: nothing was written"
    assert "on disk" in out
    assert "of memory with" in out
    report = as_json(folder, "megatron", "prepare-cache", *JOB)
    assert all(entry["name"] in out for entry in report["entries"])
    assert report["targets"] == [400, 3 * 2 * 4, 8]
    assert report["lengths"][0][0] >= 400


def test_a_check_that_finds_a_difference_names_the_argument_and_exits_with_1(folder: Path) -> None:
    printed(folder, "megatron", "prepare-cache", *JOB)
    done = playhead(folder, "megatron", "check-cache", *JOB, "--seed", "5")
    assert (done.returncode, done.stderr) == (1, "")
    assert "--seed: 1234 in the cache, 5 for this job" in done.stdout
    found = playhead(folder, "megatron", "check-cache", *JOB, "--dataloader-fast-cache-load")
    assert found.returncode == 1
    assert "fast load cannot work: the data is given by --data-path" in found.stdout
    assert "but not by fast load" in found.stdout


def test_a_job_may_be_a_file_and_flags_replace_its_lines(folder: Path) -> None:
    names = [word[2:].replace("-", "_") for word in JOB if word.startswith("--")]
    values = " ".join(JOB).split("--")[1:]
    job = {name: text.split()[1:] for name, text in zip(names, values, strict=True)}
    (folder / "job.yaml").write_text(yaml.safe_dump({**job, "megatron_release": "0.16"}))
    by_flags = as_json(folder, "megatron", "prepare-cache", *JOB)
    by_file = as_json(folder, "megatron", "prepare-cache", "--config", "job.yaml")
    assert {entry["action"] for entry in by_file["entries"]} == {"kept"}
    assert by_file["lengths"] == by_flags["lengths"]
    other = as_json(folder, "megatron", "prepare-cache", "--config", "job.yaml", "--train-iters", "7", "--dry-run")
    assert other["targets"][0] == 28


def test_the_tokenizer_may_come_from_a_description(folder: Path) -> None:
    printed(folder, "megatron", "prepare-cache", *JOB)
    description = next((folder / "cache").glob("*Blended*train-description.txt"))
    other = [word for word in JOB if word not in {"--vocab-file", "v.json"}]
    assert playhead(folder, "megatron", "check-cache", *other).returncode == 1
    like = ("--like", str(description))
    assert "will hit" in printed(folder, "megatron", "check-cache", *other, *like)
    late = ("--megatron-release", "main")
    assert playhead(folder, "megatron", "check-cache", *JOB, *late).returncode == 1


def test_counts_for_fast_start_are_written(folder: Path) -> None:
    printed(folder, "megatron", "prepare-cache", *JOB, "--per-dataset-sequences", "counts.json")
    assert json.loads((folder / "counts.json").read_text()) == {"a": [100, 101], "b": [50, 51]}


def test_what_is_wrong_is_an_error_and_exit_code_1(folder: Path) -> None:
    assert "no cache can be prepared" in refused(folder, "megatron", "prepare-cache", *JOB, "--mock-data")["problem"]
    unknown = refused(folder, "megatron", "prepare-cache", *JOB, "--brand-new-flag", "3")
    assert unknown["problem"] == "--brand-new-flag: unknown in release 0.16 of Megatron"
    world = refused(folder, "megatron", "prepare-cache", *JOB, "--prepare-cache-world-size", "0")
    assert world["expected"] == "at least 1"
    (folder / "b.bin").unlink()
    assert refused(folder, "megatron", "prepare-cache", *JOB)["type"] == "DataError"
    assert not (folder / "cache").exists()


def test_a_read_only_cache_is_refused(folder: Path) -> None:
    (folder / "cache").mkdir(mode=0o500)
    error = refused(folder, "megatron", "prepare-cache", *JOB, as_anybody=True)
    assert "cache: cannot be written" in error["problem"]
    assert "--data-cache-path" in error["fix"]
    assert not list((folder / "cache").iterdir())


def test_texts_are_tokenized_and_datasets_merged(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"?": 0, "hello": 1, "world": 2}, unk_token="?"))  # noqa: S106 - no secret
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "in.jsonl").write_text('{"body": "hello world"}\n{"body": ""}\n{"body": "hello you"}\n')
    words = ("in.jsonl", "--tokenizer", "tokenizer.json", "--key", "body", "--eod", "?")
    out = printed(folder, "megatron", "tokenize", *words, "--out", "text")
    assert out.startswith("text: 3 documents, 2 sequences, 6 tokens (uint16)\n")
    assert "tokens/s" in out
    assert np.fromfile(folder / "text.bin", np.uint16).tolist() == [1, 2, 0, 1, 0, 0]
    merged = as_json(folder, "megatron", "merge", "text", "a", "--out", "both")
    assert (merged["num_documents"], merged["num_sequences"]) == (103, 102)
