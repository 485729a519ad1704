"""Whose a GPU is, mine against others, as the driver tells it: trace, warning, figures, charts."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import gpumon_tools
import psutil
import pytest
from gpumon_tools import Play, gpu, play_fixture, write  # noqa: F401 (a fixture)
from test_charts import in_the_page, in_the_picture

from gpumon import launch

GONE = 2**22 + 1
"""Above what Linux numbers processes with, as a container's view of another's process."""


def test_a_shared_gpu_is_told_everywhere(play: Play) -> None:
    me, other = os.getpid(), os.getppid()
    script = gpu(0, f"utilisation 70\nprocesses {me} 100 {other} 3000\nuse {me} 20 {other} 50")
    alone = gpu(1, f"utilisation 10\nprocesses {me} 50\nuse {me} 10")
    away = gpu(2, f"utilisation 10\nprocesses {GONE} 50\nuse {GONE} 10")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trace = play(script + alone + away)
    frame = trace.to_pandas()
    for key, value in (("memory mine (MiB)", 100), ("memory others (MiB)", 3000)):
        assert set(frame[f"gpu0/{key}"].dropna()) == {value}
    for key, value in (("SM use mine (%)", 20), ("SM use others (%)", 50)):
        assert set(frame[f"gpu0/{key}"].dropna()) == {value}
    assert set(frame["gpu1/memory others (MiB)"].dropna()) == {0}
    assert frame["gpu2/memory mine (MiB)"].isna().all()
    assert frame["gpu2/memory others (MiB)"].isna().all()

    (event,) = [e for e in trace.metadata()["events"] if e["event"] == "shared"]
    name = psutil.Process(other).name()
    assert (event["device"], event["process"], event["name"]) == ("gpu0", other, name)
    said = f"GPU 0 is shared with {name} ({other}, 2.9 GiB): its figures"
    (warning,) = [warning for warning in told if said in str(warning.message)]
    assert Path(warning.filename) == Path(gpumon_tools.__file__)  # where the program calls
    rows = trace.summary().set_index(["phase", "device"])
    row = rows.loc[("(all)", "gpu0")]
    assert row["others' memory peak (MiB)"] == 3000
    assert row["others' SM use mean (%)"] == pytest.approx(50)  # weighted by time
    assert rows.loc[("(all)", ["gpu1", "gpu2"]), "others' memory peak (MiB)"].isna().all()
    picture, page = in_the_picture(trace), in_the_page(trace)
    for what in ("lanes", "notes", "legend"):
        assert picture[what] == page[what]
    assert f"with {name} ({other}, 2.9 GiB)" in picture["notes"]


def test_ranks_of_one_launcher_are_no_untrusteds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 4242)  # that of these tests may be init itself
    assert (launch.program_root(None), launch.program_root(3)) == (os.getpid(), 4242)
    monkeypatch.setattr(os, "getppid", lambda: 1)  # the launcher is gone
    assert launch.program_root(3) == os.getpid()
