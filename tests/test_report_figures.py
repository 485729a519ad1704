"""Every figure of a report, traced to the record's field that it comes from.

The records hold a value of its own in every numeric field, so that no figure can be right by
chance. What each cell and sentence should say is worked out here from the records' JSON, without
the code that makes the report. A table, a sentence or a column that is not accounted for fails.
"""

import random
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import records
from matplotlib.text import Text

from helpers import charts, comparison, learning, report, tables, waits

Record = dict[str, Any]
Cells = dict[tuple[str, str, str], str]
"""By table, row and column."""

COUNTS = (1, 2)
VARIED = ("epochs", "training", "test", "files", "synthetic", "loader", "attribution", "energy")


def varied(value: Any, draw: random.Random, key: str = "") -> Any:
    """``value`` with every number in it changed by a factor of its own."""
    if isinstance(value, dict):
        return {name: varied(item, draw, name) for name, item in value.items()}
    if isinstance(value, list):
        return [varied(item, draw) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float) or key == "epoch":
        return value
    changed = value * draw.uniform(0.75, 1.25)
    return round(changed) + 1 if isinstance(value, int) else changed


def make(batch: Path, seed: int) -> list[Record]:
    """The records of six notebooks on one and on two GPUs, no two numbers alike."""
    draw = random.Random(seed)
    shared = varied(records.make(gpu=True), draw)
    made = []
    for number, (framework, notebook, speed) in enumerate(records.SIX):
        for count in COUNTS:
            told = {"joules": 5e4, "images_per_joule": 0.9, "reason": None}
            content = records.make(
                framework, count, notebook=notebook, speed=speed * count, gpu=True, energy=told
            )
            content |= {section: varied(content[section], draw) for section in VARIED}
            content["hardware"] |= {
                key: shared["hardware"][key] for key in ("cores", "memory_bytes")
            }
            content["data"]["images"] = shared["data"]["images"]
            content["run"]["seconds"] = draw.uniform(100, 5000)
            content["attribution"]["sentence"] = f"Waited {draw.uniform(0, 100):.1f} %."
            check = content["fairness"]["checks"][0]
            check |= {"difference": draw.uniform(1e-9, 1e-6), "threshold": draw.uniform(1e-5, 1e-4)}
            check["reason"] = f"because of {draw.uniform(0, 100):.1f}"
            # One is the fastest by far, so that the first sentence is known.
            content["training"]["seconds"] *= 0.3 if number == 4 else 1
            records.save(batch, content)
            made.append(content)
    return made


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    folder = tmp_path_factory.mktemp("figures")
    made = make(folder, seed=1)
    report.write(folder)
    return folder, made


# What a record's figures are to look like, from its fields alone.


def label(content: Record) -> str:
    variant = content["run"]["notebook"].partition("_MultiGPU")[2].replace("_", " ")
    return f"{content['framework']['name']}{variant}"


def count_of(content: Record) -> str:
    count = content["devices"]["count"]
    return f"{count} device" if count == 1 else f"{count} devices"


def run(content: Record) -> str:
    return f"{label(content)}, {count_of(content)}"


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(found: Record, value: str, low: str, high: str) -> str:
    return f"{found[value]:.3f} ({found[low]:.3f} to {found[high]:.3f})"


def size(value: float, digits: int) -> str:
    return f"{value:.{digits}e}"


def share(found: Record, name: str) -> str:
    low, high = found["intervals"][name]
    return f"{round(100 * found['shares'][name])} % ({round(100 * low)} to {round(100 * high)})"


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def synthetic_seconds(content: Record) -> float:
    return float(
        content["training"]["train_images_seen"] / content["synthetic"]["images_per_second"]
    )


def so_far(content: Record) -> list[float]:
    seconds = [epoch["train_seconds"] + epoch["valid_seconds"] for epoch in content["epochs"]]
    return [sum(seconds[: number + 1]) for number in range(len(seconds))]


def best(content: Record) -> float:
    return float(max(epoch["valid_auc"] for epoch in content["epochs"]))


def on_fewest(content: Record, made: list[Record]) -> Record:
    return next(c for c in made if label(c) == label(content) and c["devices"]["count"] == 1)


def expected(made: list[Record]) -> Cells:
    """Every cell of every table that comes from the records."""
    cells: Cells = {}

    def put(table: str, row: str, **columns: str) -> None:
        cells.update({(table, row, name.replace("_", " ")): text for name, text in columns.items()})

    unit, divisor = ("min", 60) if max(c["training"]["seconds"] for c in made) >= 120 else ("s", 1)
    least = max(map(synthetic_seconds, made))
    of_synthetic = ("min", 60) if least >= 120 else ("s", 1)
    wanted = int(100 * min(map(best, made)) + 1e-4) / 100
    for content in made:
        training, test, energy = content["training"], content["test"], content["energy"]
        head, base = count_of(content), on_fewest(content, made)
        files = {
            f"{head} time ({unit})": short(training["seconds"] / divisor),
            f"{head} images/s": short(training["images_per_second"]),
            f"{head} test AUC": mean_auc(test),
        }
        nothing_loaded = {
            f"{head} time ({of_synthetic[0]})": scaled(content, of_synthetic[1]),
            f"{head} images/s": short(content["synthetic"]["images_per_second"]),
        }
        if content is not base:
            seconds = base["training"]["seconds"] / training["seconds"]
            ideal = 2 * base["training"]["images_per_second"]
            fast = (
                content["synthetic"]["images_per_second"] / base["synthetic"]["images_per_second"]
            )
            of_base = synthetic_seconds(base) / synthetic_seconds(content)
            files[f"{head} speed-up"] = f"{seconds:.2f}"
            nothing_loaded[f"{head} speed-up"] = f"{of_base:.2f}"
            put(
                "Speed-up and efficiency",
                label(content),
                **{
                    "devices": "1 to 2",
                    "images/s": short(training["images_per_second"]),
                    "ideal": short(ideal),
                    "efficiency": f"{100 * training['images_per_second'] / ideal:.0f} %",
                    "speed-up": f"{seconds:.2f}",
                    "synthetic speed-up": f"{fast:.2f}",
                    "synthetic efficiency": f"{100 * fast / 2:.0f} %",
                },
            )
            for row in test["findings"]:
                where = ("AUC per finding, 95 % interval", row["finding"], run(content))
                cells[where] = spread(row, "auc", "low", "high")
            cells["AUC per finding, 95 % interval", "Mean", run(content)] = mean_auc(test)
        put("Training on image files", label(content), **files)
        put("Training on synthetic data", label(content), **nothing_loaded)
        reached = [n for n, e in enumerate(content["epochs"]) if e["valid_auc"] >= wanted]
        put(
            "Time to a chosen AUC",
            run(content),
            time=f"{so_far(content)[reached[0]]:.1f} s",
            epoch=str(reached[0] + 1),
            best_AUC=f"{best(content):.3f}",
        )
        found = content["attribution"]
        put("Shares of an epoch", run(content), **{n: share(found, n) for n in found["shares"]})
        put(
            "Energy of the GPUs while training",
            run(content),
            energy=f"{short(energy['joules'] / 1000)} kJ",
            images_per_joule=f"{energy['images_per_joule']:.3g}",
        )
        check = content["fairness"]["checks"][0]
        limit = f"limit {size(check['threshold'], 0)}"
        told = f"pass: {size(check['difference'], 1)} ({limit})"
        cells["Certificate", check["check"], run(content)] = told
        for package, version in content["framework"]["versions"].items():
            cells["Versions", package, label(content)] = version
    return cells


def mean_auc(test: Record) -> str:
    return f"{test['mean_auc']:.3f}"


def scaled(content: Record, divisor: float) -> str:
    fewer = content["synthetic"]["images"] < content["training"]["train_images_seen"]
    return f"{'~' if fewer else ''}{short(synthetic_seconds(content) / divisor)}"


def expected_rows(made: list[Record]) -> dict[str, list[list[str]]]:
    """The tables whose first column is not one row's name alone, row by row."""
    checks = [(run(c), c["fairness"]["checks"][0]) for c in made]
    first = made[0]
    hardware, recipe, data = first["hardware"], first["recipe"], first["data"]
    images = data["images"]
    every = {
        "machine": first["run"]["host"],
        "CPU": f"{hardware['cpu']}, {hardware['cores']} cores",
        "memory": f"{hardware['memory_bytes'] / 2**30:.0f} GiB",
        "driver": hardware["driver"],
        "recipe": f"{recipe['name']}, {recipe['crop']} px, {recipe['epochs']} epochs, "
        f"{recipe['precision']}, seed {recipe['seed']}",
        "data": f"{data['kind']}, {data['pixels']} px, {images['train']} + {images['valid']} + "
        f"{images['test']} images, {data['folder']}",
        "initial weights": f"{first['weights']['source']}, {first['weights']['sha256'][:12]}",
        "commit": first["run"]["commit"],
    }
    machine = [[what, value, "every run"] for what, value in every.items()]
    for count in COUNTS:
        those = [c for c in made if c["devices"]["count"] == count]
        runs, scaled_to = "; ".join(map(run, those)), those[0]["recipe"]
        machine += [
            ["devices", f"{count} x NVIDIA H100", runs],
            ["global batch", str(scaled_to["global_batch"]), runs],
            ["learning rate", f"{scaled_to['scaled_learning_rate']:g}", runs],
        ]
    return {
        "What is said about single checks": [
            [check["check"], "pass", check["reason"], name] for name, check in checks
        ],
        "How every run ended": [
            [label(c), str(c["devices"]["count"]), "finished", clock(c["run"]["seconds"]), ""]
            for c in made
        ],
        "Machine, recipe, data": machine,
    }


def expected_sentences(made: list[Record]) -> set[str]:
    """Every line beside the tables that comes from the records."""
    wide = [c for c in made if c["devices"]["count"] == 2]
    first, second = sorted(wide, key=lambda c: c["training"]["seconds"])[:2]
    seconds, rate = first["training"]["seconds"], first["training"]["images_per_second"]
    lead = second["training"]["seconds"] / seconds
    checks = len([c["fairness"]["checks"][0] for c in made])
    by_data = sorted(wide, key=lambda c: c["attribution"]["shares"]["data"])
    waited = " to ".join(
        f"{share(c['attribution'], 'data')} in {run(c)}" for c in (by_data[0], by_data[-1])
    )
    machine = "2 NVIDIA H100"
    wanted = int(100 * min(map(best, made)) + 1e-4) / 100
    return {
        f"{label(first)} trained fastest on {machine}; the comparison is fair; "
        "the devices waited for data.",
        f"- **Fastest** {label(first)}: {seconds:.1f} s (one run) on 2 devices, {short(rate)} "
        f"images/s; {lead:.2f} times as fast as {label(second)}, one run each.",
        f"- **Fair?** yes: {len(made)} of {len(made)} finished runs passed their certificate. "
        f"Their checks: {checks} pass.",
        f"- **Waited for** data: Of an epoch, data took {waited}, in 6 of 6 runs.",
        f"### Time to a validation AUC of {wanted:.2f}",
        *(f"- {run(c)}: {c['attribution']['sentence']}" for c in made),
    }


def expected_alts(made: list[Record]) -> set[str]:
    """What is read aloud in place of the charts."""
    wide = [c for c in made if c["devices"]["count"] == 2]

    def told(what: str, part: Callable[[Record], str], of: list[Record] = made) -> str:
        return f"{what}: {'; '.join(map(part, of))}."

    def ended(c: Record) -> str:
        last = c["epochs"][-1]
        return (
            f"{run(c)} ends after {so_far(c)[-1]:.0f} s with validation loss "
            f"{last['valid_loss']:.3f} and AUC {last['valid_auc']:.3f}"
        )

    def fast(c: Record) -> str:
        return (
            f"{label(c)} on {count_of(c)} {short(c['training']['images_per_second'])} from files, "
            f"{short(c['synthetic']['images_per_second'])} synthetic, "
            f"{short(c['loader']['images_per_second'])} by the loader alone"
        )

    def efficient(c: Record) -> str:
        ideal = 2 * on_fewest(c, made)["training"]["images_per_second"]
        return f"{label(c)} on 2 devices {100 * c['training']['images_per_second'] / ideal:.0f} %"

    def where(c: Record) -> str:
        found = c["attribution"]
        return f"{run(c)} " + ", ".join(f"{n} {share(found, n)}" for n in found["shares"])

    return {
        told("Images per second", fast),
        told(
            "Training time by framework and number of devices, beside the times published in 2018",
            lambda c: f"{label(c)} on {count_of(c)} {c['training']['seconds']:.0f} s",
        ),
        told("Lines of throughput and parallel efficiency against devices", efficient, wide),
        told("Losses and validation AUC against epochs", ended, wide),
        told("Losses and validation AUC against seconds", ended, wide),
        told(
            "Test AUC per finding with 95 % intervals; the table below has the numbers. Means",
            lambda c: f"{run(c)} {mean_auc(c['test'])}",
            wide,
        ),
        told(
            "Shares of an epoch with the least and the most of the rounds; the table has them too",
            where,
        ),
        told(
            "Images trained per joule",
            lambda c: f"{label(c)} on {count_of(c)} {c['energy']['images_per_joule']:.3g}",
        ),
    }


# What the report says.


class Tables(HTMLParser):
    """The page's tables and the texts of its pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[list[tuple[str, int]]]] = {}
        self.alts: set[str] = set()
        self._text: list[str] | None = None
        self._rows: list[list[tuple[str, int]]] = []
        self._span = 1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("role") == "img" and tag == "div":
            self.alts.add(given["aria-label"] or "")
        if tag == "tr":
            self._rows.append([])
        if tag in ("td", "th", "caption"):
            self._text, self._span = [], int(given.get("colspan") or 1)
        if tag == "small" and self._text is not None:
            self._text.append("(")

    def handle_endtag(self, tag: str) -> None:
        if tag == "small" and self._text is not None:
            self._text.append(")")
        if tag in ("td", "th") and self._text is not None:
            self._rows[-1].append((_joined(self._text), self._span))
            self._text = None
        if tag == "caption" and self._text is not None:
            caption = _joined(self._text)
            self._rows, self._text = [], None
            self.found[caption] = self._rows

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)


def _joined(texts: list[str]) -> str:
    return (
        " ".join("".join(texts).split()).replace("( ", "(").replace("(", " (", 1).replace("  ", " ")
    )


def page_tables(page: str) -> tuple[dict[str, list[list[str]]], set[str]]:
    """By caption the rows, the head as the first; parts put together again; the pictures' texts."""
    parser = Tables()
    parser.feed(page)
    found: dict[str, list[list[str]]] = {}
    for caption, rows in parser.found.items():
        flat = [[text for text, span in row for _ in range(span)] for row in rows]
        if any(span > 1 for _, span in rows[0]):
            tops, names, *rest = flat
            flat = [[f"{top} {name}".strip() for top, name in zip(tops, names, strict=True)], *rest]
        name, part, number = caption.partition(", part ")
        if part and not number.startswith("1 "):
            found[name] = [a + b[1:] for a, b in zip(found[name], flat, strict=True)]
        else:
            found[name] = flat
    return found, parser.alts


def markdown_tables(text: str) -> tuple[dict[str, list[list[str]]], list[str]]:
    """By heading the rows, the head as the first; and all other lines."""
    found: dict[str, list[list[str]]] = {}
    others: list[str] = []
    for line in text.replace("\\", "").splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if not line.startswith("| ---"):
                found.setdefault(others[-1].removeprefix("### "), []).append(cells)
        elif line:
            others.append(line)
    return found, others


def as_cells(name: str, rows: list[list[str]]) -> Cells:
    head, *body = rows
    return {
        (name, row[0], column): cell
        for row in body
        for column, cell in zip(head[1:], row[1:], strict=True)
    }


def hold(found: dict[str, list[list[str]]], made: list[Record]) -> None:
    """Assert that every cell is what the records say, and that no table is unaccounted for."""
    cells, rows = expected(made), expected_rows(made)
    ours = {name: table for name, table in found.items() if "published" not in name}
    assert set(ours) == {table for table, _, _ in cells} | set(rows)
    for name, table in ours.items():
        if name in rows:
            assert sorted(table[1:]) == sorted(rows[name]), name
        else:
            wanted = {where: text for where, text in cells.items() if where[0] == name}
            shown = as_cells(name, table)
            absent = {where for where, text in shown.items() if text == "-"} - set(wanted)
            assert {w: t for w, t in shown.items() if w not in absent} == wanted, name


def check(folder: Path, made: list[Record]) -> None:
    """Everything in the folder's report, held against the records."""
    found, lines = markdown_tables((folder / report.MARKDOWN).read_text())
    hold({_chosen(name): table for name, table in found.items()}, made)
    shown, alts = page_tables((folder / report.HTML).read_text())
    hold(shown, made)
    assert alts == expected_alts(made)
    assert expected_sentences(made) <= set(lines)


def _chosen(title: str) -> str:
    """The page has a slider where the text has a number."""
    return "Time to a chosen AUC" if title.startswith("Time to a validation AUC") else title


def test_every_table_sentence_and_text_is_the_records(batch: tuple[Path, list[Record]]) -> None:
    check(*batch)


def test_every_other_line_is_of_no_record(batch: tuple[Path, list[Record]], tmp_path: Path) -> None:
    """What is not traced above stays the same, to the letter, when every number changes."""
    folder, made = batch
    others = make(tmp_path, seed=2)
    report.write(tmp_path)
    texts = []
    for where, content in ((folder, made), (tmp_path, others)):
        _, lines = markdown_tables((where / report.MARKDOWN).read_text())
        traced = expected_sentences(content)
        texts.append([line for line in lines if line not in traced])
    assert texts[0] == texts[1]


def test_every_csv_is_the_records(batch: tuple[Path, list[Record]]) -> None:
    folder, made = batch
    files = {path.stem: pd.read_csv(path) for path in (folder / report.CSV).glob("*.csv")}
    fields: dict[str, Callable[[Record], Any]] = {
        "devices": lambda c: c["devices"]["count"],
        "seconds": lambda c: c["training"]["seconds"],
        "images_per_second": lambda c: c["training"]["images_per_second"],
        "first_step_seconds": lambda c: c["training"]["first_step_seconds"],
        "synthetic_seconds": synthetic_seconds,
        "synthetic_images_per_second": lambda c: c["synthetic"]["images_per_second"],
        "loader_images_per_second": lambda c: c["loader"]["images_per_second"],
        "mean_auc": lambda c: c["test"]["mean_auc"],
        "joules": lambda c: c["energy"]["joules"],
        "images_per_joule": lambda c: c["energy"]["images_per_joule"],
    }
    for name in ("runs", "repeats"):
        table = files[name].set_index(["label", "devices"], drop=False)
        numbers = {n for n in table.select_dtypes("number") if n not in ("runs", "marks")}
        plain = {n for n in numbers if not n.endswith(("_low", "_high"))}
        assert plain == set(fields)
        for content in made:
            row = table.loc[(label(content), content["devices"]["count"])]
            for field, value in fields.items():
                assert row[field] == pytest.approx(value(content), rel=1e-12), (name, field)
                for end in {f"{field}_low", f"{field}_high"} & numbers:
                    assert row[end] == row[field]  # of one run
    for name, section in (("epochs", "epochs"), ("auc", "test"), ("fairness", "fairness")):
        table = files[name]
        for content in made:
            rows = content[section]
            rows = (
                rows["findings"]
                if name == "auc"
                else rows["checks"]
                if name == "fairness"
                else rows
            )
            of = table[
                (table["label"] == label(content))
                & (table["devices"] == content["devices"]["count"])
            ]
            assert len(of) == len(rows)
            for row, (_, found) in zip(rows, of.iterrows(), strict=True):
                for field, value in row.items():
                    same = (
                        pd.isna(found[field])
                        if value is None
                        else found[field] == pytest.approx(value)
                    )
                    assert same, (name, field)
    attribution = files["attribution"].set_index("run")
    for content in made:
        for name, value in content["attribution"]["shares"].items():
            row = attribution.loc[run(content)]
            ends = content["attribution"]["intervals"][name]
            assert [row[name], row[f"{name}_low"], row[f"{name}_high"]] == [value, *ends]


def test_the_throughput_chart_writes_the_records_figures(
    batch: tuple[Path, list[Record]],
) -> None:
    folder, made = batch
    figure = charts.throughput(comparison.load(folder))
    assert figure is not None
    texts = [str(text.get_text()) for text in figure.findobj(Text)]
    written = [text for text in texts if re.fullmatch(r"[\d,.]+  \D+", text)]
    rates: list[tuple[str, Callable[[Record], float]]] = [
        ("files", lambda c: c["training"]["images_per_second"]),
        ("synthetic", lambda c: c["synthetic"]["images_per_second"]),
        ("loader alone", lambda c: c["loader"]["images_per_second"]),
    ]
    assert written == [f"{short(rate(c))}  {kind}" for c in made for kind, rate in rates]


def _swapped(frame: pd.DataFrame, one: int, other: int) -> pd.DataFrame:
    order = list(range(len(frame.columns)))
    order[one], order[other] = order[other], order[one]
    return frame.iloc[:, order].set_axis(frame.columns, axis=1)


FAULTS: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "two columns of the first table": (tables, "training", lambda f: _swapped(f, 0, 1)),
    "two frameworks": (tables, "training", lambda f: f.iloc[::-1].set_axis(f.index)),
    "one digit less": (
        tables,
        "auc",
        lambda f: f.map(lambda cell: re.sub(r"(\.\d\d)\d", r"\1", cell)),
    ),
    "two columns of the certificate": (tables, "fairness", lambda f: _swapped(f, 0, 3)),
    "two shares": (waits, "table", lambda f: _swapped(f, 0, 1)),
    "another run's sentence": (
        tables,
        "sentences",
        lambda lines: [
            f"{line.partition(': ')[0]}: {other.partition(': ')[2]}"
            for line, other in zip(lines, lines[1:] + lines[:1], strict=True)
        ],
    ),
    "the last epoch for the best": (learning, "best_auc", lambda value: value - 0.01),
    "another section's seconds": (
        comparison,
        "results",
        lambda f: f.assign(seconds=f["synthetic_seconds"]),
    ),
    "the loader for synthetic data": (
        comparison,
        "results",
        lambda f: f.assign(synthetic_images_per_second=f["loader_images_per_second"]),
    ),
    "the run times of two runs": (
        tables,
        "state",
        lambda f: f.assign(**{"run time": f["run time"].iloc[::-1].to_list()}),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(
    fault: str,
    batch: tuple[Path, list[Record]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, made = batch
    module, name, change = FAULTS[fault]
    right = getattr(module, name)

    def wrong(*given: Any, **named: Any) -> Any:
        return change(right(*given, **named))

    monkeypatch.setattr(module, name, wrong)
    if name == "results":
        from helpers import repeats

        monkeypatch.setattr(repeats, name, wrong)
    _without_charts(monkeypatch)
    report.write(folder, tmp_path)
    with pytest.raises(AssertionError):
        _check_tables(tmp_path, made)


def test_without_a_fault_the_same_check_passes(
    batch: tuple[Path, list[Record]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, made = batch
    _without_charts(monkeypatch)
    report.write(folder, tmp_path)
    _check_tables(tmp_path, made)


def _without_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing is most of the time that a report takes, and no part of this check."""
    from helpers.report import page

    monkeypatch.setattr(page, "_drawn", lambda compared, chart: None)


def _check_tables(folder: Path, made: list[Record]) -> None:
    found, lines = markdown_tables((folder / report.MARKDOWN).read_text())
    hold({_chosen(name): table for name, table in found.items()}, made)
    assert expected_sentences(made) <= set(lines)
