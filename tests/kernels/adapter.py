"""The tests that every framework passes, run once in each environment.

A framework's test file has them by ``from adapter import *``, and says in ``ADAPTER`` what they run
on. Its fixture ``cells`` gives a notebook's names before it trains.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import own_networks
import pytest
import rules
import same_networks
from agreed import Evaluated, FirstBatch, assert_colour_is_read, assert_pixels_are_pillows
from framework_tests import *
from framework_tests import STEP, OfFramework
from notebook_cells import EPSILON_FIRST, assert_passed, assert_too_few_images_are_refused
from resuming import assert_resumes


@dataclass(frozen=True, kw_only=True)
class Adapter(OfFramework):
    """What the tests run on."""

    evaluated: Evaluated
    first_batch: FirstBatch
    grey: Mapping[str, str]
    """Each notebook's digest of its first batch of grey images, to the last bit."""
    colour: Mapping[str, str]
    """Likewise of images in colour."""
    survivors: str = "replica 0's"
    """Whose running statistics the weights have after training."""
    bits: bool = True
    """Whether a killed run continues to the last bit."""

    @property
    def notebooks(self) -> list[str]:
        return list(self.grey)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "of_notebook" in metafunc.fixturenames:
        metafunc.parametrize("of_notebook", metafunc.module.ADAPTER.notebooks)


def test_the_fairness_check_is_passed(adapter: Adapter, cells: dict[str, Any]) -> None:
    assert_passed(cells["this_run"], known=set(adapter.known), survivors=adapter.survivors)


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


@pytest.mark.slow  # three processes train; the run of a custom recipe is killed every day
def test_a_killed_run_goes_on_as_if_nothing_had_been(
    adapter: Adapter, of_notebook: str, tmp_path: Path
) -> None:
    assert_resumes(of_notebook, tmp_path, bits=adapter.bits)
