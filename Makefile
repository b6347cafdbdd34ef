# Every target is safe to repeat. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3.11
STATE := $(abspath .tidegate)
export TIDEGATE_WAREHOUSE ?= $(STATE)/warehouse
export TIDEGATE_LANDING ?= $(STATE)/landing
# A pipeline starts hundreds of Python processes: none should compile what another one has compiled.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
CLASSES := .venv/spark_classes/archive.jsa
JARS := .venv/jars/.complete
PIPELINE := dags/pipelines/flights
SQL_PORT ?= 15432
SPARK ?= 4.3.0
OTHER_SPARK = $(STATE)/spark-$(SPARK)
PACKAGES := spark_apps/tidegate dags/tidegate_dags expectations
# Three processes for two cores, as they often wait; tests that share what is dear to make stay on one of them
# (tests/conftest.py). One by one: make test WORKERS=
WORKERS ?= -n 3 --no-loadscope-reorder
# The demo's days: twelve days of flights that teach it, then the storm of 8 and 9 February 2013.
# Airflow runs the last interval.
DEMO_FROM ?= 2013-01-27T00
DEMO_STORM := 2013-02-08T00
DEMO_AIRFLOW_FROM ?= 2013-02-09T23
DEMO_TO := 2013-02-10T00

.PHONY: help setup demo up down sql test test-unit coverage test-examples test-slow test-spark attack test-research test-wheel figures bench docs lint format lock wheel clean

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.complete $(JARS) ## Install everything into .venv (Python 3.11 and Java 17 must be there)

.venv/.complete: requirements.lock infra/bootstrap.lock pyproject.toml setup.py
	@bash infra/check_machine.sh "$(PYTHON)"
	@echo "setup: installing the locked environment into .venv (1 to 3 minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r infra/bootstrap.lock
	@VIRTUAL_ENV=$(CURDIR)/.venv $(BIN)/uv pip sync --quiet --compile-bytecode --require-hashes requirements.lock
	@VIRTUAL_ENV=$(CURDIR)/.venv $(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
	@echo "setup: done"

# Without them everything works but Kafka and Spark's own Delta; the next make tries once more.
$(JARS): .venv/.complete infra/spark/jars.lock
	@echo "setup: fetching the jars of Kafka, Delta and S3 (80 MB, once)"
	@$(BIN)/python infra/spark/jars.py fetch && touch $@ || true

# An archive that this Java cannot make is not missed: everything starts without it, slower.
$(CLASSES): .venv/.complete
	@echo "setup: archiving Spark's classes, so that Spark starts faster (once, half a minute)"
	@$(BIN)/python infra/spark/class_archive.py

demo: setup $(CLASSES) ## Run two weeks of flights up to the February storm, the end through Airflow, and show what came out
	@bash infra/demo/demo.sh $(DEMO_FROM) $(DEMO_STORM) $(DEMO_AIRFLOW_FROM) $(DEMO_TO)

up: setup $(CLASSES) ## Start Airflow and leave it running; prints where it is and where its password is
	@$(BIN)/python infra/airflow/stack.py up

down: setup ## Stop Airflow; nothing stays behind
	@$(BIN)/python infra/airflow/stack.py down

sql: setup ## Serve the tables and marts to DBeaver, Superset, notebooks (127.0.0.1:15432, SQL_PORT=N), until Ctrl-C
	@$(BIN)/tidegate sql $(PIPELINE) --warehouse $(TIDEGATE_WAREHOUSE) --port $(SQL_PORT)

test: setup $(CLASSES) ## Run the tests, the wheel's among them, laws on a fifth of their examples
	@TIDEGATE_EXAMPLES=0.2 $(BIN)/python -m pytest $(WORKERS) tests tests/wheel

test-unit: setup ## Run the tests that need neither Spark nor Airflow, laws on a tenth of their examples; a minute
	@TIDEGATE_EXAMPLES=0.1 $(BIN)/python -m pytest -n 2 --no-loadscope-reorder tests/unit tests/property tests/spec -m "not slow and not long and not spark"

coverage: setup $(CLASSES) ## Run the same tests, twice as long, and fail if they reach fewer lines than the floor in pyproject.toml
	@TIDEGATE_EXAMPLES=0.2 $(BIN)/python -m pytest $(WORKERS) --cov --cov-report=term:skip-covered tests tests/wheel

test-examples: setup ## Run the examples of all docstrings
	@AIRFLOW_HOME=$(STATE)/examples $(BIN)/python -m pytest --doctest-modules --ignore-glob='*/examples/*/generate.py' $(PACKAGES)

test-slow: setup ## Run the tests that take minutes each and are not part of `make test`, and the laws on ten times as many examples
	@$(BIN)/python -m pytest -m slow
	@TIDEGATE_EXAMPLES=5 $(BIN)/python -m pytest $(WORKERS) tests/property
	@$(MAKE) --no-print-directory test-spark

# An environment of its own; connectors are not published for every version, so there are no jars. Another version
# needs its infra/spark/pyspark-VERSION.lock (`uv pip compile --no-deps --generate-hashes`).
test-spark: setup ## Run the tests that need Spark on another version of it: make test-spark SPARK=4.3.0
	@test -x $(OTHER_SPARK)/bin/python || $(BIN)/python -m venv $(OTHER_SPARK)
	@$(OTHER_SPARK)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r infra/bootstrap.lock
	@VIRTUAL_ENV=$(OTHER_SPARK) $(BIN)/uv pip sync --quiet --require-hashes requirements.lock
	@VIRTUAL_ENV=$(OTHER_SPARK) $(BIN)/uv pip install --quiet --no-config --no-deps --require-hashes -r infra/spark/pyspark-$(SPARK).lock
	@VIRTUAL_ENV=$(OTHER_SPARK) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable .
	@TIDEGATE_JARS=$(OTHER_SPARK)/no_jars $(OTHER_SPARK)/bin/python -m pytest tests/spark

attack: setup ## Attack: make attack SEED=1 COUNT=500 (a seed: 5000 mutated records, 5000 declarations, 100 kill -9, 500 recorded events, 20 faults of the disk, an eighth of a scenario's sites, all calls of a stage, 72 requests to a store, 4 full disks)
	@$(BIN)/python -m tests.attacks records --seed $(or $(SEED),0) --count $(or $(COUNT),20)
	@$(BIN)/python -m tests.attacks declarations --seed $(or $(SEED),0) --count $(or $(COUNT),20)
	@$(BIN)/python -m tests.attacks kills --seed $(or $(SEED),0) --count $(or $(COUNT),20)
	@$(BIN)/python -m tests.attacks object-kills --seed $(or $(SEED),0) --count $(or $(COUNT),20)
	@$(BIN)/python -m tests.attacks histories --seed $(or $(SEED),0) --count $(or $(COUNT),20)
	@$(BIN)/python -m tests.attacks faults --seed $(or $(SEED),0) --count $(or $(COUNT),20)
	@$(BIN)/python -m tests.attacks sites --seed $(or $(SEED),0) --count $(or $(COUNT),20)
	@$(BIN)/python -m tests.attacks calls --seed $(or $(SEED),0) --count $(or $(COUNT),20)
	@$(BIN)/python -m tests.attacks requests --seed $(or $(SEED),0) --count $(or $(COUNT),20)
	@$(BIN)/python -m tests.attacks full-disk --seed $(or $(SEED),0) --count $(or $(COUNT),20)

test-research: setup ## Run the tests of figures, benchmarks, rivals and published baselines
	@$(BIN)/python -m pytest $(WORKERS) --doctest-modules tests/research infra/research/published

test-wheel: setup ## Install the wheel into fresh environments and run the README's commands there
	@$(BIN)/python -m pytest $(WORKERS) tests/wheel

figures: setup ## Draw the papers' figures into .tidegate/figures: PNG, and the numbers as CSV
	@$(BIN)/python -m infra.research.figures --out $(STATE)/figures --warehouse $(TIDEGATE_WAREHOUSE)

bench: setup ## Measure what the README claims: the window planner, the learnt error-to-width map, joins, top-k
	@$(BIN)/python -m infra.benchmarks.window_sizing
	@$(BIN)/python -m infra.benchmarks.error_width --out $(STATE)/error_width
	@$(BIN)/python -m infra.benchmarks.top_k.operator
	@$(BIN)/python -m infra.benchmarks.top_k --engines numpy tidegate duckdb:panes spark_batch:panes --warm
	@$(BIN)/python -m infra.benchmarks.slack --seeds 2 --hours 24
	@$(BIN)/python -m infra.benchmarks.history --tuples 20000000 --capacity 800000
	@$(BIN)/python -m infra.benchmarks.join_aggregate --engines numpy tidegate duckdb:delta spark_batch:delta --warm

docs: setup ## Build the documentation site into .tidegate/docs; a broken link or anchor is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "docs: open $(STATE)/docs/index.html"

lint: setup ## Check style, types and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup ## Format the code
	@$(BIN)/ruff check --fix --select I .
	@$(BIN)/ruff format .

lock: .venv/.complete ## Resolve pyproject.toml anew into requirements.lock
	@$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --python-version 3.11 --no-emit-index-url --generate-hashes \
		--quiet --output-file requirements.lock
	@$(BIN)/uv pip compile infra/bootstrap.in --python-version 3.11 --no-emit-index-url --generate-hashes \
		--quiet --output-file infra/bootstrap.lock
	@$(BIN)/python infra/spark/jars.py lock

wheel: setup ## Build the package into dist/: what `pip install` gets
	@VIRTUAL_ENV=$(CURDIR)/.venv $(BIN)/uv build --quiet --no-build-isolation --out-dir dist

clean: down ## Remove the demo's data, tables and Airflow state; the environment stays
	@rm -rf .tidegate
