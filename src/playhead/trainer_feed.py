"""A loader as a trainer sees it, whose state is that of the last optimizer step, however far the trainer fetched."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from playhead.deal import lanes_per_rank
from playhead.errors import RecipeError
from playhead.feed.batch import Batch
from playhead.feed.delivery import Delivery


class TrainerFeed:
    """The batches of a trainer's epochs, each made by `deliver` into what the trainer wants.

    The trainer takes batches, as many ahead as it likes; its adapter calls `trained` for each that was trained on, in
    the same order. Law: `state` is the state after the last step that was trained on whole. Every iteration begins
    there, so that what was only fetched comes again; where a round is over, with the next one.
    """

    def __init__(self, loader: Delivery, deliver: Callable[[Batch], Any] | None = None) -> None:
        self.loader = loader
        self._deliver = deliver
        self._fetched: deque[Batch] = deque()
        self._last: Batch | None = None
        self._state: dict[str, Any] | None = None
        self.in_step = False

    def __iter__(self) -> Iterator[Any]:
        state = self.state()
        self.restore(state)
        self.loader.load_state_dict(state)
        if self.loader.finished:
            self.loader.next_round()
        return self._batches()

    def __len__(self) -> int:
        return len(self.loader)

    def state(self) -> dict[str, Any]:
        if self._last is not None:
            self._state, self._last = self.loader.state_dict(after=self._last), None
        elif self._state is None:
            self._state = self.loader.state_dict()
        return self._state

    def restore(self, state: dict[str, Any]) -> None:
        """Begin the next iteration at a state."""
        self._state, self._last, self.in_step = state, None, False
        self._fetched.clear()

    def place(self, batch: Any) -> None:
        """Restore the position of the batch that is trained on next, if the trainer rebuilt it."""
        if isinstance(batch, Batch) and self._fetched:
            batch.place_as(self._fetched[0])

    def trained(self, stepped: bool | None = None) -> None:
        """The oldest batch fetched was trained on; `stepped` says whether the optimizer took a step, where known."""
        batch = self._fetched.popleft()
        if stepped is not None and stepped != batch.is_last_in_step:
            raise self._misaligned(batch)
        self.in_step = not batch.is_last_in_step
        if batch.is_last_in_step:
            self._last = batch

    def _batches(self) -> Iterator[Any]:
        for batch in self.loader:
            self._fetched.append(batch.emptied())
            yield batch if self._deliver is None else self._deliver(batch)

    def _misaligned(self, batch: Batch) -> RecipeError:
        lanes, ranks = self.loader.lanes, self.loader.world_size
        each = lanes_per_rank(lanes, ranks)
        when = "not taken at the end" if batch.is_last_in_step else "taken in the middle"
        return RecipeError(
            "the optimizer steps of the trainer are not those of the recipe",
            found=f"an optimizer step was {when} of step {batch.step:,}, after lane {batch.lane}",
            expected=f"one after {each} micro-batches on each rank: "
            f"`lanes` is {lanes}, and the number of ranks {ranks}",
            fix=f"let the trainer accumulate gradients over {each} batches (Lightning's "
            "`accumulate_grad_batches`, transformers' `gradient_accumulation_steps`), or set `lanes` in the recipe to "
            "ranks * accumulation",
        )
