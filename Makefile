# Two commands on a fresh machine with Python and make: `make demo` and `make test`.
# Both share the virtual environment in .venv; set-up runs once, and again when pyproject.toml changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.installed-core
TEST := $(VENV)/.installed-test
TRAINERS := $(VENV)/.installed-trainers
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test test-quick test-full test-trainers lint bench

demo: $(CORE)
	@$(BIN)/playhead demo

# Both cores are used; what is skipped is named. tests/conftest.py says which tests stay together, and which come first.
PYTEST := $(BIN)/python -m pytest -n 2 -rs

test: lint
	@$(PYTEST) -m "not full and not trainers"

# For everyday work: no commands, no kills, no clusters or servers, and a third of the examples.
SLOW := tests/golden/test_golden_payloads.py tests/index/test_damage.py tests/laws/test_loader_laws.py \
  tests/laws/test_real_files.py tests/read/test_codecs.py tests/read/test_images.py tests/store/test_files_contract.py \
  tests/store/test_remote.py tests/store/test_aistore.py tests/store/test_objects.py tests/store/test_real_servers.py
test-quick: $(TEST)
	@HYPOTHESIS_PROFILE=quick $(PYTEST) $(SLOW:%=--ignore %) tests/deal tests/golden tests/index tests/laws tests/read \
	  tests/resolve tests/recipe tests/store

# A browser and servers of objects are installed where we may; where we may not, the tests that need them say so.
# nginx is installed without being started: tests start their own.
DEBIAN := chromium:chromium nginx:nginx iproute2:tc fuse3:fusermount3 # a package, and a command of it
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends
test-full: $(TEST)
	@for each in $(DEBIAN); do PATH="$$PATH:/usr/sbin" command -v $${each#*:} >/dev/null || { test "$$(id -u)" = 0 \
	  && command -v apt-get >/dev/null && apt-get -qq update && RUNLEVEL=1 $(APT) $${each%:*} >/dev/null; } \
	  || echo "$${each%:*} is not installed and cannot be installed here"; done
	@test -x $(VENV)/node_modules/.bin/azurite-blob || { command -v npm >/dev/null \
	  && npm install --silent --no-fund --no-audit --prefix $(VENV) azurite >/dev/null; } \
	  || echo "azurite is not installed and cannot be installed here"
	@$(PYTEST) -m full

# Lightning and transformers are heavy: they are installed when first asked for, beside the same torch.
test-trainers: $(TRAINERS)
	@$(PYTEST) -m trainers

lint: $(TEST)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: $(CORE)
	@for file in $$(grep -l __main__ benchmarks/*.py); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Playhead needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  rm -rf $(VENV); echo "Could not make a virtual environment; on Debian: apt install python3-venv" >&2; exit 1; }

$(CORE): pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "Installing Playhead into $(VENV) ..."
	@$(PIP) install -e '.[arrow]'
	@touch $@

# The test extra contains the core, so either order of `make demo` and `make test` installs everything once.
$(TEST): pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "Installing Playhead and its test tools into $(VENV) ..."
	@$(PIP) install -e '.[test]'
	@$(PIP) install --no-deps nemo-curator==1.4.0  # two of its files are an oracle; its dependencies are heavy
	@rm -rf $(VENV)/lhotse2  # beside 1.33, for tests that run it in a process of its own
	@$(PIP) install --no-deps --target $(VENV)/lhotse2 lhotse==2.0.0a7
	@touch $(CORE) $@

$(TRAINERS): pyproject.toml $(TEST)
	@echo "Installing Lightning and transformers into $(VENV) ..."
	@$(PIP) install -e '.[test,trainers]'
	@touch $(CORE) $(TEST) $@
