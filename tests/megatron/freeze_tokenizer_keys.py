"""Regenerates `tokenizer_keys.json`: the keys that each release of megatron-core on PyPI makes of many command lines.

    python tests/megatron/freeze_tokenizer_keys.py

is run in the environment of the tests, from anywhere. It installs each release into a temporary directory (without its
dependencies, and whatever Python it asks for: only its tokenizers are imported), asks it in a process of its own, and
writes the file, which `test_tokenizer_keys.py` compares with ours. It takes a minute and the network. Run it again when
a release is added to `releases.py`, and commit what changed. The main branch is not on PyPI.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from tokenizer_cases import arguments_of, command_line, options_of, types_of

TARGET = Path(__file__).with_name("tokenizer_keys.json")
VERSIONS = {"0.15": "0.15.3", "0.16": "0.16.1", "0.17": "0.17.1", "0.18": "0.18.2", "0.19": "0.19.2"}
_EACH_FAMILY = (
    "GPT2BPETokenizer",
    "Llama2Tokenizer",
    "TikTokenizer",
    "HuggingFaceTokenizer",
    "SFTTokenizer",
    "NullTokenizer",
)


def freeze() -> None:
    lines = []
    for release, version in VERSIONS.items():
        with tempfile.TemporaryDirectory() as directory:
            install = ["install", "-q", "--no-deps", "--ignore-requires-python", "--no-compile", "--target", directory]
            subprocess.run([sys.executable, "-m", "pip", *install, f"megatron-core=={version}"], check=True)
            paths = [directory, *(path for path in sys.path if path)]
            asked = subprocess.run(
                [sys.executable, __file__, release, directory],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
        lines += asked.stdout.splitlines()
    TARGET.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def ask(release: str, directory: str) -> None:
    """Print the key of each type without options, with all, and, for one of each family, with one that changes it."""
    build_tokenizer = _import(directory)
    for kind in types_of(release):
        options = options_of(release)
        plain = _key(build_tokenizer, release, command_line(kind, []))
        seen = [plain]
        singles = [[option] for option in options] if kind in _EACH_FAMILY else []
        for chosen in ([], *singles, options):
            words = command_line(kind, chosen)
            key = _key(build_tokenizer, release, words)
            if not chosen or chosen is options or key not in seen:
                print(json.dumps({"release": release, "words": words, "key": key}))
                seen.append(key)


def _import(directory: str) -> Any:
    """`build_tokenizer` without the rest of the package, which wants a GPU's libraries, and without opening a model."""
    core = types.ModuleType("megatron.core")
    core.__path__ = [str(Path(directory) / "megatron" / "core")]
    sys.modules["megatron.core"] = core
    importlib.import_module("megatron.core.parallel_state")  # first: it and `utils` import each other
    text = importlib.import_module("megatron.core.tokenizers.text.text_tokenizer")
    assert str(text.__file__).startswith(directory)
    text.MegatronTokenizerText._restore_model = lambda *_, **__: None
    try:
        found = importlib.import_module("megatron.core.tokenizers.utils.build_tokenizer")
    except ModuleNotFoundError:  # up to 0.16
        found = importlib.import_module("megatron.core.tokenizers.text.utils.build_tokenizer")
    return found.build_tokenizer


def _key(build_tokenizer: Any, release: str, words: list[str]) -> dict[str, Any]:
    return dict(build_tokenizer(arguments_of(words, release)).unique_identifiers)


if __name__ == "__main__":
    if sys.argv[1:]:
        ask(*sys.argv[1:])
    else:
        freeze()
