"""Exact checkpoints with the Trainer of Hugging Face transformers.

The state of the loader is saved in `checkpoint-*/trainer_state.json`, with the step that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from playhead.errors import RecipeError, StateError
from playhead.feed.batch import Batch
from playhead.feed.delivery import Delivery
from playhead.trainer_feed import TrainerFeed

try:
    import transformers
    from transformers.trainer_callback import ExportableState
except ImportError as error:
    raise RecipeError(
        "playhead.transformers needs transformers and accelerate, which are not installed",
        fix="pip install 'transformers[torch]>=5'",
    ) from error

__all__ = ["PlayheadState", "Trainer"]


class Trainer(transformers.Trainer):
    """The Trainer of transformers, which takes Playhead loaders as `train_dataset` and `eval_dataset`.

    Checkpoints resume exactly. Models are given plain dictionaries; with `remove_unused_columns`, which is the default,
    of the fields that their `forward` takes. For another Trainer: `class Mine(playhead.transformers.Trainer, Other)`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if isinstance(self.train_dataset, Delivery):
            self.args.ignore_data_skip = True  # the state says where to go on: nothing is fetched to be skipped
            self.add_callback(PlayheadState())

    def get_train_dataloader(self) -> Any:
        if isinstance(self.train_dataset, Delivery):
            return TrainerFeed(self.train_dataset, self._fields)
        return super().get_train_dataloader()

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        found = self.eval_dataset if eval_dataset is None else eval_dataset
        found = self.eval_dataset[found] if isinstance(found, str) else found
        if isinstance(found, Delivery):
            return _EvaluationFeed(found, self._fields)
        return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        if isinstance(test_dataset, Delivery):
            return _EvaluationFeed(test_dataset, self._fields)
        return super().get_test_dataloader(test_dataset)

    def _fields(self, batch: Batch) -> dict[str, Any]:
        if not self.args.remove_unused_columns:
            return dict(batch)
        self._set_signature_columns_if_needed()
        return {name: value for name, value in batch.items() if name in self._signature_columns}


class PlayheadState(transformers.TrainerCallback, ExportableState):
    """Has the Trainer save the loader's state with its own, and restores it."""

    def __init__(self) -> None:
        self._feed: TrainerFeed | None = None

    def state(self) -> dict[str, Any]:
        saved = {} if self._feed is None else {"loader": self._feed.state()}
        return {"args": {}, "attributes": saved}

    def on_train_begin(self, args: Any, state: Any, control: Any, **about: Any) -> None:  # noqa: ARG002
        self._feed = about["train_dataloader"]
        assert self._feed is not None
        if state.global_step == 0:
            return
        saved = state.stateful_callbacks.get(type(self).__name__, {}).get("attributes", {})
        if "loader" not in saved:
            raise StateError(
                "the checkpoint has no state of a Playhead loader: it was saved without playhead.transformers",
                found=f"a checkpoint at step {state.global_step:,}",
                fix="resume from a checkpoint that was saved with it, or load the weights only and start a new run",
            )
        self._feed.restore(saved["loader"])

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        assert self._feed is not None
        self._feed.trained(stepped=False)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        assert self._feed is not None
        self._feed.trained(stepped=True)
        state.epoch = state.global_step / self._steps_in_epoch(args, state)

    def _steps_in_epoch(self, args: Any, state: Any) -> float:
        """The Trainer counts from the place it was resumed at, where no batches are skipped."""
        assert self._feed is not None
        try:
            return len(self._feed) / int(args.gradient_accumulation_steps)
        except TypeError:
            return float(state.max_steps)


class _EvaluationFeed:
    """An evaluation set, in plain dictionaries."""

    def __init__(self, loader: Delivery, deliver: Callable[[Batch], dict[str, Any]]) -> None:
        self._loader, self._deliver = loader, deliver

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self._deliver, self._loader)

    def __len__(self) -> int:
        return len(self._loader)
