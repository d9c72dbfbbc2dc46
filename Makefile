# Everything here needs make and Python 3.11 or newer; anything else that is missing is installed or named.
PYTHON ?= python3
VENV := .venv/bin
SCRIPTS := tools/add-column-rehearsal tools/bootstrap tools/check tools/lint-javascript tools/postgres tools/rabbitmq \
	tools/release tools/screenshots tools/test tools/vendor

.PHONY: help setup postgres rabbitmq run check test minutes lint bench chaos fuzz dist pythons screenshots clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r name text; do printf '%-14s %s\n' "$$name" "$$text"; done

setup:  ## make .venv from uv.lock, with every extra and the development tools
	@$(PYTHON) tools/bootstrap

postgres:  ## make sure that PostgreSQL's server binaries are on this machine
	@$(PYTHON) tools/postgres install

rabbitmq:  ## make sure that RabbitMQ's programs are on this machine
	@$(PYTHON) tools/rabbitmq install

run: setup  ## set up, then start duly with demo data
	@$(VENV)/duly up --demo

check: setup postgres  ## set up, then lint, types and the fast suites: for every change, in under a minute
	@$(PYTHON) tools/check

test: setup postgres rabbitmq  ## set up, then run the whole suite on a private PostgreSQL and RabbitMQ, under coverage
	@$(PYTHON) tools/test

minutes:  ## print where the time of the last test run went: by folder, by file, the slowest tests
	@$(PYTHON) tools/minutes.py

lint: setup  ## check style, format and types, of Python and JavaScript
	$(VENV)/ruff check src tests tools bench $(SCRIPTS)
	$(VENV)/ruff format --check src tests tools bench $(SCRIPTS)
	$(VENV)/mypy
	$(VENV)/mypy --strict tools/debian.py tools/private.py tools/pythons.py tools/pgcluster.py tools/rabbitnode.py tools/nodepackages.py tools/chromium.py
	@$(PYTHON) tools/lint-javascript

bench: setup postgres rabbitmq  ## set up, then compare duly with similar libraries
	@$(VENV)/python -m bench
	@$(VENV)/python -m bench.schedules
	@$(VENV)/python -m bench.pages
	@$(VENV)/python -m bench.jobs
	@$(VENV)/python -m bench.dashboard
	@$(VENV)/python -m bench.hung
	@$(VENV)/python -m bench.messages
	@$(VENV)/python -m bench.keys
	@$(VENV)/python -m bench.queues
	@$(VENV)/python -m bench.limits
	@$(VENV)/python -m bench.pace

chaos: setup postgres rabbitmq  ## set up, then run the long crash tests: default leases, minutes of silence (some 25 minutes)
	@$(PYTHON) tools/test chaos -s
	@$(VENV)/python -m bench.pace --providers 200

fuzz: setup postgres  ## set up, then send the API odd requests for a long time (some 15 minutes)
	@DULY_TEST_FUZZ=200 $(PYTHON) tools/test tests/web/test_fuzz.py -s

dist: setup  ## set up, then build wheel and sdist into dist/, and try them in fresh environments with every Python here
	@$(PYTHON) tools/release check

pythons: setup postgres  ## set up, then run the fast suites on every Python from 3.11 that this machine has
	@$(PYTHON) tools/pythons.py

screenshots: setup  ## set up, then write screenshots of the dashboard to docs/img, with Debian's Chromium
	@$(PYTHON) tools/screenshots

clean:  ## remove .venv, caches and everything else that was made here
	rm -rf .venv .scratch .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage .coverage.* dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
