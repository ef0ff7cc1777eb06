from __future__ import annotations

import pytest

from playhead import RecipeError
from playhead.recipe.text import Ambiguous, read_plain


def write(tmp_path, text, name="recipe.yaml"):
    file = tmp_path / name
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e6", 1e6),
        ("-1.5E-3", -1.5e-3),
        ("010", 10),
        ("0x10", 16),
        ("true", True),
        ("~", None),
        ("2024-01-01", "2024-01-01"),
        ("12:30", "12:30"),
        ("no", "no"),
        ("3 apples", "3 apples"),
    ],
)
def test_scalars_follow_yaml_1_2(tmp_path, text, value):
    found = read_plain(write(tmp_path, f"a: {text}"))["a"]
    assert found == value
    assert isinstance(found, bool) == isinstance(value, bool)


def test_words_that_were_truth_values_in_yaml_1_1_are_marked(tmp_path):
    found = read_plain(write(tmp_path, "[no, On, 'no']"))
    assert [isinstance(word, Ambiguous) for word in found] == [True, True, False]


def test_a_syntax_error_names_file_line_and_column(tmp_path):
    file = write(tmp_path, "sources:\n  - name: a\n   path: b\n")
    with pytest.raises(RecipeError) as caught:
        read_plain(file)
    assert caught.value.problem == f"{file}, line 3, column 4: not valid YAML"


def test_a_key_given_twice_is_refused_with_its_line(tmp_path):
    with pytest.raises(RecipeError, match=r"line 2, column 1") as caught:
        read_plain(write(tmp_path, "seed: 1\nseed: 2\n"))
    assert "`seed` is given twice" in str(caught.value)


def test_a_merged_key_may_be_overridden(tmp_path):
    text = "base: &base {a: 1, b: 2}\nchild:\n  <<: *base\n  a: 3\n"
    assert read_plain(write(tmp_path, text))["child"] == {"a": 3, "b": 2}


@pytest.mark.parametrize("name", ["recipe.yaml", "recipe.json"])
def test_an_empty_file_is_refused(tmp_path, name):
    with pytest.raises(RecipeError, match="is empty"):
        read_plain(write(tmp_path, "\n", name))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="no such recipe file"):
        read_plain(tmp_path / "recipe.yaml")


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="cannot be read"):
        read_plain(tmp_path)


def test_bytes_that_are_not_text_are_refused(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_bytes(b"a: \xff\xfe")
    with pytest.raises(RecipeError, match="not UTF-8"):
        read_plain(file)


def test_json_is_read_by_its_suffix_and_has_the_same_rules(tmp_path):
    assert read_plain(write(tmp_path, '{"a": [1,\t2]}', "recipe.json")) == {"a": [1, 2]}
    with pytest.raises(RecipeError, match="`a` is given twice"):
        read_plain(write(tmp_path, '{"a": 1, "a": 2}', "recipe.json"))
    with pytest.raises(RecipeError, match="line 2, column 5: not valid JSON"):
        read_plain(write(tmp_path, '{"a": 1,\n"b" 2}', "recipe.json"))


def test_tags_that_run_code_are_refused(tmp_path):
    with pytest.raises(RecipeError, match="not valid YAML"):
        read_plain(write(tmp_path, "a: !!python/object/apply:os.getcwd []"))


def test_very_deep_nesting_is_an_error_of_ours(tmp_path):
    with pytest.raises(RecipeError, match="nested too deeply"):
        read_plain(write(tmp_path, "[" * 5000))


def test_a_list_as_a_key_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="unhashable key"):
        read_plain(write(tmp_path, "{[a, b]: 1}"))


def test_two_merges_into_one_mapping_are_no_repeated_key(tmp_path):
    text = "a: &a {x: 1}\nb: &b {y: 2}\nc:\n  <<: *a\n  <<: *b\n"
    assert read_plain(write(tmp_path, text))["c"] == {"x": 1, "y": 2}
