"""What tests have ChainerMN's ranks do; imported by the ranks too."""

from pathlib import Path
from typing import Any

import notebook_program
import numpy as np
import trained_on_ranks

from helpers.fairness import reference
from helpers.frameworks import chainermn as framework
from helpers.frameworks import rank_info
from helpers.networks import weights
from helpers.runner.notebook_code import run_cells
from helpers.training import samplers

NOTEBOOK = "ChainerMN_MultiNode"
Names = dict[str, Any]
Arrays = dict[str, np.ndarray]


def names_of(folder: Path, **given: Any) -> Names:
    """A notebook's names before it trains a small custom network, of 8 images on each device."""
    return notebook_program.names_of(NOTEBOOK, folder, **small(folder) | given)


def small(folder: Path) -> Names:
    """Parameters: a small network and few images."""
    with rank_info.first_rank_first():
        if not (folder / "recipe").exists():
            trained_on_ranks.prepare(folder, "chainermn")
    return trained_on_ranks.given(str(folder), 1)


def trained(names: Names) -> tuple[float, Arrays]:
    """The mean loss of an epoch of the shallow network, and its weights after an evaluation."""
    run, loader = names["run"], names["make_loader"](names["run"].train_split, True)
    with run.recipe.varied(outputs=14):
        shallow = framework.shallow(reference.shallow_arrays(), run.own_devices)
        replica = names["make_replica"](shallow)
        loss = names["train_steps"](replica, loader, len(loader))
        validation = names["make_loader"](run.valid_split, False)
        names["predict"](replica, validation, len(run.valid_split))
    return loss, framework.dump_weights(replica.network)


def run_to_the_end(folder: Path, *, stopped: bool = False, resume: bool = False) -> Arrays:
    """The weights after two epochs of training, or none where it was stopped after one."""
    loop = "run.epochs(replica)"

    def changed(text: str) -> str:
        return text.replace(loop, f"islice({loop}, 1)") if stopped else text

    given: Names = {"run": str(folder / "run"), "resume": resume, **small(folder)}
    names = run_cells(NOTEBOOK, after=loop, checked=False, changed=changed, **given)
    samplers.stop(names["run"].monitor)
    rank_info.exchange(None)  # rank 0 has written what it keeps
    return {} if stopped else weights.load(folder / "run" / "weights.safetensors")
