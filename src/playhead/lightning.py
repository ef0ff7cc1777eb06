"""Exact checkpoints with Lightning: a data module for a recipe, and a callback for users with their own data module.

Lightning fetches ahead, and saves in the middle of a step where it is asked to. Here a checkpoint holds the state after
the last finished optimizer step, and the progress of Lightning's loops at that time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from playhead.errors import RecipeError, StateError
from playhead.feed.delivery import Delivery
from playhead.recipe.values import Recipe
from playhead.torch import DataLoader
from playhead.trainer_feed import TrainerFeed

try:
    from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
except ImportError as error:
    raise RecipeError(
        "playhead.lightning needs Lightning, which is not installed", fix="pip install 'lightning>=2.6'"
    ) from error

__all__ = ["DataModule", "ExactResume"]


class DataModule(LightningDataModule):
    """The stream of a recipe to train on, and its evaluation sets to validate and test on.

    `validate` and `test` name evaluation sets. Options are those of `playhead.torch.DataLoader`. Brings `ExactResume`.
    """

    def __init__(
        self, recipe: Recipe, *, validate: str | Sequence[str] = (), test: str | Sequence[str] = (), **options: Any
    ) -> None:
        super().__init__()
        self._recipe, self._options = recipe, options
        self._train = DataLoader(recipe, **options)
        if validate:
            self.val_dataloader = partial(self._splits, validate)
        if test:
            self.test_dataloader = partial(self._splits, test)

    def setup(self, stage: str) -> None:  # noqa: ARG002  # Lightning's signature
        assert self.trainer is not None
        if not any(isinstance(callback, ExactResume) for callback in self.trainer.callbacks):
            self.trainer.callbacks.insert(0, ExactResume())  # before those that save

    def train_dataloader(self) -> DataLoader:
        return self._train

    def _splits(self, names: str | Sequence[str]) -> list[DataLoader]:
        names = [names] if isinstance(names, str) else names
        return [DataLoader(self._recipe, split=name, **self._options) for name in names]


class ExactResume(Callback):
    """Saves the state of the Playhead loader that a Trainer trains on, and restores it from `ckpt_path`.

    Checks that optimizer steps are the recipe's steps. Where the Trainer begins another epoch and the loader's round
    is over, the next round follows.
    """

    def __init__(self) -> None:
        self._feed: _Feed | None = None
        self._restored: dict[str, Any] | None = None
        self._loops: dict[str, Any] | None = None
        self._reloads = False
        self._steps = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:  # noqa: ARG002
        self._restored, self._loops, self._reloads = None, None, False
        # There is no hook between a loader and the first batch that Lightning takes from it.
        source = trainer.fit_loop._data_source  # noqa: SLF001
        source.dataloader = partial(self._fed, type(source).dataloader, source)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002
        if trainer.state.fn != "fit":
            return
        if self.state_key not in checkpoint["callbacks"]:
            raise StateError(
                "the checkpoint has no state of a Playhead loader: it was saved without playhead.lightning",
                fix="resume from a checkpoint that was saved with it, or load the weights only and start a new run",
            )
        self._loops = checkpoint["loops"]["fit_loop"]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = state_dict["loader"]

    def state_dict(self) -> dict[str, Any]:
        return {} if self._feed is None else {"loader": self._feed.state()}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        self._steps = trainer.global_step
        self._loops = self._loops or trainer.fit_loop.state_dict()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
        assert self._feed is not None
        self._feed.place(batch)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        assert self._feed is not None
        stepped, self._steps = trainer.global_step != self._steps, trainer.global_step
        self._feed.trained(stepped if pl_module.automatic_optimization else None)
        if not self._feed.in_step:
            self._loops = trainer.fit_loop.state_dict()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002
        """Inside a step, save the loops as they were at the end of the last: its gradients are in no checkpoint."""
        if self._feed is not None and self._feed.in_step:
            checkpoint["loops"]["fit_loop"] = self._loops

    def _fed(self, dataloader: Any, source: Any) -> Any:
        """The loader that Lightning asks for, at the state restored, or where training on it stands."""
        loader = dataloader(source)
        if not isinstance(loader, Delivery):
            raise RecipeError(
                "playhead.lightning resumes from one Playhead loader, and the Trainer trains on something else",
                found=f"a {type(loader).__name__}",
                expected="a playhead.torch.DataLoader, as it is",
                fix="return the loader itself from train_dataloader(); put several into one recipe, with `fuse`",
            )
        feed = _Feed(loader)
        if self._restored is not None:
            feed.restore(self._restored)
        elif self._feed is not None and (self._reloads or self._feed.loader is loader):
            feed.restore(self._feed.state())
        self._feed, self._restored, self._reloads = feed, None, True
        return feed


class _Feed(TrainerFeed):
    """A feed that Lightning takes for a loader with a state; but the state that is loaded is the callback's."""

    def state_dict(self) -> dict[str, Any]:
        return self.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing: Lightning calls this, or not, depending on where in an epoch the checkpoint was saved."""
