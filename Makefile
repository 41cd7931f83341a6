# Two commands do all the set-up: `make demo` and `make test`.
# For every make that has `?=` (GNU from 3.81, which macOS has; BSD), and a POSIX shell.
PYTHON ?= python3
# The FAISS build: cpu or gpu. They install the same module, so one at a time.
FAISS ?= cpu
VENV = .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check
INSTALL = $(PIP) install --quiet --constraint constraints.txt
# Whole files of tests go to one of two processes: tests/conftest.py says which go together.
PYTEST = $(BIN)/pytest --numprocesses 2 --dist loadgroup --no-loadscope-reorder
# The pages of `mine` and `ablation` are bytes of their artifacts: another word would mine, and so train, again.
UNREAD = pipeline/negatives/page.py pipeline/report/negatives.html pipeline/report/ablation.html
# Tests that start processes, wait for locks, build shards or open many files.
PORTABLE = tests/pipeline/runtime tests/pipeline/dense/test_encode.py tests/pipeline/negatives/test_mine.py \
	tests/pipeline/finetune/scheduling/test_scheduler.py tests/artifacts/test_kill.py tests/tasks/test_locks.py

.PHONY: demo up test test-slow test-portable coverage check bench equivalent format clean help

help:
	@echo "make demo       install, then run the whole pipeline on the Python documentation of this environment"
	@echo "make up         Prefect server, worker and deployments; Ctrl-C ends all"
	@echo "make test       the tests (make test-slow: kills, browser, real server)"
	@echo "make test-portable   tests without what macOS lacks: prctl, fork, /proc, CPU affinity, 256 open files"
	@echo "make coverage   the quick tests, and the share of lines of each folder that they run"
	@echo "make check      format, lint, types, import directions, words, docker files"
	@echo "make bench      the benchmarks (half an hour); writes results.json and the tables of both READMEs"
	@echo "make equivalent SINCE=COMMIT   which stages build the same bytes as that commit (half an hour)"
	@echo "make clean      remove $(VENV) (the store stays)"

demo: $(VENV)/.installed
	@$(BIN)/cocondenser run pydocs-small

up: $(VENV)/.installed
	@$(BIN)/cocondenser up

test: $(VENV)/.installed-dev
	$(PYTEST) -m "not slow and not gpu"

test-slow: $(VENV)/.installed-dev
	$(PYTEST) -m "slow and not gpu"

# The module sitecustomize of that folder hides what macOS lacks, from the tests and from all that they start.
test-portable: $(VENV)/.installed-dev
	PYTHONPATH="$$PWD/tests/support/hidden" $(PYTEST) -m "not slow and not gpu" $(PORTABLE)

# Of child processes too. SLOW=1 adds the slow tests.
coverage: $(VENV)/.installed-dev
	$(BIN)/coverage erase
	if test -n "$(SLOW)"; then marks="not gpu"; else marks="not slow and not gpu"; fi; \
		$(PYTEST) --cov --cov-report= -m "$$marks"
	@for folder in pipeline artifacts tasks flows; do \
		echo "$$folder: $$($(BIN)/coverage report --format=total --precision=1 --include="$$folder/*") %"; \
	done

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/words.py --skip $(UNREAD)
	if test -x $(BIN)/hadolint; then $(BIN)/hadolint docker/Dockerfile; \
	else echo "docker/Dockerfile is not checked: there is no hadolint for this machine"; fi
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker/compose.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

bench: $(VENV)/.installed-dev
	$(INSTALL) --editable '.[$(FAISS),dev,bench]'
	$(BIN)/python -m benchmarks --write

# After a refactoring: artifacts of the commit SINCE stay valid where today's code builds the same bytes.
equivalent: $(VENV)/.installed-dev
	$(BIN)/python -m tasks.equivalent_code $(SINCE)

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch first and alone: where a CPU build is available, pip then keeps it instead of fetching CUDA's libraries.
$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing into $(VENV) (some minutes, once) ..."
	$(INSTALL) "$$(grep '^torch==' constraints.txt)"
	$(INSTALL) --editable '.[$(FAISS),demo]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) --editable '.[$(FAISS),dev]'
	@touch $@
