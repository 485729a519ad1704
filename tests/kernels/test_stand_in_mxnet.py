"""MXNet's notebook on GPUs, as far as it goes where only they are missing: CPU contexts compute.

Runs in the mxnet environment.
"""

from pathlib import Path

import mxnet as mx
import own_networks
import pytest
from notebook_cells import failed
from notebook_program import fairness_check, names_of

from helpers.frameworks import devices
from helpers.frameworks import mxnet as framework
from helpers.frameworks.devices import Devices

NOTEBOOK = "MXNet_Gluon_MultiGPU"


def test_the_fairness_check_is_passed_on_three_devices_stand_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(devices, "resolve", lambda *asked: Devices("gpu", ("A", "B", "C")))
    monkeypatch.setattr(mx, "gpu", mx.cpu)
    monkeypatch.setattr(mx.context, "cpu_pinned", mx.cpu)
    recipe = str(own_networks.recipe_of_classes(tmp_path / "recipe", "mxnet"))
    names = names_of(NOTEBOOK, tmp_path, devices=3, recipe=recipe, data="auto", batch_size=4)
    run = names["run"]
    assert run.on_gpu and run.devices == (mx.cpu(0), mx.cpu(1), mx.cpu(2))
    found = fairness_check(names).checks
    assert failed(found) == set()
    known = {"running variance after 5 SGD steps"}
    assert {check.check for check in found if check.verdict == "expected"} == known
    reasons = {check.check: check.reason for check in found}
    survivor = "which replica's running statistics are kept"
    assert reasons[survivor] == "the average of all replicas'"


def test_gpus_are_named_without_starting_cuda_stand_in() -> None:
    assert framework.list_devices("gpu", 2) == [mx.gpu(0), mx.gpu(1)]
