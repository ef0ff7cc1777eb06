"""Every code block in README.md, docs/ and the skills runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs_runner import DocsError, run_page
from playhead.recipe.field_docs import FIELD_DOCS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "skills").glob("*/*.md"))]
HEAVY = {"trainers.md": pytest.mark.trainers, "verify.md": pytest.mark.full}


@pytest.mark.parametrize("page", [pytest.param(page, marks=HEAVY.get(page.name, ()), id=page.name) for page in PAGES])
def test_every_block_of_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as for a script in the directory
    run_page(page, tmp_path)


def test_the_recipe_page_explains_every_field():
    text = "".join((ROOT / "docs" / page).read_text() for page in ("recipe.md", "conversations.md"))
    missing = {field for fields in FIELD_DOCS.values() for field in fields if f"`{field}`" not in text}
    assert not missing


GOOD_PAGE = """<!-- setup: make_data -->
```yaml
# file: recipe.yaml
sources:
  - {name: web, path: web.jsonl}
batching: {type: fixed, size: 2}
```
```python
import playhead
recipe = playhead.Recipe.load("recipe.yaml")
```
Then
```python
assert recipe.batching.size == 2
```
```python
# file: half.py
assert False, "not run here"
```
```console
$ tail -1 half.py
assert False, "not run here"
$ echo one; echo two; echo three
one
...
three
$ true
```
<!-- exit: 3 -->
```console
$ exit 3
```
```text
not run
```
"""

BAD_PAGES = {
    "an exception": ("```python\n1 / 0\n```\n", "line 1: ZeroDivisionError"),
    "a failed assertion": ("\n\n```python\nassert 1 == 2\n```\n", "line 3: AssertionError"),
    "a failing command": ("```console\n$ false\n```\n", "exited with 1, not 0"),
    "a command that should fail": ("<!-- exit: 1 -->\n```console\n$ true\n```\n", "exited with 0, not 1"),
    "other output": ("```console\n$ echo one\ntwo\n```\n", "printed\none"),
    "more output": ("```console\n$ echo one; echo two\none\n```\n", "printed\none\ntwo"),
    "output of an earlier command": ("```console\n$ echo one\ntwo\n$ true\n```\n", "printed\none"),
    "no command": ("```console\nplayhead schema\n```\n", "must begin with"),
    "bash": ("```bash\ntrue\n```\n", "kind `bash`"),
    "no kind": ("```\ntrue\n```\n", "kind ``"),
    "broken YAML": ("```yaml\na: [\n```\n", "ParserError"),
    "a broken recipe": (
        "```yaml\nsources: []\nbatching: {type: fixed, size: 1}\n```\n",
        "RecipeError: sources: is empty",
    ),
    "a name of another page": ("```python\nrecipe\n```\n", "NameError"),
    "an open fence": ("```python\n1\n", "not closed"),
}


def test_a_true_page_passes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(GOOD_PAGE)
    run_page(page, tmp_path)


@pytest.mark.parametrize(("text", "words"), BAD_PAGES.values(), ids=BAD_PAGES.keys())
def test_an_untrue_page_fails(text, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(DocsError) as caught:
        run_page(page, tmp_path)
    assert words in str(caught.value)
