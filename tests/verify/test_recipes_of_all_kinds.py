"""Sound recipes of every kind are proved; what is asked of them depends on what they are and on the options."""

from __future__ import annotations

from pathlib import Path

import pytest

from deliveries import stream
from loopback import serving
from playhead.prepare import prepare
from playhead.recipe.check import check
from playhead.recipe.tree import leaves
from playhead.recipe.values import Recipe
from playhead.verify.job import LoaderOptions, RankJob
from playhead.verify.recipes import one_pass, private_cache
from playhead.verify.runs import elastic_path
from playhead.verify.settings import VerifySettings, default_steps, default_world, save_places
from verified import by_question, outcomes, two_sources, verified, write_recipe

SHORT = ("drop", "passes")  # of few steps: memory is not asked about


@pytest.mark.parametrize(
    "kind",
    ["zip", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("by weight", "pack", "parts", *SHORT))],
)
def test_a_sound_recipe_is_proved(kind: str, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, stream(tmp_path, kind))
    report = verified(recipe, tmp_path / "records")
    expected = dict.fromkeys(outcomes(report), "passed") | ({"Q11": "not asked"} if kind in SHORT else {})
    assert outcomes(report) == expected
    assert report.is_proved


def test_one_pass_is_a_recipe_without_weights(tmp_path: Path) -> None:
    for kind in ("by weight", "zip", "parts", "stop_all"):
        found = one_pass(stream(tmp_path, kind))
        check(found)
        assert found.epochs == 1
        assert all(leaf.source.weight is None for leaf in leaves(found) if leaf.evaluation is None)


def test_without_payload_picks_are_proved_and_nothing_is_read(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, two_sources(tmp_path, map="loader_maps:unsendable"))
    for path in tmp_path.glob("text-*.jsonl"):
        size = path.stat()
        path.write_bytes(b"x" * size.st_size)  # nobody will notice
    report = verified(recipe, tmp_path / "records", "Q1", "Q3", "Q4", "Q5", "Q6", "Q10", "Q12", payload=False)
    assert set(outcomes(report).values()) == {"passed"}
    assert by_question(report)["Q5"].evidence[0].endswith("are equal in their samples, rank by rank")
    assert "not asked: tensors: --threads" in by_question(report)["Q12"].evidence


def test_a_recipe_over_a_store_is_delivered_alike_by_every_kind_of_worker(tmp_path: Path) -> None:
    """Tensors come from processes that torch would fork, of a rank that has read the store by then."""
    recipe = two_sources(tmp_path)
    objects = {f"/bucket/{path.name}": path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    values = recipe.to_dict()
    with serving(objects) as server:
        # Not in the environment: a fork server that runs already has another one.
        store = {"endpoint_url": server.address, "allow_http": True, "skip_signature": True, "region": "loopback"}
        for source in values["sources"]:
            source |= {"path": [f"s3://bucket/{Path(path).name}" for path in source["path"]], "store": store}
        path = write_recipe(tmp_path, Recipe.parse(values))
        report = verified(path, tmp_path / "records", "Q12", options=LoaderOptions(2))
    assert outcomes(report) == {"Q12": "passed"}
    assert "not asked: tensors" not in " ".join(by_question(report)["Q12"].evidence)


def test_a_sample_of_a_pass_is_made_of_whole_windows(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, two_sources(tmp_path))
    found = by_question(verified(recipe, tmp_path / "records", "Q1", "Q2", "Q3", sample=50))
    assert [verdict.outcome for verdict in found.values()] == ["passed"] * 3
    assert found["Q1"].evidence[-1] == "a sample: 2 whole windows, 96 of the 259 samples of a pass"
    assert found["Q2"].evidence[0] == "96 rows, none twice, as many as their windows have draws"
    broken = verified(recipe, tmp_path / "broken", "Q2", sample=50, loader="broken_loaders:drops_a_sample")
    assert outcomes(broken) == {"Q2": "skipped"}


@pytest.mark.full
def test_bad_samples_that_are_replaced_are_no_failure(tmp_path: Path) -> None:
    fields = {"map": "loader_maps:broken_in_places", "on_error": "substitute", "max_bad": 1.0}
    recipe = write_recipe(tmp_path, two_sources(tmp_path, **fields))
    report = verified(recipe, tmp_path / "records", "Q2", "Q4", "Q5", "Q6")
    assert set(outcomes(report).values()) == {"passed"}
    assert not (tmp_path / ".playhead" / "quarantine").exists()


def test_runs_write_to_a_cache_of_their_own(tmp_path: Path) -> None:
    recipe = two_sources(tmp_path)
    prepare(recipe, workers=1)
    (tmp_path / ".playhead" / "quarantine").mkdir()
    private = Path(private_cache(recipe, tmp_path / "private"))
    names = {path.name for path in (tmp_path / ".playhead").iterdir()} - {"quarantine"}
    assert {path.name for path in private.iterdir()} == names
    assert all(path.is_symlink() for path in private.iterdir())


def test_other_numbers_of_ranks_are_all_gone_through_and_the_first_again() -> None:
    settings = VerifySettings(Path("r"), Path("x"), 2, LoaderOptions(), 48)
    for world_size, lanes in ((2, 8), (1, 8), (3, 12), (4, 4), (1, 1), (2, 2)):
        chosen = VerifySettings(Path("r"), Path("x"), world_size, LoaderOptions(), 48)
        place, worlds = elastic_path(world_size, lanes, save_places(chosen, 48, lanes))
        assert place is not None
        assert worlds[-1] == world_size
        assert len(worlds) >= 2
        assert {*worlds} == {world for world in range(1, lanes + 1) if lanes % world == 0}
    assert [place.name for place in save_places(settings, 48, 8)] == ["after-000012", "after-000024", "inside"]


def test_defaults_depend_on_the_lanes() -> None:
    assert [default_world(lanes) for lanes in (1, 2, 3, 8, 9, 35)] == [1, 2, 3, 2, 3, 5]
    assert [default_steps(lanes) for lanes in (1, 8, 32, 512)] == [48, 48, 16, 8]


@pytest.mark.full
def test_more_ranks_than_processes_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    recipe = write_recipe(tmp_path, two_sources(tmp_path, lanes=8, window_size=48))
    report = verified(recipe, tmp_path / "records", "Q6", loader="broken_loaders:plain")
    assert outcomes(report) == {"Q6": "passed"}
    job = RankJob.read(tmp_path / "records" / "elastic-2-on-8" / "job.json")
    assert (job.world_size, job.num_processes) == (8, 2)
