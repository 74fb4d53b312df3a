# SPDX-License-Identifier: Apache-2.0
PYTHON ?= python3
VENV := .venv/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup ready demo check test test-long test-quick coverage coverage-tools bench bench-tools simulate event-time fuzz soak cluster endurance compat lint format protocol changelog changelog-tools screenshot docs site-tools docs-build docs-serve clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## Prepare Java and .venv, and compile the engine if there is a C compiler
	@$(PYTHON) scripts/bootstrap.py compiled

ready: # Python and Java, for what does not run for long
	@$(PYTHON) scripts/bootstrap.py

demo: ready ## Run the greeter on an embedded Kafka; ARGS=--flights for 334,264 real records
	@$(VENV)/python examples/demo.py $(ARGS)

# What is fast and finds most: the tests of what a message goes through, and of the pages that name it.
FAST := tests/engine tests/formats tests/module tests/protocol tests/sdk tests/testing tests/transforms \
	tests/test_documentation.py tests/test_layers.py tests/test_public_names.py tests/test_reference_pages.py
check: lint ## Check style and types, and run the fast tests, within two minutes; ARGS goes to pytest
	@$(VENV)/python -m pytest -q --numprocesses auto --dist worksteal -m "not broker and not spark" \
		--hypothesis-profile fast --ignore tests/transforms/test_connect.py $(FAST) $(ARGS)

# More than cores: tests wait for processes to end, and for brokers that do not answer.
WORKERS ?= 5
test: setup ## Run all tests but those of half a minute and more, the real broker and Spark included; ARGS goes to pytest
	@$(VENV)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -m "not long" $(ARGS)

test-long: setup ## Run the other tests: whole applications that are killed, moved and restarted; ARGS goes to pytest
	@$(VENV)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -m long $(ARGS)

test-quick: setup ## Run the tests that need neither a broker nor Spark; ARGS goes to pytest
	@$(VENV)/python -m pytest --numprocesses $(WORKERS) --dist worksteal \
		-m "not broker and not spark" $(ARGS)

coverage: ready coverage-tools ## Run all tests, and print which lines and branches they took; ARGS goes to pytest
	@rm -rf build/coverage
	@# It sees Python's lines, not those of compiled code.
	@STATEFUN_PURE=1 $(VENV)/python -m coverage run -m pytest --numprocesses $(WORKERS) --dist worksteal $(ARGS)
	@$(VENV)/python -m coverage combine -q
	@$(VENV)/python -m coverage html -q
	@$(VENV)/python -m coverage json -q
	@$(VENV)/python scripts/coverage_table.py build/coverage/report.json $(if $(ARGS),--partial)

coverage-tools:
	@$(PYTHON) scripts/bootstrap.py coverage

NAME ?= dispatch growth async long_calls hop timers expiry latency sdk typed kafka kafka_windows flink remote publish
bench: setup bench-tools ## Run the benchmarks, write docs/performance.md; NAME=dispatch for one, ARGS for its options
	@for name in $(NAME); do $(VENV)/python benchmarks/$$name.py $(ARGS) || exit 1; done

bench-tools:
	@$(PYTHON) scripts/bootstrap.py bench

simulate: setup ## Try crashes and lost answers on a model, seed by seed; ARGS=--seed=7 for one
	@PYTHONPATH=tests $(VENV)/python -m simulation $(ARGS)

event-time: setup ## Compare windows, joins and watermarks of random programs with a model; ARGS=--seed=7 for one
	@PYTHONPATH=tests $(VENV)/python -m event_time_model $(ARGS)

fuzz: setup ## Feed a million malformed values to everything that reads from outside, and change files at random
	@STATEFUN_FUZZ_CASES=150000 $(VENV)/python -m pytest -q tests/test_fuzz.py tests/files/test_file_model.py $(ARGS)

soak: setup ## Kill and freeze a real application's processes, and check every record; ARGS=--jobs=2
	@$(VENV)/python tests/soak.py $(ARGS)

cluster: setup ## Run the tests of stores in HDFS; kill parts of a cluster of Spark, and cut off broker and object store; ARGS="--seeds=2 --messages=5000"
	@$(VENV)/python -m pytest --store=hdfs
	@$(VENV)/python tests/cluster_soak.py $(ARGS)

endurance: setup bench-tools ## Run 200,000 micro-batches with everything in use: nothing may grow; ARGS=--batches=20000, or --parts
	@PYTHONPATH=tests $(VENV)/python -m endurance $(ARGS)

compat: ready ## Try another release of Spark: make compat SPARK=4.1.2
	@$(VENV)/python scripts/compat.py $(SPARK)

lint: ready ## Check style and types
	@$(VENV)/ruff check
	@$(VENV)/ruff format --check
	@$(VENV)/mypy

format: ready ## Format the code
	@$(VENV)/ruff format

protocol: ready ## Generate statefun/protocol from proto/
	@PATH="$(CURDIR)/$(VENV):$$PATH" $(VENV)/python scripts/generate_protocol.py

changelog: changelog-tools ## Show what changelog.d adds to CHANGELOG.md; ARGS="--yes --version 0.2.0" writes it
	@$(VENV)/python -m towncrier build $(or $(ARGS),--draft --version next)

changelog-tools:
	@$(PYTHON) scripts/bootstrap.py changelog

screenshot: ready ## Take the picture of the live page in the README, with Chromium
	@PYTHONPATH=tests $(VENV)/python scripts/screenshot.py

docs: ready ## Generate docs/module-yaml.md and the JSON Schema of module files
	@$(VENV)/python scripts/generate_docs.py

SITE := NO_MKDOCS_2_WARNING=1 $(VENV)/mkdocs

site-tools:
	@$(PYTHON) scripts/bootstrap.py docs

docs-build: site-tools ## Build the documentation site strictly, in build/site
	@$(SITE) build --strict

docs-serve: site-tools ## Show the documentation site, and follow changes
	@$(SITE) serve

clean: ## Remove what was installed and built
	@rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .hypothesis
