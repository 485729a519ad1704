"""Runs in the pytorch environment: ``.venvs/pytorch/bin/python -m pytest`` with this file."""

from functools import partial
from pathlib import Path
from typing import Any

from helpers.frameworks import keras_torch as framework  # before Keras, whose backend it sets

# isort: split
import keras
import keras_alike as alike
import multiplied
import own_networks
import pytest
import same_networks
import torch
from agreed import assert_stops_within_an_epoch
from notebook_cells import CHECKED, EPSILON_FIRST, failed, namespace_of, other_norms
from resuming import assert_resumes

from helpers.errors import UnsupportedError, UserError
from helpers.fairness import reference, reference_checks
from helpers.frameworks import keras_backends
from helpers.networks import keras as networks

ONE = framework.list_devices("cpu", 1)
namespace = partial(namespace_of, alike.NOTEBOOK, backend="torch", devices=1, until=CHECKED)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The notebook's names on one device, before it trains."""
    return namespace(tmp_path_factory.mktemp("notebook"))


def test_weights_come_back_bit_for_bit(notebook: dict[str, Any]) -> None:
    alike.assert_weights_come_back(notebook)


def test_the_fairness_check_is_passed(notebook: dict[str, Any]) -> None:
    """On one device: what takes several is not checked, and says so."""
    table = notebook["this_run"].fairness_check.table()
    known = table[table["verdict"] == "expected difference"]
    assert set(known.index) == {*alike.KNOWN, EPSILON_FIRST}
    assert "fail" not in set(table["verdict"])
    unchecked = table[table["verdict"] == "not checked"]
    assert set(unchecked["reason"]) == {"there is one device"}


def test_faults_are_caught(notebook: dict[str, Any]) -> None:
    alike.assert_faults_are_caught(notebook)


def test_another_momentum_is_caught(notebook: dict[str, Any]) -> None:
    with other_norms(notebook, bn_momentum=0.01):  # Keras's own is 0.99, of the old value
        network = framework.exact(notebook["build_model"], reference.arrays())
        checks = reference_checks.same_in_training(framework, notebook["build_model"], network)
    assert failed(checks) == {"running mean after a step", "running variance after a step"}


def test_resnet44_is_the_references() -> None:
    known = {"running variance after a step"}
    same_networks.assert_is_the_references(framework, networks, "resnet44", ONE, known)


def test_the_weights_of_a_custom_network_follow_from_the_seed(tmp_path: Path) -> None:
    own_networks.assert_same_seed_same_bytes(framework, "keras", tmp_path)


def test_adam_is_where_it_was(notebook: dict[str, Any]) -> None:
    alike.assert_adam_is_where_it_was(notebook)


def test_fit_takes_every_batch_once_and_in_order(notebook: dict[str, Any]) -> None:
    alike.assert_fit_takes_every_batch(notebook)


def test_the_clock_sees_what_fit_waits_for(notebook: dict[str, Any]) -> None:
    alike.assert_the_clock_sees_what_fit_waits_for(notebook)


@pytest.mark.parametrize("precision", [pytest.param("bf16", marks=pytest.mark.slow), "fp16"])
def test_the_training_loop_check_is_passed_in_16_bits(tmp_path: Path, precision: str) -> None:
    try:
        names = namespace(tmp_path, precision=precision, checked=False)
        names["this_run"].check_training_loop(names["this_run"].functions)
    finally:
        keras.config.set_dtype_policy("float32")
    checks = names["this_run"].fairness_check.checks
    assert checks and failed(checks) == set()
    assert {variable.dtype for variable in names["model"].variables} == {"float32"}
    replica = names["start"](alike.world(names), names["model"])
    state = framework.dump_optimizer(replica.network, replica.optimizer)
    assert ("scale" in state) == (precision == "fp16")


def test_several_devices_are_refused_with_the_reason(tmp_path: Path) -> None:
    """In the notebook, which a user may run by hand, and by the module itself."""
    with pytest.raises(UnsupportedError, match=r"devices 2: .*give it one device"):
        namespace(tmp_path, devices=2)
    with pytest.raises(UnsupportedError, match=r"devices 2: .*give it one device"):
        framework.list_devices("cpu", 2)
    assert framework.SKIPPED.get("several devices") is not None


def test_devices_and_versions() -> None:
    assert [torch.device("cpu")] == ONE
    assert keras.ops.zeros(1).device == ONE[0], "whatever the machine has"
    versions = framework.versions()
    assert (versions["keras"], versions["torch"]) == (keras.__version__, torch.__version__)
    assert "torchvision" not in versions
    framework.synchronize(ONE)


def test_another_backend_is_refused_in_a_line() -> None:
    with pytest.raises(UserError, match="Keras runs on torch already: restart it"):
        keras_backends.module_of("jax")


def test_a_run_that_is_asked_to_stop_ends_with_the_weights_of_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_stops_within_an_epoch(alike.NOTEBOOK, tmp_path, monkeypatch, backend="torch", devices=1)


@pytest.mark.slow  # three processes train DenseNet121
def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    assert_resumes(alike.NOTEBOOK, tmp_path, bits=True, backend="torch", devices=1)


def test_a_matrix_product_is_waited_for() -> None:
    multiplied.assert_waited_for(framework, ONE[0])
