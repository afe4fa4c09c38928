# Two commands do everything: `make demo` and `make test`. Both make their own environment in .venv
# from Python alone, through the pinned versions in constraints.txt, and reuse it when nothing changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
# The tests of a file stay with one of two workers, and the files come in their order: the slowest, end to end,
# first. Files asked for by name need no workers.
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test lint types tests campaign coverage docs package oldest wheels format clean

demo: $(VENV)/.installed
	@echo "==> elmokit demo"
	@$(BIN)/elmokit demo

test: lint types tests

lint: $(VENV)/.installed
	@echo "==> ruff: style and mistakes"
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .

types: $(VENV)/.installed
	@echo "==> mypy: strict types"
	@$(BIN)/mypy

tests: $(VENV)/.installed
	@echo "==> pytest: unit, property, parity and end-to-end tests, the import layers, the docs' snippets"
	@OMP_NUM_THREADS=1 $(BIN)/pytest $(if $(findstring .py,$(TESTS)),,$(WORKERS)) $(TESTS)

# The long version of tests/campaign, of which `make test` runs a small part.
campaign: $(VENV)/.installed
	@echo "==> pytest: the campaign against odd tables and damage"
	@OMP_NUM_THREADS=1 ELMOKIT_CAMPAIGN=1 $(BIN)/pytest -s tests/campaign

docs: $(VENV)/.docs
	@echo "==> mkdocs: the pages and the API reference, in site/"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Branch coverage, also of the processes that tests start: the total, and the files with the lowest.
coverage: $(VENV)/.installed
	@echo "==> pytest with branch coverage"
	@OMP_NUM_THREADS=1 $(BIN)/pytest $(if $(findstring .py,$(TESTS)),,$(WORKERS)) --cov --cov-report= $(TESTS)
	@$(BIN)/coverage report --format=total | sed 's/.*/==> total: & %/'
	@$(BIN)/coverage report --sort=cover --skip-covered | head -n 25

# Wheel and sdist in dist/, after the wheel has worked without extras in an empty environment elsewhere.
package: $(VENV)/.installed
	@$(BIN)/python release/package.py

# The lower bounds of pyproject.toml, torch's excepted: its old wheels are gigabytes.
oldest: $(OLDEST)/.installed
	@echo "==> pytest with the oldest versions that pyproject.toml allows"
	@OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest $(if $(findstring .py,$(TESTS)),,$(WORKERS)) $(TESTS)

# Which wheels pip finds for each supported Python: the table in docs/installing.md. Downloads four gigabytes.
wheels: $(VENV)/.installed
	@$(BIN)/python release/wheels.py

format: $(VENV)/.installed
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(OLDEST) site elmokit-demo build dist .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "==> Making the environment $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt -e '.[dev,hub,morpheme,official,serve]'
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

$(OLDEST)/.installed: pyproject.toml constraints.txt | $(VENV)/.installed
	@echo "==> Making the environment $(OLDEST)"
	@$(PYTHON) -m venv $(OLDEST)
	@$(BIN)/python release/requirements.py > $(OLDEST)/constraints.txt
	@$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check \
		-c $(OLDEST)/constraints.txt -e '.[hub,model2vec,morpheme,official,search,serve,static]' pytest pytest-xdist hypothesis httpx
	@touch $@
