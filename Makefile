# Needs Python 3.9 or newer, pip and make; everything else is fetched into .venvs/.
PYTHON ?= python3
LAB := .venvs/lab/bin

# Compiling a framework's modules takes longer than importing them, and every run starts a dozen
# processes: let Python keep what it compiled, also where the machine's settings say otherwise.
export PYTHONDONTWRITEBYTECODE :=

# The packages are this checkout's and those of the environments, whatever the shell has set.
export PYTHONPATH := $(CURDIR)
unexport PYTHONHOME PYTHONSTARTUP

.DEFAULT_GOAL := help
.PHONY: help envs wheels compare quick test soak lab lock docs clean

help:     ## what can be made
	@echo "usage: make TARGET [ARGS=\"...\"]"
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/  make \1\t\2/p' Makefile | expand -t 18

envs:     ## the environments, one a framework, under .venvs/ (ARGS="--kernels lab,pytorch" for some)
	@$(PYTHON) environments/build.py $(ARGS)

wheels:   ## all that make envs downloads, into wheels/, for a machine without a network
	@$(PYTHON) environments/download.py $(ARGS)

# The comparison goes on with the frameworks whose environment could be built (exit code 1 means
# that one could not), reports the others, and then ends with an error itself.
compare:  ## runs the notebooks on this machine and compares them (ARGS="--help" for the choices)
	@$(PYTHON) environments/build.py || [ $$? -eq 1 ]
	@$(LAB)/rosetta run $(ARGS)

quick:    ## style, types and the quick tests; needs the lab's environment alone
	@$(PYTHON) tools/run_checks.py --quick $(ARGS)

test:     ## everything that is checked: style, types, tests, notebooks (ARGS="pytorch" for a part)
	@$(PYTHON) tools/run_checks.py $(ARGS)

soak:     ## the long forms of some checks (ARGS="mutants" for a part)
	@$(PYTHON) tools/run_checks.py --soak $(ARGS)

lab:      ## JupyterLab with all kernels (ARGS go to jupyter)
	@$(PYTHON) environments/build.py || [ $$? -eq 1 ]
	@$(LAB)/jupyter-lab $(ARGS)

lock:     ## re-makes the locks from environments/*.in (ARGS=-U for the newest versions)
	@$(PYTHON) environments/build.py --lock $(ARGS)

docs:     ## the documentation as a site, in site/ (ARGS=serve shows it while you write)
	@$(PYTHON) tools/docs_site.py $(ARGS)

clean:    ## removes the environments and caches; data/ and runs/ stay
	rm -rf .venvs .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
