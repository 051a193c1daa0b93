# Two commands do all set-up: `make demo` and `make test`.  `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps
PINS = deploy/pins
PROTO_OUT ?= protocol/wire
PYTEST_WORKERS ?= 2
# Without cached bytecode, every process that a test starts compiles all it imports anew.
unexport PYTHONDONTWRITEBYTECODE
export FLWR_TELEMETRY_ENABLED = 0
export FLWR_DISABLE_UPDATE_CHECK = 1
export RAY_USAGE_STATS_ENABLED = 0

.PHONY: help env demo test test-all lint unit slow coverage sizes proto docs tutorial looks clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

# The stamp's prerequisites are the pins, so an unchanged environment costs nothing.
env: $(VENV)/ready  ## create .venv from the pinned versions
$(VENV)/ready: $(wildcard $(PINS)/*.txt) pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r $(PINS)/runtime.txt -r $(PINS)/dev.txt -r $(PINS)/notebook.txt
	$(PIP) --no-build-isolation -e .
	@touch $@

bench-env: $(VENV)/ready-bench  ## add the peers the benchmarks measure against
$(VENV)/ready-bench: $(VENV)/ready $(PINS)/bench.txt
	$(PIP) --require-hashes -r $(PINS)/bench.txt
	@touch $@

demo: env  ## two private experiments: readers behind gateways, then phones over gRPC
	$(BIN)/wallflower run examples/headline.toml
	$(BIN)/wallflower run examples/phones.toml
	@echo "Next: examples/*.toml are yours to change; docs/running.md explains every key."

test: env  ## everything a change needs: linters and the quick tests, minutes on two cores
	@$(MAKE) --no-print-directory --jobs 2 lint unit

lint: env  ## ruff, mypy strict, one-way imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

ELSEWHERE = not soak and not hosts and not browser and not postgres
unit: env  ## the quick tests without the linters
	$(BIN)/pytest -n $(PYTEST_WORKERS) --dist worksteal -m "not slow and $(ELSEWHERE)"

test-all: test slow  ## make test and the slow tests: Flower, Ray, kills, many draws, cross products

slow: env  ## the slow tests alone
	$(BIN)/pytest -n $(PYTEST_WORKERS) --dist worksteal -m "slow and $(ELSEWHERE)"

# Tracing doubles the time of tests, so no other target traces.
coverage: env  ## quick and slow tests, and how many lines they run (processes of their own not counted)
	$(BIN)/pytest -n $(PYTEST_WORKERS) --dist worksteal -m "$(ELSEWHERE)" --cov --cov-report=
	@echo "coverage: $$($(BIN)/coverage report --format=total) % of lines"

BEFORE ?= 931e4be
sizes: env  ## product, docs and words, then files and lines by folder, at BEFORE= and now
	$(BIN)/python -m tests.support.sizes $(BEFORE)

reward-path: env  ## the files one reward passes through: by memory, grpc_server and Flower
	$(BIN)/python -m tests.support.reward_path

hooks: env  ## check every commit before it is made (.pre-commit-config.yaml)
	$(BIN)/pre-commit install

# protoc writes `from wallflower.v1 import …`; the generated code lives in
# wallflower.protocol.wire, and its imports are pointed there.
proto: env  ## regenerate protocol/wire from proto/
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=$(PROTO_OUT)/.. --pyi_out=$(PROTO_OUT)/.. --grpc_python_out=$(PROTO_OUT)/.. proto/wallflower/v1/*.proto
	mv $(PROTO_OUT)/../wallflower/v1/*_pb2* $(PROTO_OUT)/
	grep -L Stub $(PROTO_OUT)/*_pb2_grpc.py | xargs -r rm
	rmdir $(PROTO_OUT)/../wallflower/v1 $(PROTO_OUT)/../wallflower
	sed -i 's/^from wallflower\.v1 import/from wallflower.protocol.wire import/' $(PROTO_OUT)/*_pb2*.py*

# The browser's client. npm's lock file has hashes and no addresses; nothing of it is committed.
WEB = clients/web
WEB_PROTOS = $(addprefix wallflower/v1/,$(addsuffix .proto,visitors node cohort secure_sum sealed identity))
ESBUILD = node_modules/.bin/esbuild --bundle --format=esm --log-level=warning
web-env: env
	node -e 'process.exit(+(parseInt(process.versions.node) < 20))' || { echo "make web needs Node 20 or newer"; exit 1; }
	cd $(WEB) && npm ci --silent --ignore-scripts
	mkdir -p $(WEB)/src/gen
	$(BIN)/python -m grpc_tools.protoc -I proto --plugin=protoc-gen-tables=$(WEB)/tools/protoc-gen-tables.mjs --tables_out=$(WEB)/src/gen --tables_opt=target=ts $(WEB_PROTOS)

web: web-env  ## the browser's client (clients/web/dist/wallflower.js), its size and its hash for integrity= (Node 20)
	cd $(WEB) && $(ESBUILD) src/index.ts --minify --target=es2022 --legal-comments=eof --outfile=dist/wallflower.js
	@cd $(WEB)/dist && echo "wallflower.js: $$(gzip -9c wallflower.js | wc -c) bytes gzip, sha384-$$(openssl dgst -sha384 -binary wallflower.js | base64 -w0)"

VECTORS = $(WEB)/dist/vectors
test-web: web test-browser-env  ## the browser's client: types, noise, 100,000 golden vectors both ways, Chromium
	cd $(WEB) && node_modules/.bin/tsc -p . && $(ESBUILD) tests/*.ts --platform=node --outdir=dist/tests
	cd $(WEB) && node --test dist/tests/*.test.js
	$(BIN)/python -m tests.support.web.drawn $(VECTORS)/python $${SEED:-7}
	cd $(WEB) && WALLFLOWER_VECTORS=dist/vectors/python node --test dist/tests/vectors.test.js
	cd $(WEB) && node dist/tests/make.js dist/vectors/python dist/vectors/typescript
	$(BIN)/python -m tests.support.web.vectors $(VECTORS)/typescript
	$(BIN)/pytest -m browser tests/browser/web

demo-web: web  ## a website with an experiment on loopback: open it, headless people fill the rest
	$(BIN)/python -m benchmarks.web_site

bench-web: web test-browser-env  ## what a contribution costs in Chromium, by part
	cd $(WEB) && $(ESBUILD) tests/bench.ts --outfile=dist/tests/bench.js
	$(BIN)/python -m benchmarks.web_client

# Debian's chromium; elsewhere put one on the PATH first.
test-browser-env: env
	command -v chromium >/dev/null || { apt-get update -q && apt-get install -qy chromium; }
	$(PIP) --require-hashes -r $(PINS)/browser.txt

test-browser: test-browser-env  ## open the pages in Chromium: every width, axe-core, PDF
	$(BIN)/pytest -m browser tests/browser --ignore tests/browser/web

# Debian's server, without the cluster that its package would start.
.PHONY: postgres-env
postgres-env:
	ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null || { \
		mkdir -p /etc/postgresql-common && echo "create_main_cluster = false" >> /etc/postgresql-common/createcluster.conf && \
		apt-get update -q && apt-get install -qy postgresql; }

test-postgres: env postgres-env  ## the tests of runs on PostgreSQL, with a server of their own
	$(BIN)/pytest -n $(PYTEST_WORKERS) -m postgres tests/postgres

LOOKS ?= looks
looks: test-browser-env  ## the same, and keep what was seen in looks/: every page, its pictures and its print
	command -v pdftoppm >/dev/null || apt-get install -qy poppler-utils
	mkdir -p $(LOOKS)
	WALLFLOWER_LOOKS=$(abspath $(LOOKS)) $(BIN)/pytest -m browser tests/browser --ignore tests/browser/web
	for paper in $(LOOKS)/*.pdf; do pdftoppm -r 60 -png $$paper $${paper%.pdf}-paper; done
	@wc -c $(LOOKS)/*.html

# What imports, calls or subclasses other packages' parts. BEYOND holds newer versions
# than flwr allows, which somebody may have installed all the same.
NEWEST = .venv-newest
NEWEST_TESTS = tests/wallflower/test_cli.py tests/wallflower/test_run_commands.py tests/wallflower/test_plan_command.py \
	tests/wallflower/test_figures.py tests/wallflower/results tests/wallflower/watching tests/wallflower/shuffler/test_service.py \
	tests/strategy/transport/grpc tests/strategy/store tests/strategy/transport tests/protocol/identity tests/protocol/rewards tests/clients/rewards
BEYOND = typer==0.29.1 grpcio-health-checking==1.85.1 protobuf==7.36.2
test-newest:  ## the tests of what we use of others, with the newest allowed versions, in an environment of its own
	test -d $(NEWEST) || $(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install -q --disable-pip-version-check --upgrade --upgrade-strategy eager \
		-e ".[figures,parquet]" pytest pytest-asyncio pytest-timeout hypothesis httpx pandas pyyaml
	$(NEWEST)/bin/python -m pip check
	$(NEWEST)/bin/pytest $(NEWEST_TESTS)
	rm -rf $(NEWEST)/beyond
	$(NEWEST)/bin/python -m pip install -q --disable-pip-version-check --no-deps --target $(NEWEST)/beyond $(BEYOND)
	PYTHONPATH=$(NEWEST)/beyond $(NEWEST)/bin/pytest tests/wallflower/test_cli.py tests/strategy/transport/grpc/test_limits.py tests/wallflower/shuffler/test_service.py

DOCS = .venv-docs
docs:  ## the documentation as a static site in site/, strictly, from an environment of its own
	test -d $(DOCS) || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r $(PINS)/docs.txt
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

tutorial: env  ## follow docs/tutorial.md word by word, in an empty folder from the wheel
	$(BIN)/pytest tests/test_tutorial.py

check-deploy: env  ## validate images, compose, Kubernetes, systemd and proxy files
	$(PIP) --require-hashes -r $(PINS)/check.txt
	$(BIN)/python -m deploy.check

hub: env  ## build the Flower app into dist/ and run flwr's own publish checks on it, offline
	$(BIN)/python -m deploy.hub

ADVISORIES ?=
audit: env  ## known vulnerabilities of the pins, by ADVISORIES= (a clone of pypa/advisory-database)
	$(BIN)/python -m deploy.audit $(ADVISORIES)

test-images: env  ## build both images and run them (root, buildah, debootstrap; no registry, no daemon)
	deploy/images/try

test-hosts: env  ## a whole experiment over several hosts made of network namespaces (root)
	$(BIN)/python -m deploy.harness.needs
	$(BIN)/pytest -m hosts -s tests/integration/hosts

soak-faults: env  ## 10,000 seeded fault schedules through the port (minutes)
	$(BIN)/python -m tests.support.fault_schedules 1000 10000

FIRST ?= 1
COUNT ?= 2000
KINDS ?=
soak-world: env  ## whole deployments on virtual time under seeded faults (FIRST=, COUNT=, KINDS=)
	$(BIN)/python -m tests.support.world.soak $(FIRST) $(COUNT) $(KINDS)

soak-grpc: env  ## 100,000 hostile calls against the grpc_server; its memory must stay flat
	$(BIN)/python -m tests.integration.grpc_abuse 100000

bench-noise: bench-env  ## exact noise against float noise and OpenDP: ratios, table building
	$(BIN)/python -m benchmarks.noise

test-faults: env  ## faults on purpose over several hosts (root); WRITE= keeps the table as CSV
	$(BIN)/python -m deploy.harness.needs faketime
	$(BIN)/python -m deploy.harness.report $(if $(ONLY),--only "$(ONLY)") $(if $(WRITE),--write $(WRITE))

test-partitions: env  ## cut nodes off at random over several hosts (root); FIRST= seeds the draws, CUTS=40
	$(BIN)/python -m deploy.harness.needs
	$(BIN)/python -m deploy.harness.partitions $(FIRST) $(CUTS)

CUTS ?= 40
guide: env  ## follow docs/deployment.md word by word on two hosts (root)
	$(BIN)/python -m deploy.harness.needs
	$(BIN)/python -m deploy.harness.guide

bench-deploy: env  ## one batch of ours beside one round of stock SecAgg+ (8 and 16 nodes)
	$(BIN)/python -m benchmarks.deploy

bench-page: test-browser-env  ## the live page's time from event to screen, in Chromium
	$(BIN)/python -m benchmarks.page

bench-start: env  ## the start of a deployed run by its parts, in wall and CPU seconds
	$(BIN)/python -m benchmarks.start

clean:  ## remove everything that was generated
	rm -rf $(VENV) $(NEWEST) $(DOCS) $(LOOKS) $(WEB)/node_modules $(WEB)/dist $(WEB)/src/gen site build dist .coverage *.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache

SIZES ?=
BACKENDS ?=
bench-secagg: bench-env  ## secure sums, ours against Flower's stock SecAgg+; a part: SIZES=8,128 BACKENDS=sealed,stock
	$(BIN)/python -W ignore -m benchmarks.secagg $(if $(SIZES),--sizes $(SIZES)) $(if $(BACKENDS),--backends $(BACKENDS))
	$(if $(SIZES)$(BACKENDS),,$(BIN)/python -W ignore -m benchmarks.grpc_server)

bench-proofs: bench-env  ## proofs of range: made, checked alone and together, over processes
	$(BIN)/python -m benchmarks.proofs

soak-secagg: env  ## secure sums at every size, 8,192 nodes included
	$(BIN)/pytest -n $(PYTEST_WORKERS) -m soak --timeout 3000 tests/strategy/secure_sum/test_sums.py

SCHEDULES ?= 10000
MESSAGES ?= 50000
soak-machines: env  ## fault schedules (SCHEDULES=10000 a back-end, BACKENDS=) and changed messages (MESSAGES=50000) on the secure-sum machines alone
	$(BIN)/python -m tests.support.machine_soak $(SCHEDULES) $(MESSAGES) $(BACKENDS)

ONLY_WORLDS ?=
check-machines: env  ## every state of small secure sums: bad networks, crashes, lying servers, planted bugs (minutes)
	$(BIN)/python -m tests.support.machines $(if $(ONLY_WORLDS),"$(ONLY_WORLDS)")

soak-kill: env  ## kill a run's server 20 times, each in a named phase, resume, verify
	$(BIN)/pytest -m soak -s tests/integration/test_kill.py

KILLS ?= 200
soak-kills: env  ## kill runs of every back-end KILLS=200 times in phases drawn by seed (FIRST=), resume, verify
	$(BIN)/python -m tests.support.kill_soak $(FIRST) $(KILLS)

soak-damage: env  ## damaged run directories (FIRST=, COUNT=) given to every command: no traceback, no silent wrong result
	$(BIN)/python -m tests.support.damage $(FIRST) $(COUNT)

soak-docs: env  ## the documented commands that take minutes
	$(BIN)/pytest -m soak tests/test_documented_commands.py

bench-shuffle: env  ## shuffled sums: messages, bytes, seconds, users a second, regret
	$(BIN)/python -W ignore -m benchmarks.shuffle

bench-grpc: bench-env  ## what one more node costs the server: SIZES=1000,4000,8000 nodes; ONE_MESSAGE=10000: polling ones
	$(BIN)/python -W ignore -m $(if $(ONE_MESSAGE),benchmarks.polling --nodes $(ONE_MESSAGE),benchmarks.grpc_scale $(if $(SIZES),--sizes $(SIZES)))

SECONDS ?= 60
bench-visitors: bench-env  ## people who arrive: CPU by part, people/s, seconds to a reply (RATES=100,200 WORKERS=1,2 STORES=sqlite,postgresql)
	$(BIN)/python -m benchmarks.visitors $(if $(RATES),--rates $(RATES)) $(if $(WORKERS),--workers $(WORKERS)) $(if $(STORES),--stores $(STORES))

bench-shop: env  ## people who arrive, 3 % of whom buy, four arms, end to end: winner, people beside simulate's (RUN_DIR= keeps the report)
	$(BIN)/python -m benchmarks.shop $(if $(RUN_DIR),--run-dir $(RUN_DIR))

PEOPLE_IN_ALL ?= 1000000
bench-people: env  ## one run of PEOPLE_IN_ALL=1000000 with a worker killed every minute: time, memory, store, verify (STORE=)
	$(BIN)/python -m benchmarks.visitors_long --people $(PEOPLE_IN_ALL) --store $(STORE)

STORE ?= postgresql
soak-visitors: env  ## kill workers, orchestrators and database KILLS=200 times while people arrive (FIRST= is the seed, STORE=sqlite)
	$(BIN)/python -m tests.support.visitor_soak $(FIRST) $(KILLS) $(STORE)

bench-strangers: bench-env  ## memory that 20 hostile connections hold, and what an honest round costs meanwhile (SECONDS=, ONLY=)
	$(BIN)/python -m benchmarks.strangers --seconds $(SECONDS) $(if $(ONLY),--only $(ONLY))

bench-vanishing: env  ## people and time that equal nodes in all sums of a round cost
	$(BIN)/python -W ignore -m benchmarks.vanishing_nodes

check-shuffle: env  ## the certificate on every table of shuffle-dp: n = 2^6 to 2^16, three ε
	$(BIN)/python -m benchmarks.shuffle_tables

NODES ?= 65536
bench-lag: bench-env  ## how long the server's loop stands still in a cohort of NODES=65536 nodes
	$(BIN)/python -W ignore -m benchmarks.loop_lag --nodes $(NODES)

bench-decide: env  ## users until one arm is left, beside other rules, and what deciding costs (WRITE=)
	$(BIN)/python -m benchmarks.decide $(if $(WRITE),--write $(WRITE))

bench-schedules: env  ## users and rounds by first batch and ratio, on instances outside bench-decide: how the defaults were chosen
	$(BIN)/python -m benchmarks.schedules

check-decide: env  ## the best arm is dropped with probability at most p: 2,000 runs each of 118 fields (RUNS=, ONLY=, KEEP=, WRITE=)
	$(BIN)/python -m benchmarks.decide_errors $(if $(RUNS),--runs $(RUNS)) $(if $(ONLY),--only "$(ONLY)") $(if $(KEEP),--keep $(KEEP)) $(if $(WRITE),--write $(WRITE))

check-differences: env  ## coverage of differences, false "equal", false "futile": 2,000 runs each of 24 settings (RUNS=, ONLY=, WRITE=)
	$(BIN)/python -m benchmarks.differences $(if $(RUNS),--runs $(RUNS)) $(if $(ONLY),--only "$(ONLY)") $(if $(WRITE),--write $(WRITE))

bench-scaling: env  ## people that the same question takes, by the range that outcomes are clipped to
	$(BIN)/python -m benchmarks.scaling

bench-index: env  ## mean and largest regret of 2,000 runs of the index policies
	$(BIN)/python -m benchmarks.index

bench-simulate: bench-env  ## the simulator's cost from T = 10^5 to 10^9, and against its peers
	$(BIN)/python -m benchmarks.simulate

check-regret: env  ## regret of 20,000 instances a cell against the oracle table, within 4 %
	$(BIN)/python -m benchmarks.regret

figures: env  ## the pictures of docs/results.md
	$(BIN)/python -m benchmarks.figures --output docs/figures

bench-run: bench-env  ## whole experiments against Flower's stock SecAgg+: users/s, messages; a part: SIZES=32 PARTS=stock,local
	$(BIN)/python -W ignore -m benchmarks.run $(if $(SIZES),--sizes $(SIZES)) $(if $(PARTS),--parts $(PARTS))

bench-parts: bench-env  ## where the CPU time of a user goes, one user a node
	$(BIN)/python -W ignore -m benchmarks.run_parts

ROUNDS ?= 50,200,500,1000
POLICIES ?= elimination
ARMS ?= 1000
bench-rounds: env  ## CPU, memory and journal of many small rounds and of many arms (ROUNDS=, POLICIES=, ARMS=, 0: none)
	$(BIN)/python -m benchmarks.rounds --rounds $(ROUNDS) --policies $(POLICIES) --arms $(ARMS)

PEOPLE ?= 4000
bench-store: env  ## people seated and heard a second, SQLite beside PostgreSQL (PEOPLE=)
	$(BIN)/python -m benchmarks.store --people $(PEOPLE)

mutants: env postgres-env web-env  ## break the code in some 500 known ways; a test must notice each
	$(BIN)/python -m tests.mutants
