# Needs Python 3.9 or newer, pip and make; everything else is fetched into .venvs/.
PYTHON ?= python3
LAB := .venvs/lab/bin

# Compiling a framework's modules takes longer than importing them, and every run starts a dozen
# processes. So Python keeps compiled modules, whatever the machine's settings are.
export PYTHONDONTWRITEBYTECODE :=

# Python uses this checkout and the environments' packages, whatever the shell has set.
export PYTHONPATH := $(CURDIR)
unexport PYTHONHOME PYTHONSTARTUP

.DEFAULT_GOAL := help
.PHONY: help envs wheels compare quick test soak lab lock docs clean

help:     ## lists the targets
	@echo "usage: make TARGET [ARGS=\"...\"]"
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/  make \1\t\2/p' Makefile | expand -t 18

envs:     ## builds the environments in .venvs/ (ARGS="--environments lab,pytorch" for some)
	@$(PYTHON) environments/build.py $(ARGS)

wheels:   ## downloads all packages into wheels/, for a machine without a network
	@$(PYTHON) environments/download.py $(ARGS)

# Exit code 1 means that an environment could not be built. The comparison then runs the other
# frameworks, reports the missing ones, and ends with an error.
compare:  ## trains with all frameworks and compares them (ARGS="--help" lists the options)
	@$(PYTHON) environments/build.py || [ $$? -eq 1 ]
	@$(LAB)/rosetta run $(ARGS)

quick:    ## checks style, types and the quick tests; needs only the environment lab
	@$(PYTHON) tools/run_checks.py --quick $(ARGS)

test:     ## checks style, types, tests and notebooks (ARGS="pytorch" for a part)
	@$(PYTHON) tools/run_checks.py $(ARGS)

soak:     ## runs the long versions of some checks (ARGS="mutants" for a part)
	@$(PYTHON) tools/run_checks.py --soak $(ARGS)

lab:      ## opens JupyterLab with all environments (ARGS go to jupyter)
	@$(PYTHON) environments/build.py || [ $$? -eq 1 ]
	@$(LAB)/jupyter-lab --LabApp.default_url=/lab/tree/notebooks/PyTorch_MultiGPU.ipynb $(ARGS)

lock:     ## writes the locks from environments/*.in (ARGS=-U for the newest versions)
	@$(PYTHON) environments/build.py --lock $(ARGS)

docs:     ## builds the documentation's site in site/ (ARGS=serve shows it while you write)
	@$(PYTHON) tools/docs_site.py $(ARGS)

clean:    ## removes the environments and caches, and keeps data/ and runs/
	rm -rf .venvs .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
