"""A launch script's arguments: used, ignored by name, or refused by name; and the numbers that follow from them."""

from __future__ import annotations

import json
from pathlib import Path

import oracle
import pytest

from playhead.errors import DataError, RecipeError
from playhead.megatron.arguments import read_named, read_request
from playhead.megatron.counts import count_samples
from playhead.megatron.flags import parse_flags
from playhead.megatron.job import MegatronBlend, blend_of
from playhead.megatron.releases import LAUNCHER, REFUSED, RELEASES, TAKEN, flags_of, release_of
from playhead.megatron.tokenizer import describe_tokenizer, read_tokenizer


def counts(text: str, release: str = "0.16", iteration: int = 0) -> tuple[int | None, int | None, int | None]:
    return count_samples(parse_flags([*text.split(), f"--at-iteration={iteration}"], release)).samples


def test_a_whole_launch_script_is_sorted_out() -> None:
    script = """
        --num-layers 32 --hidden-size=4096 --bf16 --lr 3e-4 --data-path 0.3 a 0.7 b --seq_length 4096 --adam-beta1 0.9
        --no-load-optim --moe-router-topk 2 --disable-bias-linear --recompute-modules moe mlp
    """
    flags = parse_flags(script.split(), "0.16")
    assert flags.many("data-path") == ["0.3", "a", "0.7", "b"]
    assert flags.integer("seq-length") == 4096
    assert "--hidden-size" in flags.ignored
    assert "--disable-bias-linear" in flags.ignored
    assert len(flags.ignored) == 9


@pytest.mark.parametrize("name", REFUSED)
def test_jobs_with_another_cache_are_refused_by_name(name: str) -> None:
    release = "main" if name in flags_of("main").takes else "0.15"
    value = [] if flags_of(release).takes[name] == "0" else ["1"]
    with pytest.raises(RecipeError, match=f"--{name}: no cache"):
        parse_flags(["--seq-length", "8", f"--{name}", *value], release)


def test_flags_that_a_release_does_not_have_are_all_named_with_the_releases_that_do() -> None:
    words = (
        "--yarn-beta-fast 1 --bf16 --dataloader-inter-document-masking --prepare-cache-world-size 8 --no-such-thing x"
    )
    with pytest.raises(RecipeError) as caught:
        parse_flags(words.split(), "0.16")
    assert caught.value.problem.startswith(
        "--yarn-beta-fast, --dataloader-inter-document-masking, --no-such-thing: unknown in release 0.16"
    )
    assert "--yarn-beta-fast is in 0.19, main" in str(caught.value.found)
    assert "--no-such-thing is in no release" in str(caught.value.found)
    assert "leave the flag out" in str(caught.value.fix)
    with pytest.raises(RecipeError) as caught:
        parse_flags(["--tokenizer-hf-use-fast", "--legacy-tokenizer"], "main")
    assert "--megatron-release 0.16" in str(caught.value.fix)
    assert parse_flags(words.split()[:-2], "main").ignored == (
        "--yarn-beta-fast",
        "--bf16",
        "--dataloader-inter-document-masking",
    )


@pytest.mark.parametrize("name", ["data-parth", "reset-split", "no-split", "tokenizer-padding", "data-sampler"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_misspelled_flag_is_refused(name: str, release: str) -> None:
    with pytest.raises(RecipeError, match=f"--{name}: unknown in release {release}"):
        parse_flags([f"--{name}", "1"], release)


def test_the_table_has_every_flag_of_every_release_and_their_defaults() -> None:
    """Derived from the parsers of the releases: see derive_flags.py."""
    assert [len(flags_of(release).takes) for release in RELEASES] == [578, 683, 738, 788, 848, 879]
    assert all(name in {*flags_of("0.15").takes, *flags_of("0.16").takes, *flags_of("main").takes} for name in TAKEN)
    intervals = [flags_of(release).defaults.get("eval-interval") for release in RELEASES]
    assert intervals == [1000, None, None, None, None, None]
    assert [flags_of(release).takes["rampup-batch-size"] for release in ("0.15", "0.16")] == ["*", "3"]


def test_no_flag_is_of_two_kinds() -> None:
    assert not TAKEN & set(REFUSED)
    assert not LAUNCHER & {name for release in RELEASES for name in flags_of(release).takes}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("stray --seq-length 8", '"stray": belongs to no flag'),
        ("--seq-length", "has 0 values"),
        ("--seq-length 8 9", "has 2 values"),
        ("--skip-train yes", "has 1 values"),
        ("--seed x", "a whole number"),
        ("--seed -1", "at least 0"),
        ("--seed 4294967296", "at most 4294967295"),
        ("--seq-length 0", "at least 1"),
        ("--prepare-cache-world-size 0", "at least 1"),
        ("--prepare-cache-world-size -8", "at least 1"),
        ("--train-iters 5", "either --train-samples or --train-iters"),
        ("--split 0,0,0", "is not a valid split"),
        ("--split 1,2,3,4", "is not a valid split"),
        ("--valid-data-path b", "more than one data option given"),
        ("--prepare-cache-world-size 6 --tensor-model-parallel-size 4", "is not a multiple"),
        ("--data-path 0.5 a b c", "wrong number of weights"),
        ("--data-path 0.5 a 0.5", "wrong number of weights"),
        ("--data-path 0.5 a -1 b", "not a positive number"),
        ("--tokenizer-type SFTTokenizer --tokenizer-model m", "--like"),
        ("--bf16 yes", "--bf16: has 1 values"),
        ("--recompute-modules", "one or more values"),
        ("--rampup-batch-size 1 2", "three values"),
        ("--tokenizer-type HuggingFaceTokenizer", "--tokenizer-model"),
        ("--start-eval-at-iter 3", "--start-eval-at-iter is in 0.18, 0.19, main"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(words: str, problem: str) -> None:
    standard = {
        "data-path": "a",
        "seq-length": "8",
        "train-samples": "10",
        "global-batch-size": "2",
        "data-cache-path": "c",
        "eval-interval": "5",
        "tokenizer-type": "NullTokenizer",
        "vocab-size": "9",
    }
    given = words.split()
    rest = [word for name, value in standard.items() if f"--{name}" not in given for word in (f"--{name}", value)]
    with pytest.raises(RecipeError) as caught:
        read_request([*given, *rest])
    assert problem in str(caught.value)


def test_counts_follow_the_release() -> None:
    base = "--global-batch-size 8 --eval-interval 10 --eval-iters 3"
    assert counts(f"{base} --train-samples 1000") == (1000, 13 * 3 * 8, 24)
    assert counts(f"{base} --train-iters 100") == (800, 11 * 3 * 8, 24)
    assert counts(f"{base} --train-iters 100 --full-validation") == (800, None, 24)
    assert counts(f"{base} --train-iters 100 --start-eval-at-iter 35", "0.18") == (800, 8 * 3 * 8, 24)
    assert counts(f"{base} --train-iters 100 --eval-global-batch-size 2", "0.18") == (800, 11 * 3 * 2, 6)


@pytest.mark.parametrize("release", RELEASES)
def test_a_job_that_does_not_train_asks_for_one_evaluation_from_0_16_on(release: str) -> None:
    text = "--global-batch-size 8 --train-iters 20 --eval-iters 2 --eval-interval 5 --skip-train"
    assert counts(text, release) == (160, 80 if release == "0.15" else 16, 16)


@pytest.mark.parametrize("release", RELEASES)
def test_a_job_needs_an_interval_of_evaluation_from_0_16_on(release: str) -> None:
    text = "--global-batch-size 8 --train-iters 5000"
    assert counts(f"{text} --full-validation", release) == (40_000, None, 800)
    if release == "0.15":
        assert counts(text, release) == (40_000, 6 * 100 * 8, 800)
        return
    assert counts(f"{text} --skip-train", release) == (40_000, 800, 800)
    with pytest.raises(RecipeError, match="--eval-interval: is missing") as caught:
        counts(text, release)
    assert "the job itself would stop" in str(caught.value.found)


def test_the_batch_size_comes_from_the_world_when_it_is_not_given() -> None:
    text = "--micro-batch-size 2 --prepare-cache-world-size 64 --tensor-model-parallel-size 4 --context-parallel-size 2"
    words = f"{text} --train-iters 10 --eval-iters 0 --eval-interval 5".split()
    found = count_samples(parse_flags(words, "0.16"))
    assert (found.world_size, found.data_parallel_size, found.global_batch_size) == (64, 8, 16)
    assert found.samples == (160, 0, 0)


def test_a_ramp_of_batch_sizes_changes_the_iterations_up_to_0_17() -> None:
    text = "--train-samples 1000 --global-batch-size 32 --rampup-batch-size 8 8 96 --eval-interval 1 --eval-iters 1"
    # 8, 8, 8, 8 (32), 16, 16 (64), 24, 24 (112): then 888 // 32 = 27 more.
    assert count_samples(parse_flags(text.split(), "0.17")).train_iters == 8 + 27
    assert count_samples(parse_flags(text.split(), "0.18")).train_iters == 1000 // 32
    with pytest.raises(RecipeError, match="--rampup-batch-size"):
        counts(text.replace("8 8 96", "8 9 96"))


@pytest.mark.parametrize("release", ["0.15", "0.16", "0.17"])
def test_a_ramp_that_is_longer_than_training_ends_with_it(release: str) -> None:
    text = "--global-batch-size 8 --train-samples 50 --rampup-batch-size 2 2 400 --eval-iters 2 --eval-interval 5"
    found = count_samples(parse_flags(text.split(), release))
    assert found.train_iters == 26  # batches of 2, until more than 50 samples are consumed
    assert found.samples == (50, 96, 16)


@pytest.mark.parametrize("release", ["0.16", "0.17", "0.18", "0.19", "main"])
def test_phases_make_train_the_current_one(release: str) -> None:
    text = (
        "--train-iters 100 --global-batch-size 2 --phase-transition-iterations 30,60 --eval-iters 0 --eval-interval 9"
    )
    assert [counts(text, release, at)[0] for at in (0, 29, 30, 60, 99)] == [60, 60, 60, 80, 80]
    assert counts(f"{text} --prepare-cache-start-iteration 60", release)[0] == 80
    with pytest.raises(RecipeError, match="past the end"):
        counts(text, release, 100)
    with pytest.raises(RecipeError, match=r"unknown in release 0\.15"):
        counts(text, "0.15")


def test_blends_are_read_as_megatron_reads_them() -> None:
    assert blend_of(["a"], "x") == MegatronBlend(("a",))
    assert blend_of(["a", "b"], "x") == MegatronBlend(("a", "b"))
    assert blend_of(["30", " a ", "7e1", "b"], "x") == MegatronBlend(("a", "b"), (30.0, 70.0))
    assert blend_of(["1", "a"], "x") == MegatronBlend(("a",), (1.0,))


def test_data_may_be_listed_in_files(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("0.2 a\n0.8 b\n")
    (tmp_path / "split.json").write_text(json.dumps({"train": "1 a 2 b", "valid": ["c", "d"], "test": None}))
    rest = ["--seq-length=8", "--train-iters=1", "--global-batch-size=1", "--data-cache-path=c", "--eval-interval=1"]
    one = read_request(["--data-args-path", str(tmp_path / "list.txt"), "--split", "9,1,0", *rest]).job
    assert (one.blend, one.split) == (MegatronBlend(("a", "b"), (0.2, 0.8)), "9,1,0")
    with pytest.raises(RecipeError, match="--data-args-path: without --split"):
        read_request(["--data-args-path", str(tmp_path / "list.txt"), *rest])
    assert read_request(["--data-path", "a", *rest]).job.split == "969, 30, 1"
    three = read_request(["--per-split-data-args-path", str(tmp_path / "split.json"), *rest]).job
    assert three.blends == (MegatronBlend(("a", "b"), (1.0, 2.0)), MegatronBlend(("c", "d")), None)
    (tmp_path / "split.json").write_text("[]")
    with pytest.raises(DataError, match="is not a file of data arguments"):
        read_request(["--per-split-data-args-path", str(tmp_path / "split.json"), *rest])


def test_the_default_tokenizer_is_that_of_megatron() -> None:
    null = parse_flags(["--tokenizer-type", "NullTokenizer", "--vocab-size", str(oracle.VOCAB)], "0.16")
    assert list(describe_tokenizer(null).items()) == list(oracle.tokenizer_key().items())
    default = describe_tokenizer(parse_flags(["--vocab-file", "v", "--merge-file", "m"], "0.16"))
    assert (default["tokenizer_path"], default["merges_file"]) == ("GPT2BPETokenizer", "m")


def test_a_description_lends_its_tokenizer(tmp_path: Path) -> None:
    entry = {"class": "x", "tokenizer_path": None}
    for name, value in {"one": {"tokenizer": entry}, "blend": {"datasets": [{"tokenizer": entry}]}}.items():
        (tmp_path / name).write_text(json.dumps(value))
        assert read_tokenizer(tmp_path / name) == entry
    (tmp_path / "other").write_text("[1]")
    with pytest.raises(DataError, match="is not a description"):
        read_tokenizer(tmp_path / "other")
    with pytest.raises(DataError, match="cannot be read"):
        read_tokenizer(tmp_path / "none")


def test_releases_are_known_by_name_or_by_what_is_installed() -> None:
    assert release_of(None) == "0.16"
    assert release_of("0.17.2") == "0.17"
    with pytest.raises(RecipeError, match="unknown Megatron release"):
        release_of("0.9")


def test_arguments_by_name_are_the_same_as_flags() -> None:
    named = {"data_path": [0.3, "a"], "seq_length": 8, "bf16": True, "skip_train": False, "seed": None, "lr": 0.1}
    words = ["--data-path", "0.3", "a", "--seq-length=8", "--bf16", "--lr=0.1"]
    assert parse_flags([], "0.16", named) == parse_flags(words, "0.16")
    assert parse_flags(["--seq-length", "9"], "0.16", named).integer("seq-length") == 9
    assert parse_flags([], "0.16", {"data-path": ["--a", Path("b")]}).many("data-path") == ["--a", "b"]
    for wrong in ({}, [[1]], [True], [None]):
        with pytest.raises(RecipeError, match=r"seed: (dict|list|bool|NoneType)"):
            parse_flags([], "0.16", {"seed": wrong})


def test_a_file_of_arguments_is_read_as_yaml_of_a_recipe(tmp_path: Path) -> None:
    lines = [
        *("seq_length: 012", "train_samples: 1e3", "seed: 1_000", "vocab_size: 0x10", "tokenizer_type: on"),
        *("split: 1_0", "phase_transition_iterations: 12:30"),
    ]
    (tmp_path / "job.yaml").write_text("\n".join(lines))
    flags = parse_flags([], "0.16", read_named(str(tmp_path / "job.yaml")))
    numbers = [flags.integer(name) for name in ("seq-length", "train-samples", "seed", "vocab-size")]
    assert numbers == [12, 1000, 1000, 16]
    texts = [flags.text(name) for name in ("tokenizer-type", "split", "phase-transition-iterations")]
    assert texts == ["on", "1_0", "12:30"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("bf16: on", "--bf16: has 1 values"),
        ("keep_partial_validation_sequence: off", "has 1 values"),
        ("train_samples: 1.5", "--train-samples 1.5"),
        ("at_iteration: soon", "--at-iteration soon"),
        ("seed: .inf", "--seed inf"),
        ("seq_length: 8\nseq_length: 9", "given twice"),
        ("- 3", "is not a list of arguments by name"),
        ("seed: [", "line 1, column"),
    ],
)
def test_a_line_that_means_nothing_here_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    (tmp_path / "job.yaml").write_text(line)
    with pytest.raises(RecipeError) as caught:
        read_request(named=read_named(str(tmp_path / "job.yaml")))
    assert problem in str(caught.value)
