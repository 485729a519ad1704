"""What the monitor's tests share: scripts for the fake driver, and a fixture that plays them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fake_nvml
import pytest

import gpumon

Play = Callable[..., gpumon.Trace]


@pytest.fixture(name="play")
def play_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """Record a while with a script as the driver and give the trace."""

    def run(
        script: str,
        *,
        samples: int = 12,
        interval: float = 0.02,
        old_driver: bool = False,
        gpus: list[str | int] | None = None,
        visible: str | None = None,
    ) -> gpumon.Trace:
        file = tmp_path / "script"
        file.write_text(script)
        for name, text in fake_nvml.environment(file, old_driver).items():
            monkeypatch.setenv(name, text)
        for name in ("CUDA_VISIBLE_DEVICES", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
            monkeypatch.delenv(name, raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with gpumon.Monitor(tmp_path / "trace", interval=interval, gpus=gpus):
            deadline = time.monotonic() + 10
            wanted = samples + 1
            while time.monotonic() < deadline:
                if (tmp_path / "trace.jsonl").read_text().count("\n") > wanted:
                    break
                time.sleep(interval)
        return gpumon.read(tmp_path / "trace")

    yield run


def gpu(number: int, lines: str = "") -> str:
    base = fake_nvml.H200.format(gpu=number)
    return base + "\n".join(f"{number} {line}" for line in lines.strip().splitlines()) + "\n"


def changes(values: list[float]) -> list[float]:
    """The values without repeats, as a script's steps come out whatever the timing."""
    return [v for i, v in enumerate(values) if i == 0 or v != values[i - 1]]
