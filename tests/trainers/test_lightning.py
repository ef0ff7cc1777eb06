"""Lightning's own Trainer, saved, killed and resumed: it trains on what it would have, to the last bit of the loss."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from journal import joined, samples, trained
from launching import launch
from lightning_job import Model, OwnModule, fit
from token_rows import LANES, write_recipe

from playhead import EndOfStreamError, Loader, RecipeError, StateError
from playhead.lightning import DataModule, ExactResume
from playhead.torch import DataLoader

pytestmark = [pytest.mark.trainers, pytest.mark.filterwarnings("ignore:::lightning")]
JOB = Path(__file__).parent / "lightning_job.py"
BY_STEPS = {"max_steps": 12, "max_epochs": -1}


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """Sums of floats depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class SavesAfter(pl.Callback):
    """Saves after so many micro-batches, wherever in a step that is."""

    def __init__(self, num_batches: int, file: Path) -> None:
        self.left, self.file = num_batches, file

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.left -= 1
        if self.left == 0:
            trainer.save_checkpoint(self.file)


def journal(folder: Path, name: str) -> list[Any]:
    return trained(folder / f"{name}.0")


@pytest.mark.parametrize("data", ["module", "callback"])
@pytest.mark.parametrize("kind", ["endless", "passes", "unsized passes"])
def test_a_resumed_run_trains_on_what_the_uninterrupted_one_does(tmp_path: Path, kind: str, data: str) -> None:
    write_recipe(tmp_path, kind)
    saves = {"every_n_train_steps": 5}
    fit(tmp_path, tmp_path / "whole", data=data, saves=saves, **BY_STEPS)
    fit(tmp_path, tmp_path / "first", data=data, saves=saves, **{**BY_STEPS, "max_steps": 7})
    saved = tmp_path / "first.ckpts" / "epoch=0-step=5.ckpt"
    fit(tmp_path, tmp_path / "second", data=data, ckpt_path=saved, **BY_STEPS)
    second = journal(tmp_path, "second")
    assert second[0][:2] == [5, 0]
    assert joined(journal(tmp_path, "first"), second) == journal(tmp_path, "whole")
    assert len(journal(tmp_path, "whole")) == 12 * LANES


@pytest.mark.parametrize("kind", ["endless", "passes"])
@pytest.mark.parametrize("num_batches", [3, 10])
def test_a_checkpoint_inside_a_step_resumes_at_the_end_of_the_last(tmp_path: Path, kind: str, num_batches: int) -> None:
    write_recipe(tmp_path, kind)
    file = tmp_path / "inside.ckpt"
    fit(tmp_path, tmp_path / "whole", callbacks=(SavesAfter(num_batches, file),), **BY_STEPS)
    trainer = fit(tmp_path, tmp_path / "second", ckpt_path=file, **BY_STEPS)
    second = journal(tmp_path, "second")
    assert second[0][:2] == [num_batches // LANES, 0]
    assert joined(journal(tmp_path, "whole"), second) == journal(tmp_path, "whole")
    assert trainer.global_step == 12
    assert trainer.fit_loop.total_batch_idx + 1 == 12 * LANES


@pytest.mark.parametrize("saves", [{"save_on_train_epoch_end": True, "every_n_epochs": 1}, {"every_n_train_steps": 1}])
@pytest.mark.parametrize("kind", ["passes", "unsized passes"])
def test_a_run_saved_at_an_epochs_end_goes_on_with_the_next_round(tmp_path: Path, kind: str, saves: Any) -> None:
    write_recipe(tmp_path, kind)
    fit(tmp_path, tmp_path / "whole", max_epochs=3, saves=saves)
    whole = journal(tmp_path, "whole")
    assert set(samples(whole).values()) == {3}
    assert len(samples(whole)) == 61
    steps = (whole[-1][0] + 1) // 3
    saved = next((tmp_path / "whole.ckpts").glob(f"*-step={steps}.ckpt"))
    trainer = fit(tmp_path, tmp_path / "second", max_epochs=3, ckpt_path=saved)
    second = journal(tmp_path, "second")
    assert second[0][:2] == [steps, 0]
    assert joined(whole, second) == whole
    assert (trainer.current_epoch, trainer.global_step) == (3, 3 * steps)


def test_a_finished_run_trains_no_more(tmp_path: Path) -> None:
    write_recipe(tmp_path, "passes")
    fit(tmp_path, tmp_path / "whole", max_epochs=1)
    (saved,) = (tmp_path / "whole.ckpts").iterdir()
    fit(tmp_path, tmp_path / "again", max_epochs=1, ckpt_path=saved)
    assert journal(tmp_path, "again") == []


def test_a_second_fit_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "endless")
    data, model = DataModule(recipe), Model(str(tmp_path / "parts"), None)
    fit(tmp_path, tmp_path / "whole", **BY_STEPS)
    quiet = {"enable_progress_bar": False, "logger": False, "enable_checkpointing": False, "accelerator": "cpu"}
    trainer = pl.Trainer(max_steps=5, max_epochs=-1, accumulate_grad_batches=LANES, **quiet)
    trainer.fit(model, datamodule=data)
    trainer.fit_loop.epoch_loop.max_steps = 12
    trainer.fit(model, datamodule=data)
    assert [line[:3] for line in journal(tmp_path, "parts")] == [line[:3] for line in journal(tmp_path, "whole")]


def test_lightnings_own_copy_of_the_state_does_not_overrule(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "endless")
    fit(tmp_path, tmp_path / "whole", saves={"every_n_train_steps": 5}, **BY_STEPS)
    saved = tmp_path / "whole.ckpts" / "epoch=0-step=5.ckpt"
    checkpoint = torch.load(saved)
    own = checkpoint["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    assert own == [checkpoint["callbacks"]["ExactResume"]["loader"]]
    checkpoint["loops"]["fit_loop"]["state_dict"]["combined_loader"] = [Loader(recipe).state_dict()]
    torch.save(checkpoint, tmp_path / "altered.ckpt")
    fit(tmp_path, tmp_path / "second", ckpt_path=tmp_path / "altered.ckpt", **BY_STEPS)
    second = journal(tmp_path, "second")
    assert second[0][:2] == [5, 0]
    assert joined(journal(tmp_path, "whole"), second) == journal(tmp_path, "whole")


@pytest.mark.parametrize("kind", ["endless", "passes"])
def test_a_plain_loader_is_refused_when_lightning_saves_it(tmp_path: Path, kind: str) -> None:
    write_recipe(tmp_path, kind)
    with pytest.raises(StateError, match=r"playhead\.lightning\.ExactResume\(\)"):
        fit(tmp_path, tmp_path / "plain", data="plain", saves={"every_n_train_steps": 2}, max_steps=4, max_epochs=2)


@pytest.mark.parametrize("kind", ["passes", "unsized passes"])
def test_a_plain_loader_is_refused_when_lightning_begins_an_epoch_that_would_be_empty(
    tmp_path: Path, kind: str
) -> None:
    write_recipe(tmp_path, kind)
    never = {"every_n_train_steps": 1000}
    with pytest.raises(EndOfStreamError, match="Lightning begins another epoch"):
        fit(tmp_path, tmp_path / "plain", data="plain", saves=never, max_epochs=2)
    assert set(samples(journal(tmp_path, "plain")).values()) == {1}


def test_a_checkpoint_without_a_state_is_refused(tmp_path: Path) -> None:
    write_recipe(tmp_path, "endless")
    fit(tmp_path, tmp_path / "whole", saves={"every_n_train_steps": 5}, **BY_STEPS)
    checkpoint = torch.load(tmp_path / "whole.ckpts" / "epoch=0-step=5.ckpt")
    del checkpoint["callbacks"]["ExactResume"]
    torch.save(checkpoint, tmp_path / "without.ckpt")
    with pytest.raises(StateError, match=r"saved without playhead\.lightning"):
        fit(tmp_path, tmp_path / "second", ckpt_path=tmp_path / "without.ckpt", **BY_STEPS)


@pytest.mark.parametrize(("accumulate", "when"), [(1, "taken in the middle of"), (8, "not taken at the end of")])
def test_steps_that_are_not_the_recipes_are_refused(tmp_path: Path, accumulate: int, when: str) -> None:
    write_recipe(tmp_path, "endless")
    with pytest.raises(RecipeError, match="an optimizer step was " + when + " step 0") as caught:
        fit(tmp_path, tmp_path / "wrong", accumulate_grad_batches=accumulate, **BY_STEPS)
    assert "accumulate gradients over 4 batches" in str(caught.value)


def test_a_collection_of_loaders_is_refused(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "endless")
    trainer = pl.Trainer(callbacks=[ExactResume()], logger=False, accelerator="cpu", enable_progress_bar=False)
    with pytest.raises(RecipeError, match="found     a list"):
        trainer.fit(Model(str(tmp_path / "two"), None), [DataLoader(recipe), DataLoader(recipe)])


def test_validation_in_the_middle_of_steps_moves_nothing(tmp_path: Path) -> None:
    write_recipe(tmp_path, "endless")
    fit(tmp_path, tmp_path / "without", **BY_STEPS)
    checks = {"validate": "dev", "val_check_interval": 6, "check_val_every_n_epoch": None}
    saves = {"monitor": "val_loss", "save_on_train_epoch_end": False}
    trainer = fit(tmp_path, tmp_path / "whole", saves=saves, **checks, **BY_STEPS)
    assert journal(tmp_path, "whole") == journal(tmp_path, "without")
    saved = sorted(
        (tmp_path / "whole.ckpts").iterdir(), key=lambda file: int(file.stem.split("step=")[1].split("-")[0])
    )
    again = fit(tmp_path, tmp_path / "second", saves=saves, ckpt_path=saved[2], **checks, **BY_STEPS)
    second = journal(tmp_path, "second")
    assert second[0][:2] == [4, 0]
    assert joined(journal(tmp_path, "whole"), second) == journal(tmp_path, "whole")
    assert again.callback_metrics["val_loss"] == trainer.callback_metrics["val_loss"]


class WithTestStep(Model):
    def test_step(self, batch: Any) -> None:
        self.log("samples", float(batch.num_samples), reduce_fx="sum", batch_size=1)


def test_a_checkpoint_is_tested_on_a_whole_evaluation_set(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "endless")
    model = WithTestStep(str(tmp_path / "whole"), None)
    trainer = fit(tmp_path, tmp_path / "whole", model=model, saves={"every_n_train_steps": 5}, **BY_STEPS)
    saved = tmp_path / "whole.ckpts" / "epoch=0-step=5.ckpt"
    for _ in range(2):
        (found,) = trainer.test(model, datamodule=DataModule(recipe, test="dev"), ckpt_path=saved, verbose=False)
        assert found["samples"] == 9


def test_batches_know_their_place_in_other_precisions(tmp_path: Path) -> None:
    """Lightning rebuilds batches to convert them; the model of these tests writes down step and lane."""
    write_recipe(tmp_path, "endless")
    fit(tmp_path, tmp_path / "whole", precision="64-true", **BY_STEPS)
    assert [line[:2] for line in journal(tmp_path, "whole")] == [[i // LANES, i % LANES] for i in range(12 * LANES)]


class ManualModel(Model):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> None:
        self.manual_backward(super().training_step(batch, index))
        if batch.is_last_in_step:
            self.optimizers().step()
            self.optimizers().zero_grad()


def test_manual_optimization_resumes_at_the_end_of_a_step(tmp_path: Path) -> None:
    write_recipe(tmp_path, "endless")
    file = tmp_path / "inside.ckpt"
    options = {"accumulate_grad_batches": 1, **BY_STEPS}
    whole, second = (ManualModel(str(tmp_path / name), None) for name in ("whole", "second"))
    fit(tmp_path, tmp_path / "whole", model=whole, callbacks=(SavesAfter(10, file),), **options)
    fit(tmp_path, tmp_path / "second", model=second, ckpt_path=file, **options)
    assert joined(journal(tmp_path, "whole"), journal(tmp_path, "second")) == journal(tmp_path, "whole")


class LeavesEpochs(pl.Callback):
    """Ends every epoch after its eighth batch, with another taken and not trained on."""

    def on_train_start(self, _: Any, pl_module: Any) -> None:
        pl_module.on_train_batch_start = lambda batch, index: -1 if index == 8 else None  # noqa: ARG005


def test_a_batch_that_was_fetched_and_not_trained_on_comes_again_in_the_next_epoch(tmp_path: Path) -> None:
    write_recipe(tmp_path, "endless")
    fit(tmp_path, tmp_path / "parts", callbacks=(LeavesEpochs(),), max_epochs=3)
    assert [line[:2] for line in journal(tmp_path, "parts")] == [[i // LANES, i % LANES] for i in range(24)]


def test_loaders_made_anew_for_an_epoch_go_on(tmp_path: Path) -> None:
    write_recipe(tmp_path, "endless")
    limits = {"limit_train_batches": 8, "max_epochs": 3, "reload_dataloaders_every_n_epochs": 1}
    fit(tmp_path, tmp_path / "parts", data="callback", **limits)
    assert [line[:2] for line in journal(tmp_path, "parts")] == [[i // LANES, i % LANES] for i in range(24)]


@pytest.mark.parametrize(("launcher", "devices"), [("python", 1), ("python", 2), ("torchrun", 2)])
def test_a_killed_run_goes_on_with_nothing_lost_and_nothing_twice(tmp_path: Path, launcher: str, devices: int) -> None:
    write_recipe(tmp_path, "unsized passes")
    options = {"folder": tmp_path, "max_epochs": 2, "devices": devices, "accumulate_grad_batches": LANES // devices}
    options["strategy"] = "ddp" if devices > 1 else "auto"
    names = ("whole", "killed", "second")
    whole, killed, second = (
        {**options, "journal": tmp_path / name, "saves": {"every_n_train_steps": 3}} for name in names
    )
    launch(JOB, launcher, **whole)
    num_batches = 20 // devices + 1  # in the middle of step 5
    assert launch(JOB, launcher, kill_after=num_batches, **killed) in (-signal.SIGKILL, 1)
    launch(JOB, launcher, ckpt_path=tmp_path / "killed.ckpts" / "epoch=0-step=3.ckpt", **second)
    runs = [trained(*(tmp_path / f"{name}.{rank}" for rank in range(devices))) for name in names]
    assert len(runs[1]) == num_batches * devices
    assert runs[2][0][:2] == [3, 0]
    assert joined(runs[1], runs[2]) == runs[0]
    assert set(samples(runs[0]).values()) == {2}
    assert len(samples(runs[0])) == 61


def test_without_lightning_the_missing_package_names_itself() -> None:
    program = "import sys\nsys.modules['lightning'] = None\nimport playhead.lightning"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "playhead.lightning needs Lightning" in done.stderr
    assert "pip install 'lightning" in done.stderr


def test_an_own_module_without_the_callback_is_refused(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "endless")
    quiet = {"logger": False, "accelerator": "cpu", "enable_progress_bar": False, "default_root_dir": tmp_path}
    trainer = pl.Trainer(max_steps=2, accumulate_grad_batches=LANES, **quiet)
    with pytest.raises(StateError, match="fetched more batches than it has trained on"):
        trainer.fit(Model(str(tmp_path / "own"), None), datamodule=OwnModule(recipe))
