import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import records
from records import make, started

from data_prep import FINDINGS
from helpers import record
from helpers.errors import UserError
from helpers.record import sections
from helpers.training import metrics

START = """
import sys, time
from pathlib import Path
from helpers import record
from helpers.frameworks.devices import Devices
from helpers.recipe import lookup
devices = Devices("cpu", ("CPU device 0",))
run = record.start(Path(sys.argv[1]), notebook=Path("N.ipynb"), framework="F", kernel="k",
                   versions={}, devices=devices, recipe=lookup("demo").on(1))
"""


def run_child(folder: Path, code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", START + code, folder])


def with_all_sections(folder: Path) -> record.Run:
    run, whole = started(folder), make()
    for section in set(whole) - set(run.content):
        run.add(section, whole[section])
    return run


def test_a_run_from_start_to_finish(tmp_path: Path) -> None:
    run = with_all_sections(tmp_path)
    assert record.read(tmp_path)["state"] == "running"
    run.finish()
    found: Any = record.read(tmp_path)
    assert found["state"] == "finished"
    assert found["recipe"]["global_batch_size"] == 128
    assert found["recipe"]["scaled_learning_rate"] == pytest.approx(2e-4)
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_what_does_not_fit_or_is_missing_is_refused_and_the_record_kept(tmp_path: Path) -> None:
    run = started(tmp_path)
    with pytest.raises(UserError, match="field data is missing"):
        run.finish()
    with pytest.raises(UserError, match="field weights/source"):
        run.add("weights", {"source": "pickle", "sha256": "0"})
    assert record.read(tmp_path)["state"] == "running"
    assert "weights" not in record.read(tmp_path)


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (ValueError("bad"), "failed", "ValueError: bad"),
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt"),
        (
            RuntimeError("replica 1 failed:\nTraceback ...\n  at x\nValueError: too dark"),
            *("failed", "RuntimeError: replica 1 failed: ValueError: too dark"),
        ),
    ],
)
def test_errors_end_in_the_record(
    tmp_path: Path, error: BaseException, state: str, reason: str
) -> None:
    started(tmp_path).fail(error)
    found = record.read(tmp_path)
    assert (found["state"], found["reason"]) == (state, reason)


def test_what_holds_no_longer_goes_and_the_run_is_not_finished(tmp_path: Path) -> None:
    run = with_all_sections(tmp_path)
    run.finish()
    run.remove("nothing of it")
    assert record.read(tmp_path)["state"] == "finished"
    run.remove("test", "loader")
    found: Any = record.read(tmp_path)
    assert found["state"] == "running" and not {"test", "loader"} & found.keys()
    assert found["run"]["finished"] is None and "training" in found


def test_a_run_that_was_replaced_says_so_and_writes_no_more(tmp_path: Path) -> None:
    started(tmp_path / "alone").close()
    said = record.read(tmp_path / "alone")["reason"]
    assert said == "another run was begun before the run was finished"
    older, newer = started(tmp_path), started(tmp_path)
    assert older.id != newer.id == record.read(tmp_path)["run"]["id"]
    with pytest.raises(UserError, match="another run has begun in this folder; run the cells from"):
        older.add("weights", make()["weights"])
    older.close()
    assert record.read(tmp_path)["run"]["id"] == newer.id
    assert record.read(tmp_path)["state"] == "running"


def test_a_process_that_just_ends_leaves_an_interrupted_record(tmp_path: Path) -> None:
    assert run_child(tmp_path, "sys.exit(3)").wait() == 3
    on_disk = json.loads((tmp_path / "record.json").read_text())
    assert on_disk["state"] == "interrupted"


def test_a_killed_process_is_found_out(tmp_path: Path) -> None:
    child = run_child(tmp_path, "time.sleep(60)")
    while not (tmp_path / "record.json").exists():
        time.sleep(0.05)
    assert record.read(tmp_path)["state"] == "running"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert json.loads((tmp_path / "record.json").read_text())["state"] == "running"
    found: Any = record.read(tmp_path)
    assert found["state"] == "interrupted" and "killed" in found["reason"]


def test_unreadable_records(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no record"):
        record.read(tmp_path)
    (tmp_path / "record.json").write_text('{"schema": 1')
    with pytest.raises(UserError, match="not a JSON file of this project"):
        record.read(tmp_path)


def test_plain_json_values() -> None:
    given = {"a": np.float32(1.5), "b": (np.int64(2), float("nan")), "c": Path("x"), 3: np.eye(1)}
    assert record.plain(given) == {"a": 1.5, "b": [2, None], "c": "x", "3": [[1.0]]}


def test_training_leaves_out_the_first_epoch() -> None:
    row = {"train_seconds": 2.0, "valid_seconds": 1.0, "images": 128}
    history = [row | {"images_per_second": rate} for rate in (10.0, 40.0, 50.0, 60.0)]
    section = sections.training(history, 7.0)
    assert (section["images_per_second"], section["seconds"]) == (50.0, 12.0)
    assert sections.training(history[:1], 7.0)["images_per_second"] == 10.0


def test_section_test_fits_the_schema_and_keeps_what_cannot_be_computed() -> None:
    random = np.random.default_rng(0)
    split = pd.DataFrame(random.random((60, 14)) < 0.4, columns=list(FINDINGS), dtype=np.uint8)
    split.insert(0, "group", np.arange(60) // 2)
    split.insert(0, "image", [f"{number}.png" for number in range(60)])
    split["Hernia"], split["Mass"] = 0, (np.arange(60) < 2).astype(np.uint8)
    result = records.evaluate_findings(split, random.normal(size=(60, 14)))
    section = record.plain(result)
    record.check(records.make(test=section))
    assert section["mean_auc"] == pytest.approx(result["mean_auc"])
    assert section["sample"] == result["sample"]
    assert len(section["resamples"]) == metrics.RESAMPLES
    assert max(len(str(value)) for value in section["resamples"]) <= 8
    rows = {row["finding"]: row for row in section["findings"]}
    assert rows["Hernia"]["auc"] is None and "no positive" in rows["Hernia"]["reason"]
    assert rows["Mass"]["auc"] is not None and "not in the mean" in rows["Mass"]["reason"]


def test_energy_is_never_a_made_up_zero() -> None:
    row = {"device": "gpus", "phase": "train", "energy (J)": 50.0, "items": 100.0}
    assert sections.energy(pd.DataFrame([row]))["images_per_joule"] == 2.0
    # The monitor has left out what it could not measure, of the joules and of the images.
    partly = sections.energy(pd.DataFrame([{**row, "items/J": 1.5}]))
    assert partly["joules"] == 50.0 and partly["images_per_joule"] == 1.5
    for changed, why in (
        ({"device": "host"}, "no GPU"),
        ({"energy (J)": np.nan}, ""),
        ({"phase": "test"}, "earlier process"),
    ):
        unknown = sections.energy(pd.DataFrame([row | changed]))
        assert unknown["joules"] is None and unknown["reason"] and why in unknown["reason"]


def test_the_memory_of_a_run_is_the_peak_of_its_fullest_device() -> None:
    none = pd.DataFrame({"device": ["host"]})
    assert sections.memory(none, 5) == {"peak_bytes": 5}
    unseen = {"peak_bytes": None}
    assert sections.memory(none) == unseen
    gpus = pd.DataFrame({"device": ["gpu0", "gpu1"], "memory peak (MiB)": [1.0, 2.0]})
    assert sections.memory(gpus)["peak_bytes"] == 2 * 2**20
    for memory in (unseen, sections.memory(none, 5)):
        record.check(make(memory=memory))
