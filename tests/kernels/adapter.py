"""The tests that every framework passes, run once in each environment.

A framework's test file has them by ``from adapter import *``, and says in ``ADAPTER`` what they run
on. Its fixture ``cells`` gives a notebook's names before it trains.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import multiplied
import numpy as np
import own_networks
import probed
import pytest
import rules
import same_networks
from agreed import Evaluated, FirstBatch, assert_colour_is_read, assert_pixels_are_pillows
from notebook_cells import EPSILON_FIRST, assert_passed, assert_too_few_images_are_refused
from resuming import assert_resumes

from helpers.fairness import reference

STEP = "running variance after a step"


@dataclass(frozen=True)
class Adapter:
    """What the tests run on."""

    framework: Any
    networks: ModuleType
    devices: Sequence[Any]
    """Two CPU devices."""
    scalar: Callable[[float, Any], Any]
    """A number as a loss on a device."""
    evaluated: Evaluated
    first_batch: FirstBatch
    grey: Mapping[str, str]
    """Each notebook's digest of its first batch of grey images, to the last bit."""
    colour: Mapping[str, str]
    """Likewise of images in colour."""
    known: frozenset[str] = frozenset()
    """Rows of the fairness check that are a known difference."""
    survivors: str = "replica 0's"
    """Whose running statistics the weights have after training."""
    bits: bool = True
    """Whether a killed run continues to the last bit."""
    probe_apart: bool = False
    """Whether its self-test needs a process that has computed nothing."""

    @property
    def module(self) -> str:
        name: str = self.framework.__name__
        return name.rpartition(".")[2]

    @property
    def notebooks(self) -> list[str]:
        return list(self.grey)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "of_notebook" in metafunc.fixturenames:
        metafunc.parametrize("of_notebook", metafunc.module.ADAPTER.notebooks)


@pytest.fixture(scope="module")
def adapter(request: pytest.FixtureRequest) -> Adapter:
    found: Adapter = request.module.ADAPTER
    return found


def test_the_fairness_check_is_passed(adapter: Adapter, cells: dict[str, Any]) -> None:
    assert_passed(cells["this_run"], known=set(adapter.known), survivors=adapter.survivors)


def test_weights_that_do_not_fit_are_refused(adapter: Adapter) -> None:
    arrays, load = reference.shallow_arrays(), adapter.framework.load_weights
    model = adapter.framework.shallow(arrays, adapter.devices)
    with pytest.raises(ValueError, match=r"classifier\.odd"):
        load(model, arrays | {"classifier.odd": np.zeros(1, np.float32)})
    with pytest.raises(ValueError, match=r"classifier\.bias"):
        load(model, {name: each for name, each in arrays.items() if name != "classifier.bias"})
    transposed = {"classifier.weight": np.ascontiguousarray(arrays["classifier.weight"].T)}
    with pytest.raises((ValueError, RuntimeError), match=r"classifier\.weight"):
        load(model, arrays | transposed)


def test_losses_are_weighted_by_images(adapter: Adapter) -> None:
    losses, (first, second) = adapter.framework.DeviceLosses(adapter.devices), adapter.devices
    losses.add(0, adapter.scalar(1.0, first), 3)
    losses.add(1, adapter.scalar(5.0, second), 1)
    assert losses.mean() == pytest.approx(2.0)


def test_a_matrix_product_is_waited_for(adapter: Adapter) -> None:
    multiplied.assert_waited_for(adapter.framework, adapter.devices[1])


def test_the_probe_works_and_finds_what_is_wrong(adapter: Adapter, tmp_path: Path) -> None:
    if adapter.probe_apart:
        probed.in_own_process([adapter.module], tmp_path)
    else:
        probed.assert_all(adapter.framework, tmp_path)


def test_resnet50_is_the_references(adapter: Adapter) -> None:
    same_networks.assert_is_the_references(
        adapter.framework,
        adapter.networks,
        "resnet50",
        adapter.devices[:1],
        set(adapter.known & {STEP}),
    )


def test_a_resnet_with_another_epsilon_is_caught(adapter: Adapter) -> None:
    one = adapter.devices[:1]
    same_networks.assert_caught(
        adapter.framework, adapter.networks, "resnet44", one, bn_epsilon=2e-5
    )


def test_the_notebook_trains_the_recipes_network(
    adapter: Adapter, of_notebook: str, tmp_path: Path
) -> None:
    same_networks.assert_notebook_trains_the_recipes_network(
        of_notebook, tmp_path, set(adapter.known)
    )


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_pixels_are_pillows_from_files_and_from_a_packed_folder(
    adapter: Adapter,
    cells: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
) -> None:
    as_ever = adapter.grey[cells["this_run"].record.content["run"]["notebook"]]
    assert_pixels_are_pillows(
        cells, monkeypatch, tmp_path, suffix, adapter.evaluated, adapter.first_batch, as_ever
    )


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_pixels_in_colour_are_pillows_from_files_memory_and_an_own_reader(
    adapter: Adapter,
    of_notebook: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
) -> None:
    as_ever = adapter.colour[of_notebook]
    assert_colour_is_read(
        of_notebook,
        monkeypatch,
        tmp_path,
        suffix,
        adapter.evaluated,
        adapter.first_batch,
        as_ever,
    )


def test_a_loader_that_leaves_images_out_is_refused(cells: dict[str, Any]) -> None:
    assert_too_few_images_are_refused(cells["this_run"])


@pytest.mark.parametrize(("optimizer", "task"), rules.CASES)
def test_every_rule_is_the_references(
    of_notebook: str, tmp_path: Path, optimizer: str, task: str
) -> None:
    rules.assert_rule(of_notebook, tmp_path, optimizer, task)


@pytest.mark.slow  # planted_ trains one every day
def test_a_custom_network_is_trained(adapter: Adapter, of_notebook: str, tmp_path: Path) -> None:
    known = set(adapter.known - {STEP, EPSILON_FIRST})
    own_networks.assert_it_is_trained(
        of_notebook, adapter.module, tmp_path, known, adapter.survivors
    )


def test_its_weights_follow_from_the_seed(adapter: Adapter, tmp_path: Path) -> None:
    own_networks.assert_same_seed_same_bytes(adapter.framework, adapter.module, tmp_path)


def test_mistakes_in_own_code_are_one_line_each(adapter: Adapter, tmp_path: Path) -> None:
    own_networks.assert_mistakes_are_one_line_each(adapter.networks, adapter.module, tmp_path)


@pytest.mark.slow  # three processes train; the run of a custom recipe is killed every day
def test_a_killed_run_goes_on_as_if_nothing_had_been(
    adapter: Adapter, of_notebook: str, tmp_path: Path
) -> None:
    assert_resumes(of_notebook, tmp_path, bits=adapter.bits)
