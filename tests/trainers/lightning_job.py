"""A training with Lightning: imported by tests, and run by them as a program of one or more processes.

    python lightning_job.py '{"folder": ..., "journal": ..., ...}'

takes the arguments of `fit` as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from journal import VOCABULARY, write_line
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy

from playhead import Recipe
from playhead.lightning import DataModule, ExactResume
from playhead.torch import DataLoader


class Model(pl.LightningModule):
    def __init__(self, journal: str, kill_after: int | None) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.layers = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 8), torch.nn.Linear(8, VOCABULARY))
        self.file, self.kill_after = journal, kill_after

    def loss_of(self, batch: Any) -> torch.Tensor:
        return cross_entropy(self.layers(batch["input_ids"][:, :-1]).flatten(0, 1), batch["labels"][:, 1:].flatten())

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        loss = self.loss_of(batch)
        write_line(Path(f"{self.file}.{self.global_rank}"), (batch.step, batch.lane), batch["id"], loss.item())
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("val_loss", self.loss_of(batch), batch_size=batch.num_samples or 1, sync_dist=True)

    def on_train_batch_end(self, *_: Any) -> None:
        if self.kill_after is not None:
            self.kill_after -= 1
            if self.kill_after == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.9)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99), "interval": "step"}]


class OwnModule(pl.LightningDataModule):
    """Somebody's own data module."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.recipe)


def fit(
    folder: str,
    journal: str,
    *,
    data: str = "module",
    ckpt_path: str | None = None,
    kill_after: int | None = None,
    saves: dict[str, Any] | None = None,
    callbacks: tuple[Any, ...] = (),
    validate: str | tuple[str, ...] = (),
    model: Model | None = None,
    **options: Any,
) -> pl.Trainer:
    """Train, with checkpoints in the folder `journal` + ".ckpts"."""
    recipe = Recipe.parse(json.loads((Path(folder) / "recipe.json").read_text()), folder)
    saver = ModelCheckpoint(
        dirpath=f"{journal}.ckpts", filename="{epoch}-{step}", **{"save_top_k": -1, **(saves or {})}
    )
    kept = [ExactResume()] if data == "callback" else []
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    settings = {"accelerator": "cpu", "devices": 1, "accumulate_grad_batches": 4, "num_sanity_val_steps": 0}
    trainer = pl.Trainer(callbacks=[*kept, *callbacks, saver], **{**quiet, **settings, **options})
    model = model or Model(journal, kill_after)
    if data == "module":
        trainer.fit(model, datamodule=DataModule(recipe, validate=validate), ckpt_path=ckpt_path)
    elif data == "callback":
        trainer.fit(model, datamodule=OwnModule(recipe), ckpt_path=ckpt_path)
    else:
        trainer.fit(model, DataLoader(recipe), ckpt_path=ckpt_path)
    return trainer


if __name__ == "__main__":
    torch.set_num_threads(1)
    fit(**json.loads(sys.argv[1]))
    if torch.distributed.is_initialized():  # else threads of gloo may abort the process at its end
        torch.distributed.destroy_process_group()
