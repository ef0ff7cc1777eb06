"""Loaders that are broken on purpose, each in one way, as functions that `playhead verify --loader` takes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from msgspec.structs import replace

from playhead import Batch, Loader, Recipe, WorkerError


class Wrapped:
    """A loader around another one. `change` makes other batches of its batches."""

    def __init__(self, inner: Loader) -> None:
        self.inner = inner
        self.resumed = False

    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        yield from batches

    def __iter__(self) -> Iterator[Batch]:
        yield from self.change(self.inner)

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)
        self.resumed = True

    def close(self) -> None:
        self.inner.close()


def with_picks(batch: Batch, chosen: list[int], data: dict[str, Any] | None = None, worker: int | None = None) -> Batch:
    """The batch with some of its picks only."""
    request = batch.task.work.request
    picks = request.picks.take(np.array(chosen, np.int64))
    work = replace(batch.task.work, request=replace(request, picks=picks))
    fields = dict(batch) if data is None else data
    return Batch(fields, len(chosen), replace(batch.task, work=work), batch._source_names, worker or batch.worker)


def sound(recipe: Recipe, **options: Any) -> Loader:
    options.pop("arrays", None)
    return Loader(recipe, **options)


def plain(recipe: Recipe) -> Loader:
    """Finds out its rank by itself, and takes no options."""
    return Loader(recipe)


class _SkipsOneAfterResume(Wrapped):
    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        yield from islice(batches, int(self.resumed), None)


def skips_a_batch_after_resume(recipe: Recipe, **options: Any) -> Wrapped:
    return _SkipsOneAfterResume(sound(recipe, **options))


class _LosesASampleAfterResume(Wrapped):
    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for number, batch in enumerate(batches):
            lost = self.resumed and number == 0
            yield with_picks(batch, [*range(len(batch.rows) - 1)]) if lost else batch


def loses_a_sample_after_resume(recipe: Recipe, **options: Any) -> Wrapped:
    return _LosesASampleAfterResume(sound(recipe, **options))


class _EndsEarlyAfterResume(Wrapped):
    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        yield from islice(batches, 7) if self.resumed else batches


def ends_early_after_resume(recipe: Recipe, **options: Any) -> Wrapped:
    return _EndsEarlyAfterResume(sound(recipe, **options))


def broadcasts(recipe: Recipe, **options: Any) -> Loader:
    """Every rank is rank 0."""
    return sound(recipe, **{**options, "rank": 0})


class _SharesAStep(Wrapped):
    """In one step a rank is given what rank 0 has."""

    def __init__(self, inner: Loader, zero: Loader) -> None:
        super().__init__(inner)
        self.zero = zero

    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        other = iter(self.zero)
        for number, batch in enumerate(batches):
            twin = next(other)
            yield twin if number == 3 else batch


def shares_a_step(recipe: Recipe, **options: Any) -> Wrapped:
    return _SharesAStep(sound(recipe, **options), sound(recipe, **{**options, "rank": 0}))


class _FetchesAhead(Wrapped):
    """Its state is that of what it has fetched, `depth` batches ahead of what it has delivered."""

    depth = 3

    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        ahead: list[Batch] = []
        for batch in batches:
            ahead.append(batch)
            if len(ahead) > self.depth:
                yield ahead.pop(0)
        yield from ahead


def counts_prefetch_as_delivered(recipe: Recipe, **options: Any) -> Wrapped:
    return _FetchesAhead(sound(recipe, **options))


class _StateFirst(_FetchesAhead):
    """Its state counts a batch before that is delivered."""

    depth = 1


def writes_the_state_first(recipe: Recipe, **options: Any) -> Wrapped:
    return _StateFirst(sound(recipe, **options))


class _StateLate(Wrapped):
    """Its state is that before the last batch."""

    late: dict[str, Any] | None = None

    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        self.late = self.inner.state_dict()
        for batch in batches:
            yield batch
            self.late = self.inner.state_dict(after=batch)

    def state_dict(self) -> dict[str, Any]:
        return self.late or self.inner.state_dict()


def writes_the_state_late(recipe: Recipe, **options: Any) -> Wrapped:
    return _StateLate(sound(recipe, **options))


class _ShortOfAStep(Wrapped):
    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            if self.inner.rank == 1 and batch.step == 10:
                return
            yield batch


def is_short_of_a_step(recipe: Recipe, **options: Any) -> Wrapped:
    return _ShortOfAStep(sound(recipe, **options))


class _OrderByWorkers(Wrapped):
    """The order of the samples in a batch depends on the number of workers."""

    def __init__(self, inner: Loader, workers: int) -> None:
        super().__init__(inner)
        self.workers = workers

    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            yield with_picks(batch, [*range(len(batch.rows))][:: -1 if self.workers % 2 else 1])


def orders_by_workers(recipe: Recipe, **options: Any) -> Wrapped:
    return _OrderByWorkers(sound(recipe, **options), options["workers"])


def weighs_otherwise(recipe: Recipe, **options: Any) -> Loader:
    """Its sources have other weights than the recipe says."""
    if recipe.epochs is not None:
        return sound(recipe, **options)
    sources = [replace(source, weight=1.0 + 3.0 * i) for i, source in enumerate(recipe.sources)]
    return sound(replace(recipe, sources=sources), **options)


class _PayloadByWorker(Wrapped):
    """What a batch contains depends on the number of the worker that made it."""

    def __init__(self, inner: Loader, workers: int) -> None:
        super().__init__(inner)
        self.workers = workers

    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for number, batch in enumerate(batches):
            tokens = batch["tokens"].copy()
            tokens[0, 0] += number % (self.workers or 1)
            data = {**batch, "tokens": tokens}
            yield Batch(data, batch.num_samples, batch.task, batch._source_names, batch.worker)


def has_a_payload_by_worker(recipe: Recipe, **options: Any) -> Wrapped:
    return _PayloadByWorker(sound(recipe, **options), options["workers"])


class _DropsASample(Wrapped):
    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            lost = (batch.step, batch.lane) == (4, 1)
            yield with_picks(batch, [*range(1, len(batch.rows))]) if lost else batch


def drops_a_sample(recipe: Recipe, **options: Any) -> Wrapped:
    return _DropsASample(sound(recipe, **options))


class _RepeatsASample(Wrapped):
    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            twice = (batch.step, batch.lane) == (4, 1)
            yield with_picks(batch, [0, *range(len(batch.rows))]) if twice else batch


def repeats_a_sample(recipe: Recipe, **options: Any) -> Wrapped:
    return _RepeatsASample(sound(recipe, **options))


class _LeaksBetweenWorkers(Wrapped):
    """A sample of a batch comes again in the next, from another worker."""

    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        before: Batch | None = None
        for batch in batches:
            if batch.step == 5 and before is not None:
                yield with_picks(before, [*range(len(before.rows))], worker=before.worker + 1)
            before = batch
            yield batch


def leaks_between_workers(recipe: Recipe, **options: Any) -> Wrapped:
    return _LeaksBetweenWorkers(sound(recipe, **options))


class _DeliversAnotherSample(Wrapped):
    """As a cache with a wrong key would: the contents of one sample in the place of another."""

    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            if batch.step == 3 and len(batch.rows) > 1:
                data = {**batch, "id": [batch["id"][0], batch["id"][0], *batch["id"][2:]]}
                yield with_picks(batch, [*range(len(batch.rows))], data)
            else:
                yield batch


def delivers_another_sample(recipe: Recipe, **options: Any) -> Wrapped:
    return _DeliversAnotherSample(sound(recipe, **options))


class _OtherReceipts(Wrapped):
    def state_dict(self) -> dict[str, Any]:
        state = self.inner.state_dict()
        return {**state, "receipt": f"{int(state['receipt'], 16) ^ 1:016x}"}


def tells_other_receipts(recipe: Recipe, **options: Any) -> Wrapped:
    return _OtherReceipts(sound(recipe, **options))


class _OwnState(Wrapped):
    def state_dict(self) -> dict[str, Any]:
        return {**self.inner.state_dict(), "rank": self.inner.rank}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict({name: value for name, value in state.items() if name != "rank"})


def has_a_state_for_each_rank(recipe: Recipe, **options: Any) -> Wrapped:
    return _OwnState(sound(recipe, **options))


class _Shuffles(Wrapped):
    """Samples change places inside a batch, by chance."""

    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            chosen = [*range(len(batch.rows))]
            random.shuffle(chosen)
            yield with_picks(batch, chosen, {**batch, "id": [batch["id"][i] for i in chosen]})


def shuffles_by_chance(recipe: Recipe, **options: Any) -> Wrapped:
    return _Shuffles(sound(recipe, **options))


KEPT: list[np.ndarray[Any, Any]] = []


class _Leaks(Wrapped):
    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            KEPT.append(np.ones(1 << 18))  # 2 MiB
            yield batch


def leaks_memory(recipe: Recipe, **options: Any) -> Wrapped:
    KEPT.clear()
    return _Leaks(sound(recipe, **options))


def refuses_states(recipe: Recipe, **options: Any) -> Wrapped:
    loader = Wrapped(sound(recipe, **options))

    def refuse(state: dict[str, Any]) -> None:
        raise ValueError(f"a state of {len(state)} entries")

    loader.load_state_dict = refuse  # type: ignore[method-assign]
    return loader


def gives_no_loader(recipe: Recipe, **options: Any) -> list[Recipe]:
    del options
    return [recipe]


def gives_plain_batches(recipe: Recipe, **options: Any) -> Any:
    class Plain(Wrapped):
        def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
            for batch in batches:
                yield dict(batch)  # type: ignore[misc]

    return Plain(sound(recipe, **options))


class _HidesDeadWorkers(Wrapped):
    """Ends in silence where a worker has died."""

    def change(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        try:
            yield from batches
        except WorkerError:
            return


def hides_dead_workers(recipe: Recipe, **options: Any) -> Wrapped:
    return _HidesDeadWorkers(sound(recipe, **options))
