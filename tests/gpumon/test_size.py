"""The promise of a trace's size, held by the benchmark that its figure comes from."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gpumon_tools import Play, gpu, play_fixture  # noqa: F401 (a fixture)

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))

import long_trace  # noqa: E402

HOPPER = (
    "utilisation 9\nmemory_utilisation 9\nmemory 9\npower 9\nenergy 9\nthrottle 0\ngpm 1\n"
    "ecc_corrected 0\necc_uncorrected 0\nrows 0\nuse 1 1"
)
DAY = 86400
PROMISE = 60.0
"""MB a day; the docs name what was measured, which is less."""


def test_the_benchmark_has_the_series_of_a_sampler_and_reads_them_as_often(play: Play) -> None:
    trace = play(gpu(0, HOPPER), samples=1, interval=long_trace.INTERVAL)
    # Without the cores, of which every machine has another number.
    sampled = {
        series["key"]: max(series["every (s)"], long_trace.INTERVAL)
        for series in trace.header["series"]
        if not series["key"].removeprefix("host/cpu")[0].isdigit()
    }
    known = {
        key: every
        for key, (every, *_) in long_trace.series_of(1).items()
        if not key.removeprefix("host/cpu")[0].isdigit()
    }
    assert known.pop("gpu0/memory used (MiB)") > sampled.pop("gpu0/memory used (MiB)")
    assert known == sampled


def test_a_day_of_eight_gpus_is_small(tmp_path: Path) -> None:
    """Parts of noise at full size, and their rows."""
    long_trace.write(tmp_path / "t", gpus=8, seconds=600.0)
    parts = json.loads((tmp_path / "t.jsonl").open().readline())["parts"]
    packed = sum(part["bytes"] for part in parts) + (tmp_path / "t.tiers").stat().st_size
    megabytes = packed / parts[-1]["to"] * DAY / 1e6
    assert 0.8 * PROMISE < megabytes < PROMISE
