# Two commands matter: `make run` and `make test`. Each sets up what it needs, once.
.PHONY: help run test sweep check bench soak docs wheel screenshots corpus lock clean setup
.DEFAULT_GOAL := help
BIN := .venv/bin
export PYTHONDONTWRITEBYTECODE :=

help:
	@echo "make run     start the host on 127.0.0.1"
	@echo "make test    the test suite (two workers, under fifteen minutes)"
	@echo "make check   ruff, mypy --strict, import contracts, faces of packages"
	@echo "make sweep   the exhaustive tests: crash matrices, corpora, soaks"
	@echo "make bench   measure, and write benchmarks/RESULTS.md"
	@echo "make soak    a mixed load at 80 % of capacity for eight minutes (SOAK_SECONDS), and write benchmarks/SOAK.md"
	@echo "make docs    build the documentation into site/"
	@echo "make wheel   build dist/forestay-*.whl with the JavaScript engine and the bundler in it"
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

sweep: setup
	@$(BIN)/python -m pytest -n 2 -q -m sweep $(SWEEP)

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/faces.py

bench: setup
	@$(BIN)/python -m benchmarks

soak: setup
	@$(BIN)/python -m benchmarks.soak $(SOAK_SECONDS)

docs: setup
	@$(BIN)/python scripts/docs.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

wheel: setup
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

screenshots: setup
	@FORESTAY_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q tests/browser/test_screenshots.py

corpus: setup
	@$(BIN)/forestay ext corpus fetch

lock:
	@uv pip compile pyproject.toml --extra openai --extra anthropic --extra tokenizers --extra grpc --extra otel --extra postgres --group dev --universal --generate-hashes --no-emit-index-url --no-annotate --no-header -q -o requirements.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache site dist
