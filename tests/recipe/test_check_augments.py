from __future__ import annotations

import pytest

from playhead import Recipe
from playhead.recipe.augments import Crop, Gain, Noise, Pad, Speed
from playhead.recipe.tree import augment_keys, augments_of, branches, evaluation_branch, leaves
from recipe.recipes import FIXED, recipe, refusal, source

SECONDS = {"field": "duration", "unit": "seconds"}
SPEED = {"type": "speed", "factors": [0.9, 1.0, 1.1]}
CROP = {"type": "crop", "seconds": 5.0}
GAIN = {"type": "gain", "decibels": [-6, 6]}
NOISE = {"type": "noise", "source": "street", "snr": [5, 20], "probability": 0.5}
PAD = {"type": "pad", "seconds": 2.0}
STREET = source("street")


def augmented(*augments, **fields):
    return recipe(source(length=SECONDS), augment=list(augments), **fields)


GOOD = {
    "all augmentations": augmented(SPEED, CROP, GAIN, NOISE, PAD, noises=[STREET]),
    "augmentations of a source": recipe(
        source(length=SECONDS, augment=[GAIN]), source("b", length=SECONDS, augment=[])
    ),
    "augmentations of another field": recipe(augment=[{**CROP, "field": "wav"}]),
    "gain of the sequence in tokens": recipe(augment=[{**GAIN, "field": "tokens"}]),
    "noises that nothing draws on": recipe(noises=[STREET]),
    "noise of another field": augmented({**NOISE, "noise_field": "wav"}, noises=[STREET]),
}

BAD = {
    "an augmentation that is not known": (augmented({"type": "gian"}), "augment[0].type: is an unknown kind"),
    "one without a type": (augmented({"seconds": 1}), "augment[0].type: is missing"),
    "a key of another": (augmented({**GAIN, "seconds": 1}), "augment[0].seconds: unknown key"),
    "no range": (augmented({**GAIN, "decibels": 3}), "augment[0].decibels: invalid value"),
    "a range that is empty": (augmented({**GAIN, "decibels": [6, -6]}), "augment[0].decibels: the range is empty"),
    "too loud": (augmented({**GAIN, "decibels": [0, 500]}), "augment[0].decibels: is beyond what audio"),
    "no factors": (augmented({**SPEED, "factors": []}), "augment[0].factors: is empty"),
    "a factor of nothing": (augmented({**SPEED, "factors": [1, 0]}), "augment[0].factors[1]: invalid value"),
    "a factor far too fast": (augmented({**SPEED, "factors": [50]}), "augment[0].factors[0]: is not a factor of speed"),
    "no seconds": (augmented({**CROP, "seconds": 0}), "augment[0].seconds: invalid value"),
    "days of silence": (augmented({**PAD, "seconds": 1e6}), "augment[0].seconds: is too long"),
    "a chance above 1": (augmented({**PAD, "probability": 1.5}), "augment[0].probability: invalid value"),
    "noise from nowhere": (augmented(NOISE), "augment[0].source: is not one of `noises`"),
    "a source's noise from nowhere": (recipe(source(augment=[NOISE])), "sources[0].augment[0].source: is not one of"),
    "an empty range of noise": (augmented({**NOISE, "snr": [9, 3]}, noises=[STREET]), "augment[0].snr: the range is"),
    "a weight of noise": (recipe(noises=[{**STREET, "weight": 2}]), 'noises[0] "street": a source of noise has no `we'),
    "augmented noise": (recipe(noises=[{**STREET, "augment": [GAIN]}]), 'noises[0] "street": a source of noise has no'),
    "shuffled noise": (recipe(noises=[{**STREET, "shuffle": "global"}]), "noises[0].shuffle: rows of noise are drawn"),
    "noise without a path": (recipe(noises=[{"name": "street"}]), 'noises[0] "street": `path` is missing'),
    "two noises of one name": (recipe(noises=[STREET, STREET]), 'noises[1] "street": the name is already taken'),
    "noise under the name of a source": (
        recipe(noises=[source("a", path="b.jsonl")]),
        'noises[0] "a": differs in `path` from sources[0]',
    ),
    "lengths of two fields": (augmented(CROP, {**PAD, "field": "wav"}), 'augment: the lengths of "a" cannot follow'),
    "lengths in tokens": (recipe(augment=[CROP], sequence="audio"), 'augment: the lengths of "a" cannot follow it'),
}


@pytest.mark.parametrize("good", GOOD.values(), ids=GOOD)
def test_augmentations_that_can_be_are_read_and_written_again(good):
    found = Recipe.parse(good, "/data")
    assert Recipe.parse(found.to_dict(), "/elsewhere") == found


@pytest.mark.parametrize(("bad", "problem"), BAD.values(), ids=BAD)
def test_those_that_cannot_be_are_refused_with_their_place(bad, problem):
    assert refusal(bad).problem.startswith(problem)


def test_a_noise_that_is_nearly_named_is_suggested():
    assert refusal(augmented({**NOISE, "source": "streets"}, noises=[STREET])).fix == "did you mean `street`?"


def test_the_values_are_as_the_recipe_says():
    found = Recipe.parse(GOOD["all augmentations"], "/data")
    assert found.augment == [
        Speed(factors=[0.9, 1.0, 1.1]),
        Crop(seconds=5.0),
        Gain(decibels=(-6.0, 6.0)),
        Noise(source="street", snr=(5.0, 20.0), probability=0.5),
        Pad(seconds=2.0),
    ]


def test_a_source_has_its_own_augmentations_else_the_recipes():
    found = Recipe.parse(recipe(source("a"), source("b", augment=[GAIN]), source("c", augment=[]), augment=[CROP]), "/")
    listed = [augments_of(found, leaf) for leaf in branches(found)[0].leaves()]
    assert listed == [(Crop(seconds=5.0),), (Gain(decibels=(-6.0, 6.0)),), ()]


def test_evaluation_sets_have_only_augmentations_of_their_own():
    sets = {"dev": {"sources": [source("a"), source("b", augment=[GAIN])], "batching": FIXED}}
    found = Recipe.parse(recipe(source("a"), augment=[CROP], evaluation=sets), "/data")
    listed = [augments_of(found, leaf) for leaf in evaluation_branch(found, "dev").leaves()]
    assert listed == [(), (Gain(decibels=(-6.0, 6.0)),)]


def test_noises_are_sources_to_prepare_and_not_augmented():
    found = Recipe.parse(recipe(augment=[CROP], noises=[STREET]), "/data")
    *_, noise = leaves(found)
    assert (noise.path, noise.source.path, augments_of(found, noise)) == ("noises[0]", ["/data/street.jsonl"], ())


def test_another_augmentation_leaves_the_keys_of_the_others():
    def keys(*augments):
        found = Recipe.parse(recipe(augment=list(augments)), "/data")
        return augment_keys(found, leaves(found)[0])

    crop, pad = keys(CROP, PAD)
    assert keys(GAIN, CROP, PAD, CROP) == (keys(GAIN)[0], crop, pad, keys(CROP, CROP)[1])
    assert len({*keys(CROP, CROP, PAD, GAIN)}) == 4
