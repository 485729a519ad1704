#!/bin/sh
# Runs what this machine's Python and GPUs allow, without a network, into one folder:
#     tests/gpu/run.sh OUT        PYTHON=/opt/torch/bin/python3 tests/gpu/run.sh OUT
exec "${PYTHON:-python3}" "$(dirname "$0")/gpu_run.py" "$@"
