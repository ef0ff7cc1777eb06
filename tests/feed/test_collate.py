"""Samples into batches: padding, masks, packs; what cannot be put together is named."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from deliveries import npy
from playhead.errors import SampleError
from playhead.feed.collate import Shape, packed, padded
from playhead.feed.padding import Collation
from playhead.read.decode import stored_array
from playhead.store import Extent, MemoryFiles, open_file

HOW = Collation()
ONE_BY_TWO = np.ones((1, 2))
LISTS = st.lists(st.lists(st.integers(-(2**62), 2**62), max_size=9), min_size=1, max_size=6)


def no_filler() -> dict[str, Any]:
    raise AssertionError("nothing was to be filled")


def pad(samples: list[Any], how: Collation = HOW, length: int | None = None, size: int | None = None) -> dict[str, Any]:
    return padded(samples, how, Shape(length, size), no_filler)


def pack(samples: list[Any], length: int, how: Collation = HOW) -> dict[str, Any]:
    return packed(samples, how, length, no_filler)


@given(lists=LISTS, pad_value=st.integers(-100, 100), more=st.integers(0, 3))
def test_padding_keeps_every_value_and_says_where_it_is(lists: list[list[int]], pad_value: int, more: int) -> None:
    longest = max(map(len, lists))
    wanted = longest + more if more else None
    batch = pad([{"tokens": x} for x in lists], Collation(pad_values={"tokens": pad_value}), wanted)
    width = longest + more
    assert batch["tokens"].shape == batch["tokens_mask"].shape == (len(lists), width)
    for i, x in enumerate(lists):
        assert batch["tokens"][i].tolist() == x + [pad_value] * (width - len(x))
        assert batch["tokens_mask"][i].tolist() == [True] * len(x) + [False] * (width - len(x))
    assert batch["tokens_lengths"].tolist() == [len(x) for x in lists]
    assert batch["weights"].tolist() == [1] * len(lists)


@given(lists=LISTS, free=st.integers(0, 5), empty=st.sets(st.integers(0, 5)))
def test_a_pack_is_its_samples_one_after_another(lists: list[list[int]], free: int, empty: set[int]) -> None:
    samples: list[Any] = [{"tokens": x, "labels": [-n for n in x], "id": f"{i}"} for i, x in enumerate(lists)]
    empty.discard(0)
    samples = [None if i in empty else sample for i, sample in enumerate(samples)]
    total = sum(len(sample["tokens"]) for sample in samples if sample is not None)
    batch = pack(samples, total + free, Collation(pad_values={"labels": -100}))
    tokens, labels, segments, positions, bounds = [], [], [], [], [0]
    for i, sample in enumerate(samples):  # the slow twin
        for at, token in enumerate(sample["tokens"] if sample is not None else ()):
            tokens.append(token)
            labels.append(-token)
            segments.append(i + 1)
            positions.append(at)
        bounds.append(len(tokens))
    assert batch["tokens"].tolist() == tokens + [0] * free
    assert batch["labels"].tolist() == labels + ([-100] * free)
    assert batch["segment_ids"].tolist() == segments + [0] * free
    assert batch["positions"].tolist() == positions + [0] * free
    assert batch["cu_seqlens"].tolist() == bounds
    assert batch["weights"].tolist() == [float(sample is not None) for sample in samples]
    assert len(batch["id"]) == len(samples)
    for i, (first, end) in enumerate(pairwise(batch["cu_seqlens"].tolist())):
        assert (batch["segment_ids"] == i + 1).sum() == end - first


def test_an_overlong_sample_that_goes_alone_has_a_bin_of_its_own_size() -> None:
    assert pack([{"tokens": [*range(9)]}], 5)["tokens"].shape == (9,)


def test_fields_along_the_sequence_share_its_shape_and_others_have_their_own() -> None:
    samples = [{"tokens": [1, 2], "labels": [3, 4], "words": [9]}, {"tokens": [5], "labels": [6], "words": [7, 8, 9]}]
    batch = pad(samples, length=6)
    assert batch["tokens"].shape == batch["labels"].shape == (2, 6)
    assert batch["words"].tolist() == [[9, 0, 0], [7, 8, 9]]
    without = pad(samples, Collation(fields=("labels",)), length=6)  # the sequence itself need not be delivered
    assert without["labels"].shape == (2, 6)
    assert "tokens" not in without


def test_inner_axes_are_kept_and_padded_with_the_field_s_own_value() -> None:
    samples = [{"tokens": np.ones((2, 3), np.float32)}, {"tokens": np.ones((4, 3), np.float32)}]
    batch = pad(samples, Collation(pad_values={"tokens": -1}))
    assert batch["tokens"].shape == (2, 4, 3)
    assert batch["tokens"].dtype == np.float32
    assert (batch["tokens"][0, 2:] == -1).all()
    assert pack(samples, 8)["tokens"].shape == (8, 3)


def test_scalars_are_arrays_and_text_bytes_and_nested_things_are_lists() -> None:
    samples = [{"n": 1, "x": 0.5, "ok": True, "text": "a", "raw": b"1", "deep": [[1], [2, 3]], "maybe": None}] * 2
    batch = pad(samples)
    assert batch["n"].tolist() == [1, 1]
    assert batch["x"].dtype == np.float64
    assert batch["ok"].dtype == np.bool_
    assert batch["text"] == ["a", "a"]
    assert batch["raw"] == [b"1", b"1"]
    assert batch["deep"] == [[[1], [2, 3]]] * 2
    assert batch["maybe"] == [None, None]


def test_tuples_and_arrays_of_other_libraries_are_arrays() -> None:
    import torch

    samples = [{"tokens": (1, 2)}, {"tokens": torch.arange(3)}]
    assert pad(samples)["tokens"].tolist() == [[1, 2, 0], [0, 1, 2]]
    assert pack(samples, 5)["tokens"].tolist() == [1, 2, 0, 1, 2]


def test_an_empty_slot_has_weight_0_and_repeats_another_sample() -> None:
    batch = pad([None, {"tokens": [4, 5], "id": "b"}, None])
    assert batch["weights"].tolist() == [0, 1, 0]
    assert batch["tokens"].tolist() == [[4, 5]] * 3
    alone = padded([None, None], HOW, Shape(), lambda: {"tokens": [9]})
    assert alone["tokens"].tolist() == [[9], [9]]
    assert alone["weights"].tolist() == [0, 0]
    empty = packed([None], HOW, 4, lambda: {"tokens": [9]})
    assert empty["tokens"].tolist() == [0, 0, 0, 0]
    assert empty["weights"].tolist() == [0]


def test_rows_added_to_a_batch_weigh_nothing_and_hold_padding() -> None:
    samples = [{"tokens": [1, 2], "id": "a", "n": 5}]
    batch = pad(samples, Collation(pad_values={"tokens": -100, "n": 9}), size=3)
    assert batch["tokens"].tolist() == [[1, 2], [-100, -100], [-100, -100]]
    assert batch["tokens_mask"].tolist() == [[True, True], [False, False], [False, False]]
    assert batch["tokens_lengths"].tolist() == [2, 0, 0]
    assert batch["weights"].tolist() == [1, 0, 0]
    assert batch["n"].tolist() == [5, 9, 9]
    assert batch["id"] == ["a", None, None]


def test_an_empty_sequence_beside_others_takes_their_shape_and_type() -> None:
    assert pad([{"tokens": []}, {"tokens": [2**60 + 1]}])["tokens"].tolist() == [[0], [2**60 + 1]]
    assert pack([{"tokens": []}, {"tokens": [2**60 + 1]}], 1)["tokens"].tolist() == [2**60 + 1]
    assert pad([{"tokens": []}])["tokens"].shape == (1, 0)
    assert pad([{"tokens": []}, {"tokens": []}])["tokens"].dtype == np.int64
    assert pad([{"tokens": np.zeros(0, np.float32)}])["tokens"].dtype == np.float32
    shapes = [{"tokens": np.zeros((0, 2))}, {"tokens": np.ones((1, 2))}, {"tokens": []}]
    assert pad(shapes)["tokens"].shape == (3, 1, 2)
    assert pack(shapes, 3)["tokens"].shape == (3, 2)


@pytest.mark.parametrize("collate", [pad, lambda samples: pack(samples, 9)])
@pytest.mark.parametrize(
    ("samples", "problem", "fix"),
    [
        ([{"tokens": [1], "a": 1}, {"tokens": [1]}], 'field "a" is in some samples', "fields: [...]"),
        ([{"tokens": [1]}, {"tokens": [1], "b": 1}], 'field "b" is in some samples', "add them in `map`"),
        (
            [{"tokens": np.ones((1, 2))}, {"tokens": np.ones((1, 3))}],
            'field "tokens" is ragged in more',
            "pad the other",
        ),
        (
            [{"tokens": np.ones((4, 4, 3), np.uint8)}, {"tokens": np.ones((4, 4), np.uint8)}],
            'field "tokens" is ragged in more',
            "image: {size: [width, height], mode: RGB}",
        ),
        ([{"tokens": [2**70]}, {"tokens": [1]}], 'field "tokens" holds a whole number beyond int64', "text, in `map`"),
        ([{"tokens": [1], "weights": 3}], 'field "weights" of the samples has the name', "rename it in `map`"),
    ],
)
def test_what_cannot_be_put_together_names_the_field_and_the_remedy(
    collate: Any, samples: list[Any], problem: str, fix: str
) -> None:
    with pytest.raises(SampleError) as caught:
        collate(samples)
    assert caught.value.problem.startswith(problem)
    assert fix in str(caught.value.fix)


@pytest.mark.parametrize("collate", [pad, lambda samples, how: pack(samples, 9, how)])
def test_a_field_asked_for_that_no_sample_has_is_named_with_those_there_are(collate: Any) -> None:
    with pytest.raises(SampleError) as caught:
        collate([{"tokens": [1], "text": "a"}, {"tokens": [2], "text": "b"}], Collation(fields=("tokens", "txt")))
    error = caught.value
    assert error.problem == 'fields: field "txt" is in no sample of the micro-batch'
    assert error.found == "fields: tokens, text"
    assert error.fix == "did you mean `text`? Correct `fields: [...]`, or add the field in `map`"


@pytest.mark.parametrize(
    "samples", [[{"tokens": np.ones(2)}, {"tokens": "text"}], [{"tokens": np.ones(2)}, {"tokens": 3}]]
)
def test_arrays_beside_other_things_are_refused(samples: list[Any]) -> None:
    with pytest.raises(SampleError, match='field "tokens" has different types across samples'):
        pad(samples)


def test_a_name_that_padding_adds_is_not_overwritten() -> None:
    with pytest.raises(SampleError, match='field "tokens_mask" of the samples'):
        pad([{"tokens": [1], "tokens_mask": [1]}])
    with pytest.raises(SampleError, match='field "positions" of the samples'):
        pack([{"tokens": [1], "positions": [1]}], 4)


def test_more_than_pad_to_allows_is_refused() -> None:
    with pytest.raises(SampleError, match='field "tokens" is longer than `pad_to` allows'):
        pad([{"tokens": [1, 2, 3]}], length=2)


@pytest.mark.parametrize(
    ("value", "kind"), [(0.5, np.int64), (-1, np.uint8), (300, np.uint8), (1, "U3"), (1, "S3"), (1, "M8[s]")]
)
def test_a_padding_value_is_not_bent_to_fit(value: float, kind: Any) -> None:
    with pytest.raises(SampleError, match='field "tokens" cannot be padded with'):
        pad([{"tokens": np.ones(2, kind)}, {"tokens": np.ones(1, kind)}], Collation(pad_values={"tokens": value}))


def test_complex_numbers_are_padded_with_a_number() -> None:
    samples = [{"tokens": np.full(2, 1j, np.complex64)}, {"tokens": np.full(1, 2j, np.complex64)}]
    assert pad(samples, Collation(pad_values={"tokens": 0.5}))["tokens"].tolist() == [[1j, 1j], [2j, 0.5]]


@pytest.mark.parametrize("odd", [[1, None, 3], ["a", "b", "c"], [[1, 2], [3, 4], [5, 6]]])
def test_a_sequence_that_is_not_numbers_is_not_packed_as_a_list(odd: list[Any]) -> None:
    with pytest.raises(SampleError, match='field "tokens" of sample 1 of the micro-batch cannot be packed'):
        pack([{"tokens": [1, 2, 3]}, {"tokens": odd}], 9)


KINDS = ("<f4", "<f8", ">f4", "<i2", "|b1", "<u8", "<f2")


def unread(sample: Any, files: MemoryFiles) -> Any:
    """The sample with its arrays in a file; numpy's own where they are of a kind that is read at once."""
    if sample is None:
        return None
    found = {}
    for name, array in sample.items():
        path = files.write(f"memory://collate/{len(files.list('memory://collate/*'))}", b"tar header" + npy(array))
        file = open_file(files, path)
        stored = stored_array(Extent(file, 10, file.size))
        found[name] = array if stored is None else stored
    return found


def outcome(collate: Any) -> Any:
    """What a collation gives, to the last bit; or how it fails."""
    try:
        batch = collate()
    except SampleError as error:
        return str(error), getattr(error, "slot", None)
    return [(name, value.dtype.str, value.shape, value.tobytes()) for name, value in batch.items()]


class Plain(np.ndarray[Any, Any]):
    """An array that nothing is known of before its numbers are looked at."""


def looked_at(sample: Any) -> Any:
    return None if sample is None else {name: array.view(Plain) for name, array in sample.items()}


class Given:
    """Memory full of ones, and the arrays that it was given out as."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []

    def __call__(self, shape: Any, dtype: Any) -> Any:
        array = np.frombuffer(bytearray(b"\xff" * (int(np.prod(shape)) * dtype.itemsize)), dtype).reshape(shape)
        self.arrays.append(array)
        return array


@st.composite
def corpora(draw: st.DrawFn) -> list[Any]:
    """Samples of arrays of any lengths, `labels` along `tokens`, of one dtype or of several; and empty slots."""
    kinds = [np.dtype(kind) for kind in draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2))]
    inner = draw(st.sampled_from([(), (), (2,), (3, 1)]))
    found: list[Any] = []
    for _ in range(draw(st.integers(1, 6))):
        size = draw(st.sampled_from([0, 1, 3, 7]))
        kind = draw(st.sampled_from(kinds))
        labels = np.arange(size)
        found.append({"tokens": draw(stn.arrays(kind, (size, *inner))), "labels": labels})
    return [None if i and draw(st.integers(0, 9)) == 0 else sample for i, sample in enumerate(found)]


@given(
    samples=corpora(),
    dtype=st.none() | st.sampled_from(["float32", "int16", "float64"]),
    pad_value=st.sampled_from([0, -1, 0.5]),
    fields=st.none() | st.sampled_from([("tokens",), ("labels", "tokens")]),
    length=st.none() | st.sampled_from([0, 9]),
    size=st.none() | st.integers(0, 9),
    data=st.data(),
)
def test_arrays_that_are_not_read_yet_give_the_same_batch(
    samples: list[Any], dtype: Any, pad_value: float, fields: Any, length: Any, size: Any, data: st.DataObject
) -> None:
    dtypes = {} if dtype is None else {"tokens": np.dtype(dtype)}
    how = Collation(fields, "tokens", {"tokens": pad_value}, dtypes)
    files = MemoryFiles()
    some_read = [data.draw(st.integers(0, 5)) == 0 for _ in samples]
    stored = [sample if is_read else unread(sample, files) for sample, is_read in zip(samples, some_read, strict=True)]
    samples = [looked_at(sample) for sample in samples]  # the slow way
    shape = Shape(length, size)
    expected = outcome(lambda: padded(samples, how, shape, no_filler))
    assert outcome(lambda: padded(stored, how, shape, no_filler)) == expected
    assert outcome(lambda: padded(stored, how, shape, no_filler, Given())) == expected
    expected = outcome(lambda: packed(samples, how, 20, no_filler))
    assert outcome(lambda: packed(stored, how, 20, no_filler)) == expected
    assert outcome(lambda: packed(stored, how, 20, no_filler, Given())) == expected


def test_arrays_that_do_not_run_along_a_pack_are_a_list_of_arrays_that_are_read() -> None:
    pictures = [np.arange(12, dtype=np.uint8).reshape(2, 2, 3), np.ones((5, 4, 3), np.uint8)]
    samples = [{"picture": unread({"a": each}, MemoryFiles())["a"], "tokens": [1, 2, 3]} for each in pictures]
    found = packed(samples, HOW, 9, no_filler)["picture"]
    assert [type(each) for each in found] == [np.ndarray] * 2
    assert [each.tolist() for each in found] == [each.tolist() for each in pictures]
    assert pad([{"picture": pictures[0]}] * 3)["picture"].shape == (3, 2, 2, 3)


def test_a_foreign_byte_order_is_kept_and_is_the_machine_s_own_where_rows_are_added() -> None:
    sample = {"tokens": np.array([1.5, -2.5, 1e30], ">f4")}
    for given_as in (sample, unread(sample, MemoryFiles())):
        kept, own = pad([given_as])["tokens"], pad([given_as], size=2)["tokens"]
        assert (kept.dtype.str, own.dtype.str) == (">f4", np.dtype("f4").str)
        assert own[0].tolist() == kept[0].tolist() == sample["tokens"].tolist()


def test_every_array_of_a_batch_is_in_memory_that_was_given() -> None:
    samples: list[Any] = [{"tokens": [1, 2], "n": 1, "x": 0.5, "t": "a"} for _ in range(2)]
    longer = [{**sample, "a": np.ones((n, 2))} for n, sample in enumerate(samples)]
    for collate in (
        lambda memory: padded(longer, HOW, Shape(4, 5), no_filler, memory),
        lambda memory: packed(samples, HOW, 9, no_filler, memory),
    ):
        memory = Given()
        arrays = [value for value in collate(memory).values() if isinstance(value, np.ndarray)]
        assert {id(array) for array in arrays} == {id(array) for array in memory.arrays}


def test_large_arrays_are_padded_and_masked_as_small_ones() -> None:
    for size in (10, 100_000):
        samples: list[Any] = [{"tokens": np.full(n, n, np.float32)} for n in (size, 3, size - 1, 0)]
        batch = padded(samples, Collation(pad_values={"tokens": -1}), Shape(size + 2, 6), no_filler, Given())
        for i, n in enumerate((size, 3, size - 1, 0, 0, 0)):
            assert batch["tokens"][i].tolist() == [n] * n + [-1] * (size + 2 - n)
            assert batch["tokens_mask"][i].tolist() == [True] * n + [False] * (size + 2 - n)


@pytest.mark.parametrize(
    ("masks", "more", "expected"),
    [
        ("always", {}, {"tokens_mask", "words_mask"}),
        ("padded", {}, {"words_mask"}),
        ("padded", {"length": 3}, {"tokens_mask", "words_mask"}),
        ("padded", {"size": 3}, {"tokens_mask", "words_mask"}),
        ("never", {"length": 3, "size": 3}, set()),
    ],
)
def test_masks_are_left_out_where_the_recipe_says_so(masks: Any, more: dict[str, int], expected: set[str]) -> None:
    samples = [{"tokens": [1, 2], "words": [1]}, {"tokens": [3, 4], "words": [1, 2]}]
    batch = pad(samples, Collation(masks=masks), **more)
    assert {name for name in batch if name.endswith("_mask")} == expected
    assert {"tokens_lengths", "words_lengths"} <= batch.keys()


def test_objects_are_never_in_memory_that_was_given() -> None:
    kind = np.dtype([("a", object)])
    memory = Given()
    batch = padded([{"tokens": np.array([("x",)], kind)}], HOW, Shape(), no_filler, memory)
    assert batch["tokens"]["a"].tolist() == [["x"]]
    assert all(array.dtype != kind for array in memory.arrays)
