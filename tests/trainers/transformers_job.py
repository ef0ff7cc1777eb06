"""A training with the Trainer of transformers: imported by tests, and run by them as a program of one or two processes.

    python transformers_job.py '{"folder": ..., "journal": ..., ...}'

takes the arguments of `train` as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from journal import VOCABULARY, write_line
from torch.nn.functional import cross_entropy

from playhead import Recipe
from playhead.torch import DataLoader
from playhead.transformers import Trainer


class Model(torch.nn.Module):
    """Has dropout, so that random states count, too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        layers = (torch.nn.Embedding(VOCABULARY, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, VOCABULARY))
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, input_ids: Any, labels: Any = None, number: Any = None) -> dict[str, Any]:  # noqa: ARG002
        logits = self.layers(input_ids[:, :-1])
        return {"logits": logits} if labels is None else {"loss": loss_of({"logits": logits}, labels), "logits": logits}


def loss_of(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
    return cross_entropy(outputs["logits"].flatten(0, 1), labels[:, 1:].flatten())


class Journaling(Trainer):
    """Writes down what it trains on, and kills itself in the middle of it."""

    file = ""
    kill_after: int | None = None
    last_step = -1

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        loss = super().training_step(model, inputs, num_items_in_batch)
        step, rank, ranks = self.state.global_step, self.args.process_index, self.args.world_size
        self.micro = self.micro + 1 if step == self.last_step else 0
        self.last_step = step
        place = (step, self.micro * ranks + rank)
        write_line(Path(f"{self.file}.{rank}"), place, inputs["number"].tolist(), loss.item())
        if self.kill_after is not None:
            self.kill_after -= 1
            if self.kill_after == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return loss


def train(
    folder: str,
    journal: str,
    *,
    resume: str | None = None,
    kill_after: int | None = None,
    evaluates: bool = False,
    own_loss: bool = False,
    **options: Any,
) -> Trainer:
    """Train, with checkpoints in the folder `journal` + ".ckpts"."""
    recipe = Recipe.parse(json.loads((Path(folder) / "recipe.json").read_text()), folder)
    loaders = {"train_dataset": DataLoader(recipe)}  # before the process group
    if evaluates:
        loaders["eval_dataset"] = DataLoader(recipe, split="dev")
    defaults = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "logging_steps": 1, "save_strategy": "no"}
    training = {"learning_rate": 0.05, "gradient_accumulation_steps": 4, "max_grad_norm": 0.0, "save_only_model": False}
    args = transformers.TrainingArguments(output_dir=f"{journal}.ckpts", **{**defaults, **training, **options})
    trainer = Journaling(Model(), args, compute_loss_func=loss_of if own_loss else None, **loaders)
    trainer.file, trainer.kill_after = journal, kill_after
    trainer.train(resume_from_checkpoint=resume)
    return trainer


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(**json.loads(sys.argv[1]))
    if torch.distributed.is_initialized():  # else threads of gloo may abort the process at its end
        torch.distributed.destroy_process_group()
