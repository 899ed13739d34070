# Two commands matter: `make run` and `make test`. Each sets up what it needs, once.
.PHONY: help run test postgres sweep again check fuzz bench bars soak day docs wheel sbom release screenshots corpus lock clean setup
.DEFAULT_GOAL := help
BIN := .venv/bin
export PYTHONDONTWRITEBYTECODE :=

help:
	@echo "make run     start the host on 127.0.0.1"
	@echo "make test    the test suite (two workers, under fifteen minutes)"
	@echo "make postgres  the suites of ledger, runs, relay, host, http and the contracts, on PostgreSQL"
	@echo "make check   ruff, mypy --strict, import contracts, faces of packages"
	@echo "make sweep   the exhaustive tests: crash matrices, corpora, soaks"
	@echo "make again   the tests that failed last, one after the other"
	@echo "make fuzz    search for bytes that break a parser, half a minute each (FUZZ_SECONDS, FUZZ), and write benchmarks/FUZZ.md"
	@echo "make bench   measure, and write benchmarks/RESULTS.md (AREAS=\"host http\": only these)"
	@echo "make bars    measure the figures that the project has set itself beside their limits, and write benchmarks/BARS.md"
	@echo "make soak    a mixed load at 80 % of capacity for eight minutes (SOAK_SECONDS, SOAK_SHARE, SOAK_RESTARTS), and write benchmarks/SOAK.md and its picture"
	@echo "make day     twelve simulated hours of mixed load with restarts, in minutes, and write benchmarks/DAY.md and its picture"
	@echo "make docs    build the documentation into site/"
	@echo "make wheel   build dist/forestay-*.whl with the JavaScript engine and the bundler in it"
	@echo "make sbom    write dist/sbom.cdx.json, and check the licence and the hashes of every package"
	@echo "make release KEY=FILE  write the wheel, the bill and the signed notes of a release into dist/"
	@echo "make screenshots  take the pictures of the documentation again (needs Chromium)"
	@echo "make corpus  fetch the extensions that the compiler is measured against"
	@echo "make lock    resolve the Python packages again (needs uv)"
	@echo "make clean   remove what was made"

setup:
	@scripts/setup

run: setup
	@$(BIN)/forestay up

test: setup
	@$(BIN)/python scripts/examples.py
	@$(BIN)/python -m pytest -n 2 -q -m "not sweep"

postgres: setup
	@FORESTAY_TEST_LEDGER=postgres $(BIN)/python -m pytest -n 2 -q -m "not sweep" $(or $(SUITES),tests/kernel tests/runs tests/relay tests/host tests/surface tests/contracts)

sweep: setup
	@$(BIN)/python -m pytest -n 2 -q -m sweep --hypothesis-profile=$(or $(EXAMPLES),searching) $(SWEEP)

again: setup
	@$(BIN)/python -m pytest -q --last-failed --last-failed-no-failures none

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/faces.py

fuzz: setup
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-fuzz.lock
	@$(BIN)/python -m tests.fuzz $(or $(FUZZ_SECONDS),30) $(FUZZ)

bench: setup
	@$(BIN)/python -m benchmarks $(AREAS)

bars: setup
	@$(BIN)/python -m benchmarks.bars

soak: setup
	@$(BIN)/python -m benchmarks.soak $(SOAK_SECONDS)

day: setup
	@$(BIN)/python -m benchmarks.soak.day

docs: setup
	@$(BIN)/python scripts/docs.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

wheel: setup
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

sbom: setup
	@$(BIN)/python scripts/sbom.py

release: wheel sbom
	@$(BIN)/python scripts/release.py sign "$(KEY)" dist

screenshots: setup
	@FORESTAY_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q tests/browser/test_screenshots.py tests/browser/test_stories.py

corpus: setup
	@$(BIN)/forestay ext corpus fetch

lock:
	@uv pip compile pyproject.toml --extra openai --extra anthropic --extra tokenizers --extra documents --extra grpc --extra otel --extra postgres --group dev --universal --generate-hashes --no-emit-index-url --no-annotate --no-header -q -o requirements.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache site dist
