# Keepsake's commands. On a fresh machine Python 3.11+ and make are enough: each command first sets up what it needs.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
DATA := $(or $(KEEPSAKE_DATA_DIR),.keepsake)
RANKER := $(DATA)/models/use-multilingual-v3/ranker.json
INSTALLED := $(VENV)/installed
T ?= tests

.DEFAULT_GOAL := help
.PHONY: help demo run kafka test check bench chaos lock

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ranker-if-possible ## start everything, tell a short story of one person's memory, stop
	@$(RUN) -m deploy.local demo

run: $(INSTALLED) ranker-if-possible ## start everything and keep it running until Ctrl-C (settings: KEEPSAKE_…=… make run)
	@$(RUN) -m deploy.local run

kafka: $(INSTALLED) ## fetch Apache Kafka's jars with Maven, so that a local run keeps its topics
	@$(RUN) -m deploy.local kafka

test: $(INSTALLED) $(RANKER) ## run the tests; one of them: make test T=tests/unit/…::test_…
	@$(RUN) -m pytest $(T)

check: $(INSTALLED) ## lint, types, import contracts, published contracts
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports
	@$(RUN) -m deploy contracts --check

bench: $(INSTALLED) $(RANKER) ## measure; the figures also go to .keepsake/bench.json
	@$(RUN) -m tests.bench

chaos: $(INSTALLED) kafka ranker-if-possible ## kill, stop and cut off every part of a real system and see that nothing is lost (SEED= MINUTES= KILLS= CHATS=)
	@$(RUN) -m tests.chaos

lock: $(INSTALLED) ## resolve the dependencies anew into requirements.lock
	@$(VENV)/bin/uv pip compile pyproject.toml --universal --generate-hashes --no-emit-index-url --all-extras \
	  --group dev --upgrade -o requirements.lock

$(INSTALLED): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Keepsake needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3"; exit 2; }
	@echo "Installing into $(VENV), once (about a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(RANKER): | $(INSTALLED)
	@echo "Fetching the ranker, once (72 MB)"
	@$(RUN) -m deploy models fetch

.PHONY: ranker-if-possible
ranker-if-possible: | $(INSTALLED)
	@test -e $(RANKER) || $(MAKE) --no-print-directory $(RANKER) || \
	  echo "The ranker could not be fetched: prompts get the newest facts instead of the best."
