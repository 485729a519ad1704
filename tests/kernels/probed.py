"""The probe's tests that every framework has: it passes, and what is wrong is found and named."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.runner.self_test import expected, worker


def probe(framework: Any, folder: Path, kind: str, count: int) -> tuple[int, dict[Any, str | None]]:
    """Its exit code; what each step that ended came to, by its name and device."""
    told = folder / "steps.jsonl"
    module = framework.__name__.rpartition(".")[2]
    code = worker.main([module, kind, str(count), "--to", str(told)])
    events = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
    assert any(event.get("versions", {}).get("python") for event in events)
    ended = [event for event in events if event.get("seconds") is not None]
    assert all(event["seconds"] >= 0 for event in ended)
    return code, {(event["what"], event["device"]): event["reason"] for event in ended}


def steps_of(count: int) -> list[tuple[str, int | None]]:
    layers = [(layer, device) for device in range(count) for layer in expected.LAYERS]
    return [(worker.START, None), *layers, (expected.ALL_REDUCE, None)]


def assert_works(framework: Any, folder: Path, kind: str, *counts: int) -> None:
    for count in counts:
        assert probe(framework, folder, kind, count) == (0, dict.fromkeys(steps_of(count)))


def assert_finds_faults(framework: Any, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """In one number of one gradient, in an error, in a device without the sum."""
    through_layer, all_reduced = framework.through_layer, framework.all_reduced

    def a_little_wrong(layer: str, arrays: Any, device: Any) -> dict[str, np.ndarray]:
        found = {name: array.copy() for name, array in through_layer(layer, arrays, device).items()}
        name = {"convolution": "weight", "BatchNorm": "output", "pooling": "images"}[layer]
        found[name].flat[-1] += 1
        return found

    patch.setattr(framework, "through_layer", a_little_wrong)
    code, found = probe(framework, folder, "cpu", 2)
    assert code == 1 and list(found) == steps_of(2)[:-1], "no device is waited for in vain"
    for device in (0, 1):
        for layer, what in (
            ("convolution", "gradient of weight"),
            ("BatchNorm", "output"),
            ("pooling", "gradient of images"),
        ):
            assert f"wrong result: {what} is off by up to 1" in str(found[layer, device])

    def raises(layer: str, arrays: Any, device: Any) -> dict[str, np.ndarray]:
        if layer == "pooling":
            raise RuntimeError("CUDA error: no kernel image is available\nfor this device")
        return through_layer(layer, arrays, device)

    patch.setattr(framework, "through_layer", raises)
    code, found = probe(framework, folder, "cpu", 2)
    said = "RuntimeError: CUDA error: no kernel image is available"
    assert code == 1 and {key for key, why in found.items() if why == said} == {
        ("pooling", 0),
        ("pooling", 1),
    }

    def lost(shares: Any, devices: Any) -> list[np.ndarray]:
        return [all_reduced(shares, devices)[0], shares[1]]

    patch.setattr(framework, "through_layer", through_layer)
    patch.setattr(framework, "all_reduced", lost)
    code, found = probe(framework, folder, "cpu", 2)
    assert code == 1
    assert found[expected.ALL_REDUCE, None] == "wrong result: the sum on device 1 is wrong"
    assert {why for key, why in found.items() if key[0] != expected.ALL_REDUCE} == {None}


def assert_all(framework: Any, folder: Path, in_place_of_gpus: bool = False) -> None:
    """Both checks; or the first with the switches for GPUs, where CPU devices compute."""
    with pytest.MonkeyPatch.context() as patch:
        if in_place_of_gpus:
            two = framework.list_devices("cpu", 2)
            patch.setattr(framework, "list_devices", lambda kind, count, gpus: two[:count])
            assert_works(framework, folder, "gpu", 2, 1)
        else:
            assert_works(framework, folder, "cpu", 2, 1)
            assert_finds_faults(framework, folder, patch)


def in_own_process(modules: Iterable[str], folder: Path, in_place_of_gpus: bool = False) -> None:
    """These checks, as a probe has them: in a process that has computed nothing before.

    TensorFlow counts the all-reduces of each strategy from the same number. Where a notebook's
    strategy over the same devices is at work too, they take each other's for their own.
    """
    words = [sys.executable, __file__, str(folder), str(int(in_place_of_gpus)), *modules]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    for name in sys.argv[3:]:
        module = importlib.import_module(f"helpers.frameworks.{name}")
        assert_all(module, Path(sys.argv[1]), bool(int(sys.argv[2])))
