# Everything runs inside .venv at the root; any target creates or refreshes it when it has to.
PYTHON ?= python3
JOBS   ?= 2
ARGS   ?=

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo demo-paper test soak check docs bench results sanitize wheel clean

help: ## list the targets
	@echo "make <target>  [PYTHON=python3.12 for a new .venv] [JOBS=2 test processes] [ARGS=... for the tool]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# The practitioner's road on a real graph that comes with the package.
CORA := demo/cora/nodes.csv demo/cora/edges.csv

demo: $(STAMP) ## train on a real graph, predict, explain a node, write a report
	$(BIN)/sirgcn data example cora --out demo/cora
	$(BIN)/sirgcn train $(CORA) --target topic --preset fast --out demo/model
	$(BIN)/sirgcn predict demo/model $(CORA) --out demo/predictions.csv
	$(BIN)/sirgcn explain demo/model $(CORA) --row P2000 --out demo/explanation.svg
	@echo "The report is in demo/model/report.html, the explanation in demo/explanation.svg"

# A small part of Tables 1 and 2, in the reduced form of the experiments. A second time it shows what is there.
PAPER := --models GATv2 --models SIR-GCN --models GCN --models GIN --seeds 0 --reduced --jobs $(JOBS) \
	--results demo/results --work demo/runs $(ARGS)

demo-paper: $(STAMP) ## reproduce a small part of the paper's Tables 1 and 2 and write a report
	$(BIN)/sirgcn reproduce table1 --columns n=10 $(PAPER)
	$(BIN)/sirgcn reproduce table2 --columns c=2 $(PAPER)
	$(BIN)/sirgcn results --results demo/results --write demo/report
	@echo "The report is in demo/report/report.html"

test: $(STAMP) ## run the tests
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

soak: $(STAMP) ## the long forms of fuzzing, kills and corruption, and all notebooks, about an hour; the record is results/soak.json
	$(BIN)/python tools/soak.py $(ARGS)

check: $(STAMP) ## lint, format, types, import contracts, branches, repeated code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src tests examples tools docs/conf.py
	$(BIN)/lint-imports
	$(BIN)/python tools/count_branches.py
	$(BIN)/pylint --jobs=$(JOBS) --disable=all --enable=duplicate-code --min-similarity-lines=15 --score=no src

# --fresh-env: a second run would otherwise pass over the warnings of the first.
docs: $(STAMP) ## build the documentation; warnings and broken links are errors
	$(BIN)/python -m sphinx --fresh-env --fail-on-warning --keep-going -b html docs docs/_build/html
	$(BIN)/python tools/check_links.py docs/_build/html

bench: $(STAMP) ## measure time and memory against peers
	$(BIN)/python -m sirgcn.bench $(ARGS)

results: $(STAMP) ## rewrite the tables in the documentation from the records in results/
	$(BIN)/sirgcn results --docs README.md $(addprefix --docs docs/,results.md tuned.md models.md defaults.md calibration.md theory/collisions.md theory/wl.md)

# AVX2 and AVX-512, as far as the machine has them; torch's and Python's own leaks are not ours to look for.
SANITIZED  := $(CURDIR)/build/sanitize
SANITIZING := LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 PYTHONPATH=$(SANITIZED) $(BIN)/python

sanitize: $(STAMP) ## run the tests of the ops on C code with the address and undefined-behaviour sanitizers
	CC=gcc $(BIN)/python tools/build_kernels.py $(SANITIZED) --isa=avx2 --isa=avx512 -Og -g1 \
		-fsanitize=address,undefined -fno-sanitize-recover=all
	$(SANITIZING) -c "from sirgcn.ops.native import _kernels; assert _kernels.__file__.startswith('$(SANITIZED)')"
	$(SANITIZING) -m pytest -q -p no:cacheprovider -n $(JOBS) $(addprefix tests/ops/test_,native.py native_network.py linear.py softmax.py rows.py sharing.py sharing_pairs.py aggregate.py gated.py tiled.py neighbors.py) \
		-k 'not compiled and not inductor and not ((test_aggregate or test_gated) and reference) and not every_pair and not asked_for_alone and not (native_network and bits)' $(ARGS)

# By way of the sdist: what it lacks, the wheels lack too. auditwheel gives the wheel of the C code its manylinux tag.
wheel: $(STAMP) ## build the sdist and both wheels into dist/, install them without a compiler and try them
	rm -rf dist build/wheel
	$(BIN)/python -m build --sdist --outdir dist
	$(BIN)/python -m pip wheel --no-deps --wheel-dir build/wheel dist/*.tar.gz
	PATH="$(BIN):$$PATH" $(BIN)/python -m auditwheel repair --wheel-dir dist build/wheel/*.whl
	SIRGCN_PURE=1 $(BIN)/python -m pip wheel --no-deps --no-cache-dir --wheel-dir dist dist/*.tar.gz
	$(BIN)/python tools/check_wheel.py dist

clean: ## remove caches and build output, keep .venv
	rm -rf build demo dist docs/_build docs/_generated figures .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./$(VENV) -prune -o -type d \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

NATIVE := $(wildcard $(addprefix src/sirgcn/ops/native/*.,c h def))

$(STAMP): pyproject.toml setup.py constraints.txt $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	@touch $@
