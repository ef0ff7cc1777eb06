"""The Trainer of transformers, saved, killed and resumed: it trains on what it would have, to the last bit."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from journal import joined, samples, trained
from launching import launch
from token_rows import LANES, write_recipe
from transformers_job import train

from playhead import RecipeError, StateError

pytestmark = [pytest.mark.trainers, pytest.mark.filterwarnings("ignore:::(transformers|accelerate|torch)")]
JOB = Path(__file__).parent / "transformers_job.py"


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """Sums of floats depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def journal(folder: Path, name: str) -> list[Any]:
    return trained(folder / f"{name}.0")


def logged(trainer: Any) -> list[Any]:
    """What the Trainer logged of its training, times aside."""
    return [line for line in trainer.state.log_history if "loss" in line]


@pytest.mark.parametrize("kind", ["endless", "passes"])
def test_a_resumed_run_trains_on_what_the_uninterrupted_one_does(tmp_path: Path, kind: str) -> None:
    write_recipe(tmp_path, kind)
    saves = {"save_strategy": "steps", "save_steps": 5}
    whole = train(tmp_path, tmp_path / "whole", max_steps=12, **saves)
    second = train(tmp_path, tmp_path / "second", max_steps=12, resume=tmp_path / "whole.ckpts" / "checkpoint-5")
    assert len(journal(tmp_path, "whole")) == 12 * LANES
    assert journal(tmp_path, "second")[0][:2] == [5, 0]
    assert joined(journal(tmp_path, "whole"), journal(tmp_path, "second")) == journal(tmp_path, "whole")
    assert logged(second) == logged(whole)


@pytest.mark.parametrize("at", ["the middle of an epoch", "the end of an epoch"])
def test_every_epoch_is_trained_whole_wherever_a_run_is_resumed(tmp_path: Path, at: str) -> None:
    write_recipe(tmp_path, "passes")
    saves = {"save_strategy": "steps", "save_steps": 1}
    whole = train(tmp_path, tmp_path / "whole", num_train_epochs=3, **saves)
    lines = journal(tmp_path, "whole")
    assert set(samples(lines).values()) == {3}
    assert len(samples(lines)) == 61
    steps = (lines[-1][0] + 1) // 3
    start = steps if at == "the end of an epoch" else steps + 3
    saved = tmp_path / "whole.ckpts" / f"checkpoint-{start}"
    second = train(tmp_path, tmp_path / "second", num_train_epochs=3, resume=saved)
    assert journal(tmp_path, "second")[0][:2] == [start, 0]
    assert joined(lines, journal(tmp_path, "second")) == lines
    assert logged(second) == logged(whole)


def test_an_epoch_saved_at_its_end_is_followed_by_the_next_without_a_length(tmp_path: Path) -> None:
    """Without a length the Trainer goes on to the next epoch when a round is over."""
    write_recipe(tmp_path, "unsized passes")
    train(tmp_path, tmp_path / "whole", max_steps=25, save_strategy="epoch")
    lines = journal(tmp_path, "whole")
    first, second, *_ = sorted((tmp_path / "whole.ckpts").iterdir(), key=lambda path: int(path.name.split("-")[1]))
    steps = int(first.name.split("-")[1])
    assert int(second.name.split("-")[1]) == 2 * steps < 25
    assert set(samples([line for line in lines if line[0] < 2 * steps]).values()) == {2}
    train(tmp_path, tmp_path / "second", max_steps=25, resume=first)
    assert journal(tmp_path, "second")[0][:2] == [steps, 0]
    assert joined(lines, journal(tmp_path, "second")) == lines


@pytest.mark.parametrize(("accumulation", "when"), [(1, "taken in the middle of"), (8, "not taken at the end of")])
def test_steps_that_are_not_the_recipes_are_refused(tmp_path: Path, accumulation: int, when: str) -> None:
    write_recipe(tmp_path, "endless")
    with pytest.raises(RecipeError, match="an optimizer step was " + when + " step 0") as caught:
        train(tmp_path, tmp_path / "wrong", max_steps=3, gradient_accumulation_steps=accumulation)
    assert "`gradient_accumulation_steps`" in str(caught.value)


def test_a_checkpoint_without_a_state_is_refused(tmp_path: Path) -> None:
    write_recipe(tmp_path, "endless")
    train(tmp_path, tmp_path / "whole", max_steps=3, save_strategy="steps", save_steps=3)
    file = tmp_path / "whole.ckpts" / "checkpoint-3" / "trainer_state.json"
    state = json.loads(file.read_text())
    del state["stateful_callbacks"]["PlayheadState"]
    file.write_text(json.dumps(state))
    with pytest.raises(StateError, match=r"saved without playhead\.transformers"):
        train(tmp_path, tmp_path / "second", max_steps=5, resume=file.parent)


def test_evaluation_moves_nothing_and_gives_the_same_after_a_resume(tmp_path: Path) -> None:
    write_recipe(tmp_path, "endless")
    train(tmp_path, tmp_path / "without", max_steps=8)
    options = {"evaluates": True, "eval_strategy": "steps", "eval_steps": 2, "max_steps": 8}
    whole = train(tmp_path, tmp_path / "whole", save_strategy="steps", save_steps=4, **options)
    assert journal(tmp_path, "whole") == journal(tmp_path, "without")
    second = train(tmp_path, tmp_path / "second", resume=tmp_path / "whole.ckpts" / "checkpoint-4", **options)
    assert joined(journal(tmp_path, "whole"), journal(tmp_path, "second")) == journal(tmp_path, "whole")
    found = [[line["eval_loss"] for line in run.state.log_history if "eval_loss" in line] for run in (whole, second)]
    assert len(found[0]) == 4
    assert found[0] == found[1]


def test_the_trainer_may_take_fields_out_of_a_batch(tmp_path: Path) -> None:
    """For a loss function of one's own it does: `inputs.pop("labels")`."""
    write_recipe(tmp_path, "endless")
    train(tmp_path, tmp_path / "own", max_steps=2, own_loss=True)
    assert len(journal(tmp_path, "own")) == 2 * LANES


@pytest.mark.parametrize("launcher", ["python", "torchrun"])
def test_a_killed_run_goes_on_with_nothing_lost_and_nothing_twice(tmp_path: Path, launcher: str) -> None:
    write_recipe(tmp_path, "passes")
    ranks = 2 if launcher == "torchrun" else 1
    options = {"folder": tmp_path, "num_train_epochs": 2, "gradient_accumulation_steps": LANES // ranks}
    options |= {"save_strategy": "steps", "save_steps": 3, "ddp_backend": "gloo" if ranks > 1 else None}
    names = ("whole", "killed", "second")
    whole, killed, second = ({**options, "journal": tmp_path / name} for name in names)
    launch(JOB, launcher, **whole)
    num_batches = 20 // ranks + 1  # in the middle of step 5
    assert launch(JOB, launcher, kill_after=num_batches, **killed) in (-signal.SIGKILL, 1)
    launch(JOB, launcher, resume=tmp_path / "killed.ckpts" / "checkpoint-3", **second)
    runs = [trained(*(tmp_path / f"{name}.{rank}" for rank in range(ranks))) for name in names]
    assert len(runs[1]) == num_batches * ranks
    assert runs[2][0][:2] == [3, 0]
    assert joined(runs[1], runs[2]) == runs[0]
    assert set(samples(runs[0]).values()) == {2}
    assert len(samples(runs[0])) == 61


def test_without_transformers_the_missing_package_names_itself() -> None:
    program = "import sys\nsys.modules['transformers'] = None\nimport playhead.transformers"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "playhead.transformers needs transformers" in done.stderr
    assert "pip install 'transformers" in done.stderr
