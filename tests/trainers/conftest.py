"""These tests need Lightning, transformers and Accelerate: `make test-trainers` installs them."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("lightning") and find_spec("transformers") else ["test_*.py"]
