"""The report as files: what is in it, what is marked, and that text stays text."""

import html
import io
import json
import re
from pathlib import Path

import pandas as pd
import pytest
import records

from helpers import comparison, learning, published, repeats, report, scaling, summary, tables
from helpers.__main__ import main


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of six demo records; its folder."""
    batch = tmp_path_factory.mktemp("batch")
    records.six(batch)
    return report.write(batch).parent


def test_the_page_holds_everything_and_fetches_nothing(made: Path) -> None:
    page = (made / report.HTML).read_text()
    addresses = re.findall(r'\s(?:src|href|action|srcset)="([^"]*)"', page)
    assert addresses and all(a.startswith(("#", "data:")) for a in addresses)
    assert "url(" not in page.replace("url(#", "")
    assert "default-src 'none'" in html.unescape(page)
    names = [
        "How fast", "What more devices bring", "How well it learnt", "What the devices did",
        "Is it fair", "What this does not show", "Machine and versions",
    ]  # fmt: skip
    assert re.findall(r"<section [^>]*>\s*<h2[^>]*>([^<]*)", page) == names
    for framework, _, _ in records.SIX:
        assert framework in page


def test_csv_holds_the_numbers_unrounded(made: Path) -> None:
    runs = pd.read_csv(made / report.CSV / "runs.csv")
    assert len(runs) == 6 and set(runs["comparable"]) == {True}
    found = runs.set_index("label")["images_per_second"]
    assert found["MXNet Gluon"] == 110.0
    auc = pd.read_csv(made / report.CSV / "auc.csv")
    assert len(auc) == 6 * 14 and {"finding", "auc", "low", "high"} <= set(auc.columns)
    assert auc["in_mean"].all()
    assert found_auc(runs, "PyTorch") == [0.70, 0.67, 0.73]
    pairs = pd.read_csv(made / report.CSV / "paired.csv").set_index("label")
    assert set(pairs["reference"]) == {"Keras, 2 devices"}  # the median of six: 0.70 to 0.75
    assert pairs.loc["Chainer", ["difference", "low", "high"]].tolist() == pytest.approx([0.03] * 3)
    assert pairs.loc["PyTorch", "verdict"] == "lower"
    assert len(pd.read_csv(made / report.CSV / "published.csv")) == 10
    assert not (made / report.CSV / "scaling.csv").exists()  # one number of devices only


def found_auc(runs: pd.DataFrame, label: str) -> list[float]:
    row = runs.set_index("label").loc[label, ["mean_auc", "auc_low", "auc_high"]]
    return [round(value, 6) for value in row]


def test_the_mean_auc_has_its_interval_on_the_page_and_in_markdown(made: Path) -> None:
    both = {report.HTML: "0.750 0.720 to 0.780", report.MARKDOWN: "| 0.750 (0.720 to 0.780) |"}
    for name, told in both.items():
        text = re.sub(r"<[^>]*>", "", (made / name).read_text())
        text = " ".join(html.unescape(text).split())
        assert text.count(told) == 3, name  # in the tables of training, of findings, of pairs
        assert "over the test part's patients" in text
        assert "Each minus Keras, 2 devices" in text


def test_markdown_has_the_same_tables(made: Path) -> None:
    text = (made / report.MARKDOWN).read_text()
    assert text.startswith("# ") and "MXNet Gluon trained fastest" in text
    assert "| PyTorch Exp Loss |" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(row.rstrip().endswith("|") for row in rows)


def test_published_figures_are_marked_wherever_they_stand(made: Path) -> None:
    page = (made / report.HTML).read_text()
    for table in re.findall(r'<table class="published".*?</table>', page, re.DOTALL):
        assert "published" in re.search(r"<caption[^>]*>(.*?)<", table)[1]  # type: ignore[index]
    assert page.count('<table class="published"') == 2
    heads = re.findall(r"<h3>([^<]*published[^<]*)<span class=\"badge\">published</span>", page)
    assert len(heads) == 2
    assert published.content()["source"]["address"] in page
    text = (made / report.MARKDOWN).read_text()
    assert text.count("(published, not measured here)") == 2


def test_published_figures_are_the_articles() -> None:
    numbers = published.results().set_index(["label", "devices"])
    assert numbers.loc[("PyTorch", 4), "seconds"] == 600
    assert numbers.loc[("Chainer", 4), "mean_auc"] == 0.5511
    assert numbers.loc[("Keras", 1), "synthetic_seconds"] == 36 * 60
    assert published.training().loc["TensorFlow", ("4 GPUs", "speed-up")] == "1.5"
    assert set(numbers.index.unique("label")) == {name for name, _, _ in records.SIX}


def test_what_failed_its_certificate_is_marked_where_it_is_timed(tmp_path: Path) -> None:
    records.save(tmp_path, records.make("PyTorch", speed=50))
    quick = records.make("Keras", speed=500)
    bad = {"check": "gradients", "difference": 0.4, "threshold": 0.05, "verdict": "fail"}
    quick["fairness"] = {"comparable": False, "checks": [bad | {"reason": "summed"}]}
    records.save(tmp_path, quick)
    compared = comparison.load(tmp_path)
    assert list(tables.training(compared).index) == ["PyTorch", "Keras (not comparable)"]
    page = report.write(tmp_path).read_text()
    marked = r'<tr class="unfair">\s*<th scope="row">Keras <span class="badge bad">not comparable'
    assert len(re.findall(marked, page)) == 2  # both speed tables
    assert re.search(r'<td class="bad">fail: 4\.0e-01', page)
    assert "summed" in page
    first = summary.fastest(compared)
    assert first.verdict == "PyTorch" and "Keras took less time but did not pass" in first.text
    assert summary.fairness(compared).verdict == "only in part"


def test_unknown_verdicts_are_shown_as_they_are(tmp_path: Path) -> None:
    content = records.make()
    content["fairness"]["checks"] = [
        {"check": f"c{number}", "difference": None, "threshold": None, "verdict": verdict,
         "reason": f"because {number}"}
        for number, verdict in enumerate(("not checked", "known"))
    ]  # fmt: skip
    records.save(tmp_path, content)
    page = report.write(tmp_path).read_text()
    assert len(re.findall(r'<td class="other">(not checked|known)<', page)) == 2
    assert "because 0" in page and "because 1" in page


def test_repeats_are_told_by_median_and_spread(tmp_path: Path) -> None:
    for number, speed in enumerate((90, 100, 130)):
        records.save(tmp_path / str(number), records.make(speed=speed))
    batches = [tmp_path / str(number) for number in range(3)]
    compared = comparison.load(batches)
    row = repeats.summarise(compared).iloc[0]
    assert row["runs"] == 3
    assert (row["images_per_second_low"], row["images_per_second"]) == (90.0, 100.0)
    assert (
        tables.training(compared).loc["PyTorch", ("2 devices", "images/s")] == "100 (90.0 to 130)"
    )
    page = report.write(batches, tmp_path / "out").read_text()
    assert re.search(r'<td class="number">100 <small>90.0 to 130</small>', page)
    assert "The median of 3 repeats" in page


def test_runs_of_other_settings_are_not_repeats(tmp_path: Path) -> None:
    for number, precision in enumerate(("fp32", "bf16")):
        content = records.make(speed=100 * (1 + number))
        content["recipe"]["precision"] = precision
        records.save(tmp_path / precision, content)
    compared = comparison.load([tmp_path / "fp32", tmp_path / "bf16"])
    assert [entry.label for entry in compared.entries] == ["PyTorch bf16", "PyTorch fp32"]
    assert list(repeats.summarise(compared)["runs"]) == [1, 1]


def test_scaling_is_over_the_fewest_devices(tmp_path: Path) -> None:
    for devices, speed in ((1, 100), (2, 180), (4, 300)):
        records.save(tmp_path, records.make(devices=devices, speed=speed))
    records.save(tmp_path, records.make("Keras", 2))
    compared = comparison.load(tmp_path)
    numbers = scaling.scaling(compared).set_index(["label", "devices"])
    assert numbers.loc[("PyTorch", 4), "efficiency"] == pytest.approx(0.75)
    assert numbers.loc[("PyTorch", 2), "ideal"] == pytest.approx(200)
    assert numbers.loc[("Keras", 2), "efficiency"] == 1.0
    assert list(scaling.table(compared)["efficiency"]) == ["90 %", "75 %"]
    page = report.write(tmp_path).read_text()
    assert "Speed-up and efficiency" in page and "PyTorch on 4 devices 75 %" in page


def test_time_to_an_auc_counts_whole_epochs(tmp_path: Path) -> None:
    records.save(tmp_path, records.make("PyTorch", speed=100, auc=0.75))  # 0.63 to 0.75
    records.save(tmp_path, records.make("Keras", speed=200, auc=0.72))  # 0.60 to 0.72
    compared = comparison.load(tmp_path)
    assert learning.target(compared) == 0.72
    rows = {row["run"]: row for row in learning.time_to_auc(compared)}
    assert rows["PyTorch, 2 devices"]["epoch"] == 4
    assert rows["PyTorch, 2 devices"]["seconds"] == pytest.approx(4 * (1024 / 100 + 1))
    assert rows["Keras, 2 devices"]["epoch"] == 5
    late = {row["run"]: row["seconds"] for row in learning.time_to_auc(compared, 0.74)}
    assert late["Keras, 2 devices"] is None
    assert learning.table(compared, 0.74).loc["Keras, 2 devices", "time"] == "not reached"


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ({"compute": 0.97, "data": 0.01, "validation": 0.02}, "little"),
        ({"compute": 0.5, "data": 0.4, "validation": 0.1}, "data"),
        ({"compute": 0.5, "data": 0.1, "synchronisation": 0.4}, "each other"),
    ],
)
def test_what_was_waited_for(tmp_path: Path, shares: dict[str, float], verdict: str) -> None:
    attribution = {"shares": shares, "sentence": "x"}
    records.save(tmp_path, records.make("PyTorch", attribution=attribution))
    records.save(tmp_path, records.make("Keras", attribution=attribution))
    compared = comparison.load(tmp_path)
    assert summary.waiting(compared).verdict == verdict
    assert summary.headline(compared).startswith("PyTorch trained fastest on 2 virtual CPU devices")


@pytest.mark.parametrize(
    ("doubted", "verdict"),
    [([], "data"), (["PyTorch"], "each other"), (["PyTorch", "Keras"], "unknown")],
)
def test_a_share_on_which_the_ways_differ_is_no_headline(
    tmp_path: Path, doubted: list[str], verdict: str
) -> None:
    for name, data in (("PyTorch", 0.4), ("Keras", 0.1)):
        shares = {"compute": 0.8 - data, "data": data, "synchronisation": 0.2}
        agreement = {"data": {"difference": 0.3, "agree": name not in doubted}}
        attribution = {"shares": shares, "sentence": "x", "agreement": agreement}
        records.save(tmp_path, records.make(name, attribution=attribution))
    assert summary.waiting(comparison.load(tmp_path)).verdict == verdict


def test_a_lead_within_the_repeats_is_called_that(tmp_path: Path) -> None:
    for number, (first, second) in enumerate(((100, 97), (103, 101))):
        records.save(tmp_path / str(number), records.make("PyTorch", speed=first))
        records.save(tmp_path / str(number), records.make("Keras", speed=second))
    compared = comparison.load([tmp_path / "0", tmp_path / "1"])
    assert "Keras is within the spread of the repeats" in summary.fastest(compared).text


def test_nothing_finished_still_makes_a_report(tmp_path: Path) -> None:
    records.save(tmp_path, records.short("Keras", "failed", "RuntimeError: no kernel"))
    page = report.write(tmp_path).read_text()
    assert "No run has finished yet" in page and "RuntimeError: no kernel" in page


def test_text_stays_text_in_markdown_and_csv(tmp_path: Path) -> None:
    evil = "<img src=x> | `a` [b](http://c) \n# d"
    records.save(tmp_path, records.short("Keras", "failed", evil))
    content = records.make("=1+1", notebook="x_MultiGPU")
    records.save(tmp_path, content)
    report.write(tmp_path)
    text = (tmp_path / report.MARKDOWN).read_text()
    assert "<img" not in text and "[b](" not in text and "\n# d" not in text
    runs = pd.read_csv(io.StringIO((tmp_path / report.CSV / "runs.csv").read_text()))
    assert runs["label"][0].startswith("'=1+1")


def test_command_reports_again(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (made / report.HTML).unlink()
    assert main(["report", str(made)]) == 0
    assert (made / report.HTML).exists()
    assert str(made / report.HTML) in capsys.readouterr().out
    assert main(["report", str(made / "nothing")]) == 2
    assert "no record" in capsys.readouterr().err


def test_record_like_file_is_plain_json() -> None:
    path = Path(published.__file__).with_name("published.json")
    assert json.loads(path.read_text())["published"] is True
