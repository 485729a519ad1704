"""The demo set: the NIH's layout and combinations, the same bytes each time, and learnable."""

from __future__ import annotations

from pathlib import Path
from threading import Timer

import numpy as np
import pytest
from data_prep_tools import HEADER, digest, table_of
from PIL import Image

from data_prep import FINDINGS, DataError, files, generate_nih, resize_folder, synthetic_folder
from data_prep.readers import nih
from data_prep.synthetic_nih import assign_findings, generate_xray


def test_the_layout_is_the_nihs(tmp_path: Path) -> None:
    generate_nih(tmp_path / "demo", images=6, seed=3, progress=False)
    text = (tmp_path / "demo" / "Data_Entry_2017.csv").read_text()
    assert text.splitlines()[0] == HEADER
    assert all(line.count(",") == 10 for line in text.splitlines())
    catalog = table_of(tmp_path / "demo")
    assert catalog["image"].iloc[0] == "00000001_000.png" and len(catalog) == 6
    for path in catalog["path"]:
        with Image.open(path) as image:
            assert (image.format, image.mode, image.size) == ("PNG", "L", (1024, 1024))
            assert np.asarray(image).std() > 30


def test_frequencies_and_follow_ups() -> None:
    jobs, table = assign_findings(1600, 0)
    rows = [line.split(",") for line in table.splitlines()[1:]]
    assert len(rows) == 1600 and len({name for name, *_ in rows}) == 1600
    of = nih.published_counts()["images"]
    known = {findings for findings, _ in nih.finding_sets()}
    assert {job[3] for job in jobs} <= known  # only what comes together at the NIH's
    for finding, count in nih.finding_counts().items():
        have = sum(finding in job[3] for job in jobs)
        assert have >= 1600 / 20 - 9, finding
        if count > of / 10:  # the frequent ones are about as frequent
            assert abs(have / 1600 - count / of) < 0.05, finding
    assert 0.35 < sum(not job[3] for job in jobs) / 1600 < 0.54
    patients = [job[1] for job in jobs]
    assert 300 < len(set(patients)) < 900 and patients == sorted(patients)
    assert all(int(row[0][:8]) == int(row[3]) and int(row[0][9:12]) == int(row[2]) for row in rows)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder, workers, seed in (("a", 1, 5), ("b", 3, 5), ("c", 2, 6)):
        generate_nih(
            tmp_path / folder, images=20, seed=seed, size=128, num_workers=workers, progress=False
        )
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    first, other = digest(tmp_path / "a"), digest(tmp_path / "c")
    assert not set(first.values()) & set(other.values())


def test_whoever_comes_second_waits_for_the_same_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Notebooks that are begun side by side; the second ended after five seconds."""
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.1)
    held = files.exclusive_lock(tmp_path / "demo")
    held.__enter__()
    with pytest.raises(DataError, match="another data-prep"), monkeypatch.context() as patch:
        patch.setattr(synthetic_folder, "LOCK_TIMEOUT", 0.2)
        generate_nih(tmp_path / "demo", images=10, size=64, progress=False)
    Timer(0.5, held.__exit__, (None, None, None)).start()
    assert generate_nih(tmp_path / "demo", images=10, size=64, progress=False)["written"] == 10
    said = f"{tmp_path / 'demo'}: waiting for another process that is writing it"
    assert set(capsys.readouterr().err.splitlines()) == {said}


def test_a_resized_demo_still_says_that_it_is_one(tmp_path: Path) -> None:
    generate_nih(tmp_path / "demo", images=10, size=64, progress=False)
    for _ in range(2):
        resize_folder(tmp_path / "demo", tmp_path / "small", size=38, progress=False)
    mark = (tmp_path / "demo" / "demo.json").read_bytes()
    assert (tmp_path / "small" / "demo.json").read_bytes() == mark


@pytest.mark.parametrize("finding", FINDINGS)
def test_every_finding_is_in_the_picture(finding: str) -> None:
    # Among ten patients, most (hidden labels are allowed for) show a difference beyond grain.
    seen = 0
    for patient in range(10):
        plain = generate_xray(0, patient, 0, (), 128).astype(int)
        planted = generate_xray(0, patient, 0, (finding,), 128).astype(int)
        seen += np.abs(planted - plain).mean() > 2.0
    assert seen >= 7
