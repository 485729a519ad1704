"""The fairness check of replicas that share GPUs, and no training: shared.py RUN DATA RECIPE N GPUS

It runs PyTorch's notebook up to the cell that trains. Exit code: 1 if a check failed.
"""

import sys

from helpers.fairness.check_results import counted
from helpers.runner.notebook_code import run_cells


def main(run: str, data: str, recipe: str, replicas: str, gpus: str) -> int:
    found = run_cells(
        "PyTorch_MultiGPU",
        until="this_run.train()",
        run=run,
        data=data,
        recipe=recipe,
        devices=int(replicas),
        gpus=int(gpus),
    )
    this_run = found["this_run"]
    check = this_run.fairness_check
    known = "comparable" if check.comparable else "NOT comparable"
    print(f"{this_run.setup.short}: {known}, {counted(one.verdict for one in check.checks)}")
    return int(not check.comparable)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
