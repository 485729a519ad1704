"""The report as files: what is in it, what is flagged, and that text stays text."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import records

from helpers import paths
from helpers.__main__ import main
from helpers.results import (
    caveats,
    charts,
    comparison,
    comparison_tables,
    conclusions,
    fairness_tables,
    published,
    repeated_runs,
    report,
    scaling,
    waits,
)
from helpers.results.report import markdown, sections


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of six demo records; its folder."""
    batch = tmp_path_factory.mktemp("batch")
    records.six(batch)
    return report.write(batch).parent


def test_the_page_holds_everything_and_fetches_nothing(made: Path) -> None:
    page = (made / report.HTML).read_text()
    addresses = re.findall(r'\s(?:src|href|action|srcset)="([^"]*)"', page)
    linked = [a for a in addresses if not a.startswith(("#", "data:"))]
    assert len(linked) == 6 and all((made / a).is_file() for a in linked)  # the records
    assert "url(" not in page.replace("url(#", "")
    names = [
        "All runs", "Where the seconds went", "What the devices did", "What limits training",
        "Is it fair", "Machine and remarks", "More results",
    ]  # fmt: skip
    heads = r"<section [^>]*>\s*<h2[^>]*>([^<]*)"
    assert re.findall(heads, page) == names
    for framework, _, _ in records.SIX:
        assert framework in page


def test_paired_and_published_numbers_have_files_and_one_number_of_devices_no_scaling(
    made: Path,
) -> None:
    pairs = pd.read_csv(made / report.CSV / "paired.csv").set_index("label")
    assert set(pairs["reference"]) == {"Keras, 2 devices"}  # the median of six: 0.70 to 0.75
    assert pairs.loc["Chainer", ["difference", "low", "high"]].tolist() == pytest.approx([0.03] * 3)
    assert pairs.loc["PyTorch", "verdict"] == "lower"
    assert len(pd.read_csv(made / report.CSV / "published.csv")) == 11
    assert not (made / report.CSV / "scaling.csv").exists()  # one number of devices only


def test_published_numbers_are_marked_and_have_their_source(made: Path) -> None:
    for name in (report.HTML, report.MARKDOWN):
        text = (made / name).read_text().partition("The 2018 benchmark by Ilia Karmanov")[2]
        assert "These numbers were not measured here" in text
        assert published.content()["source"]["title"] in text


BAD = {"check": "gradients", "difference": 0.4, "threshold": 0.05, "verdict": "fail"}
UNFAIR = {"comparable": False, "checks": [BAD | {"reason": "summed"}]}


def trained_differently(variant: str) -> dict[str, Any]:
    other = {"check": "mirrored crops", "difference": 0.5, "threshold": 0.1, "variant": variant}
    return {"comparable": False, "checks": [other | {"verdict": "different", "reason": "0 of 512"}]}


def disturbed(used: float | None, reason: str | None = None) -> dict[str, Any]:
    return {"cores": 1, "other_programs": {"cores": 2, "used": used, "reason": reason}}


OTHER = {"name": "x", "seen": "during"}
OTHERS = {"processes": [OTHER], "reason": None}
RESUMED: dict[str, Any] = {"checkpoint": {"resumed_after": 3, "restarts": [3]}}
FLAGGED: dict[str, dict[str, Any]] = {
    "not comparable": {"gpu": True, "fairness": UNFAIR},
    "differs from the recipe": {"gpu": True, "fairness": trained_differently("no flip")},
    "resumed": {"gpu": True, **RESUMED},
    "GPU in use by others": {"gpu": True, "other_processes": OTHERS},
    "disturbed": disturbed(1.4),
}
"""By its flag a run that is not ranked: what is otherwise in its record."""


@pytest.mark.parametrize("flag", FLAGGED)
def test_a_flagged_run_is_not_ranked_and_is_flagged_everywhere(flag: str, tmp_path: Path) -> None:
    given = FLAGGED[flag]
    kind = {name: given[name] for name in ("gpu", "cores") if name in given}
    records.save(tmp_path, records.make("Keras", speed=70, **kind))
    compared = records.load(tmp_path, records.make("PyTorch", speed=400, **given))
    first = conclusions.fastest(compared)
    assert first.verdict == "Keras" and f"Not ranked: PyTorch ({flag})" in first.text
    assert list(comparison_tables.runs(compared).frame.index) == ["Keras", f"PyTorch ({flag})"]
    assert f"PyTorch on 2 devices ({flag})" in records.shown(charts.parts(compared)).alt
    page = report.write(tmp_path).read_text()
    assert re.search(rf'<th scope="row">PyTorch <span class="badge( bad)?">{flag}', page)
    flags = pd.read_csv(tmp_path / report.CSV / "runs.csv")["flags"].fillna("")
    assert list(flags) == [flag, ""]
    alone = records.load(tmp_path / "alone", records.make("PyTorch", **given))
    assert conclusions.fastest(alone).verdict == "unknown"


def test_a_failed_row_of_the_fairness_check_is_shown(tmp_path: Path) -> None:
    records.save(tmp_path, records.make("PyTorch", gpu=True))
    compared = records.load(tmp_path, records.make("Keras", gpu=True, fairness=UNFAIR))
    ends = "Keras, 2 devices (not comparable) ends after"
    assert ends in records.shown(charts.curves(compared)).alt
    page = report.write(tmp_path).read_text()
    assert '<td class="bad">failed</td>' in page and "summed" in page
    said = caveats.remarks(compared).frame["remark"]
    assert said["Keras"] == "fairness check not passed: gradients"
    assert re.search(r'<tr class="unfair">\s*<th scope="row">Keras', page)
    found = fairness_tables.not_passed(compared).frame.loc["gradients"]
    wanted = ["fail", "Keras", "4.0e-01 (limit 5e-02)"]
    assert list(found[["verdict", "runs", "largest difference"]]) == wanted
    assert conclusions.fairness(compared).verdict == "only in part"


def test_what_a_variant_does_otherwise_is_named(tmp_path: Path) -> None:
    for name in ("PyTorch", "TensorFlow"):
        records.save(tmp_path, records.make(name, gpu=True))
    fairness = trained_differently("augmentation (no flip)")
    compared = records.load(tmp_path, records.make("Keras", gpu=True, fairness=fairness))
    fair = conclusions.fairness(compared)
    assert fair.verdict == "yes"
    assert "Keras differs from the recipe: augmentation (no flip)" in fair.text
    page = report.write(tmp_path).read_text()
    assert "augmentation (no flip)" in page and "not comparable" not in page.split("<h1")[1][:300]


def test_a_resumed_run_scales_nothing(tmp_path: Path) -> None:
    for name, resumed in (("PyTorch", RESUMED), ("Keras", {})):
        records.save(tmp_path, records.make(name, 1, gpu=True))
        records.save(tmp_path, records.make(name, 2, gpu=True, **resumed))
    compared = comparison.load(tmp_path)
    assert list(scaling.table(compared).frame.index) == ["Keras"]
    assert set(scaling.numbers(compared)["flags"]) == {()}
    said = caveats.remarks(compared).frame["remark"]
    assert "last process" in said["PyTorch, 2 devices, resumed"]


def test_other_programs_disturb_a_run_from_a_tenth_of_its_cores_on(tmp_path: Path) -> None:
    """Where it is not known, this is said."""
    how = {"PyTorch": disturbed(1.4), "Keras": disturbed(0.19)}
    how["Chainer"] = disturbed(None, "no /proc")
    runs = (records.make(name, **given) for name, given in how.items())
    compared = records.load(tmp_path, *runs)
    labels = set(comparison_tables.runs(compared).frame.index)
    assert labels == {"Keras", "Chainer", "PyTorch (disturbed)"}
    said = caveats.remarks(compared).frame["remark"]
    assert "1.4 of 2 cores" in said["PyTorch"]
    assert "no /proc" in said["Chainer"] and not said.str.contains("0.19").any()


def test_repeats_are_told_by_median_and_spread(tmp_path: Path) -> None:
    for number, speed in enumerate((90, 100, 130)):
        records.save(tmp_path / str(number), records.make(speed=speed))
    batches = [tmp_path / str(number) for number in range(3)]
    compared = comparison.load(batches)
    row = repeated_runs.summarise(compared).iloc[0]
    assert row["runs"] == 3
    rates = [row[f"images_per_second{end}"] for end in ("", "_low", "_high")]
    assert rates == pytest.approx([105.4, 90.0, 130.0], rel=1e-3)
    assert comparison_tables.runs(compared).frame.loc["PyTorch", "images/s"] == "105 (90.0 to 130)"
    page = report.write(batches, tmp_path / "out").read_text()
    assert re.search(r'data-value="105.\d+">105 <small>90.0 to 130</small>', page)


def test_no_repeat_is_hidden_by_the_last(tmp_path: Path) -> None:
    """An earlier run's failed check, and a wait that only the last run tells of."""
    for seed in range(3):
        first: dict[str, Any] = {"fairness": UNFAIR, "attribution": _waited(0.01)}
        for name, own in (("PyTorch", {} if seed else first), ("Keras", {})):
            content = records.make(name, gpu=True, **own)
            content["recipe"]["seed"] = seed
            content["run"] |= {"variant": f"seed{seed}", "started": f"2026-11-21T0{seed}:00:00"}
            records.save(tmp_path / str(seed), content)
    compared = comparison.load([tmp_path / str(seed) for seed in range(3)])
    checks = fairness_tables.not_passed(compared).frame.loc["gradients"]
    assert list(checks[["verdict", "runs", "reason"]]) == ["fail", "PyTorch", "summed"]
    limits = comparison_tables.runs(compared).frame["limited by"]
    assert limits["PyTorch (not comparable)"] == "not measurable" and limits["Keras"] == "data 18 %"


def _waited(data: float, low: float | None = None, others: float = 0.01) -> dict[str, Any]:
    """The section attribution of a run that waited for data for a share of an epoch."""
    shares = {"compute": 0.9 - data, "data": data, "communication": 0.0, "validation": 0.1}
    intervals = {name: [value - 0.02, value + 0.02] for name, value in shares.items()}
    intervals["data"][0] = data - 0.02 if low is None else low
    intervals["communication"] = [-0.01, others]
    return {"shares": shares, "intervals": intervals, "sentence": "x"}


@pytest.mark.parametrize(
    ("found", "limit"),
    [
        (_waited(0.01), "compute"),
        (_waited(0.2), "data 20 %"),
        (_waited(0.1, low=0.04), "not measurable"),
        (_waited(0.01, others=1.32), "not measurable"),
        (_waited(0.2, low=-0.01), "not measurable"),
    ],
)
def test_what_limits_a_framework(tmp_path: Path, found: dict[str, Any], limit: str) -> None:
    compared = records.load(tmp_path, records.make(attribution=found, gpu=True))
    assert comparison_tables.runs(compared).frame.loc["PyTorch", "limited by"] == limit


def test_compiling_is_one_of_the_limits_and_a_part_of_the_seconds(tmp_path: Path) -> None:
    steps = dict.fromkeys(("minimum", "median", "maximum"), 0.5)
    content = records.make("Keras", attribution=_waited(0.2), gpu=True)
    content["training"] |= {"seconds": 100.0, "step_seconds": steps, "first_step_seconds": 60.5}
    compared = records.load(tmp_path, content)
    table = comparison_tables.runs(compared).frame
    assert table.loc["Keras", "limited by"] == "compiling 60 %, data 20 %"
    assert waits.table(compared).frame.loc["Keras", "compiling"] == "60 %"
    assert "of which compiling 60.0 s" in records.shown(charts.parts(compared)).alt


def test_a_share_stands_with_its_interval_or_in_words(tmp_path: Path) -> None:
    records.save(tmp_path, records.make("PyTorch", attribution=_waited(-0.004)))
    records.save(tmp_path, records.make("Keras", attribution=_waited(0.2, low=-0.3)))
    records.save(tmp_path, records.make("JAX", attribution=_waited(0.2)))
    old = {"shares": {"compute": None, "data": None, "validation": 0.1}, "invalid": "resumed"}
    records.save(tmp_path, records.make("Chainer", attribution=_waited(0.2) | old))
    compared = comparison.load(tmp_path)
    table = waits.table(compared).frame["for data"]
    assert dict(table) == {
        "PyTorch": "no measurable wait",
        "Keras": "too noisy to tell",
        "JAX": "20 % (18 to 22)",
        "Chainer": "too noisy to tell",
    }
    report.write(tmp_path)
    numbers = pd.read_csv(tmp_path / report.CSV / "attribution.csv").set_index("run")
    assert numbers.loc["PyTorch, 2 devices", "data"] == 0
    assert np.isnan(numbers.loc["Keras, 2 devices", "data"])


def test_nothing_finished_still_makes_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records.save(tmp_path, records.short("Keras", "failed", "RuntimeError: no kernel"))
    assert main(["report", str(tmp_path)]) == 0
    page = (tmp_path / report.HTML).read_text()
    assert "No run has finished yet" in page and "RuntimeError: no kernel" in page
    assert str(tmp_path / report.HTML) in capsys.readouterr().out


PUBLISHED = sorted(path.parent for path in (paths.ROOT / "docs" / "results").rglob("report.md"))
SMALL = "jax"


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(folder, marks=() if folder.name == SMALL else pytest.mark.slow, id=folder.name)
        for folder in PUBLISHED
    ],
)
def test_published_reports_are_as_this_code_writes_them(folder: Path) -> None:
    """Where they are not: ``rosetta report`` on each folder that has one."""
    compared = report.load(folder)
    written = markdown.render(compared, sections.sections(compared))
    assert written == (folder / report.MARKDOWN).read_text(encoding="utf-8")
