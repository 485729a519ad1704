"""Records with a value of its own in every numeric field, and what a report of them should say.

Worked out from the records' JSON, without the code that makes the report.
"""

import random
from pathlib import Path
from typing import Any

import records

from helpers.record import sections

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
    most = min(1.25, 1 / value) if 0 < value <= 1 else 1.25  # an AUC or a share stays one
    changed = value * draw.uniform(0.75, most)
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
            # One is the fastest by far, so that the first sentence is known.
            faster = 3 if number == 4 else 1
            for section in ("files", "synthetic", "loader"):
                level = faster * content[section]["rounds"][0]
                rounds = [  # near each other, or the report remarks on their spread
                    level * (rate * faster / level) ** 0.3 for rate in content[section]["rounds"]
                ]
                content[section] |= sections.throughput(rounds, images=128)
            for epoch in content["epochs"]:
                epoch["images_per_second"] *= faster
            content["training"]["images_per_second"] *= faster
            content["training"]["seconds"] /= faster
            content["hardware"] |= {
                key: shared["hardware"][key] for key in ("cores", "memory_bytes")
            }
            content["data"]["images"] = shared["data"]["images"]
            content["run"]["seconds"] = draw.uniform(100, 5000)
            content["attribution"]["intervals"] = {
                name: [0.9 * value, 1.1 * value]
                for name, value in content["attribution"]["shares"].items()
            }
            content["attribution"]["sentence"] = f"Waited {draw.uniform(0, 100):.1f} %."
            check = content["fairness"]["checks"][0]
            check |= {"difference": draw.uniform(1e-9, 1e-6), "threshold": draw.uniform(1e-5, 1e-4)}
            check["reason"] = f"because of {draw.uniform(0, 100):.1f}"
            records.save(batch, content)
            made.append(content)
    return made


# What a record's figures are to look like, from its fields alone.


def label(content: Record) -> str:
    variant = content["run"]["notebook"].partition("_MultiGPU")[2]
    named = {"_Exp_Loss": " DataParallel"}.get(variant, variant.replace("_", " "))
    return f"{content['framework']['name']}{named}"


def run(content: Record) -> str:
    count = content["devices"]["count"]
    return f"{label(content)}, {count} device{'s' * (count > 1)}"


def short(value: float) -> str:
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def spread(found: Record, value: str, low: str, high: str) -> str:
    return f"{found[value]:.3f} ({found[low]:.3f} to {found[high]:.3f})"


def compiled(content: Record) -> float:
    last, training = content["epochs"][-1], content["training"]
    longer = training["first_step_seconds"] - last["train_seconds"] / last["steps"]
    return float(max(longer, 0) / training["seconds"])


def summed(content: Record, field: str) -> float:
    """The sum of a field over all epochs."""
    return float(sum(epoch[field] for epoch in content["epochs"]))


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rate(content: Record, section: str = "training") -> float:
    return float(content[section]["images_per_second"])


def ends(content: Record, section: str = "training") -> tuple[float, float]:
    steady = [epoch["images_per_second"] for epoch in content["epochs"][1:]]
    rounds = steady if section == "training" else content[section]["rounds"]
    return min(rounds), max(rounds)


def rate_text(content: Record, section: str = "training") -> str:
    low, high = ends(content, section)
    return f"{short(rate(content, section))} ({short(low)} to {short(high)})"


def over(
    content: Record, base: Record, section: str = "training", divisor: float = 1.0
) -> list[float]:
    """The ratio of two rates, and its minimum and maximum by the rounds."""
    (low, high), (slow, fast) = ends(content, section), ends(base, section)
    ratio = rate(content, section) / rate(base, section)
    return [value / divisor for value in (ratio, low / fast, high / slow)]


def sooner(content: Record, base: Record) -> float:
    """The ratio of the training times."""
    return float(base["training"]["seconds"] / content["training"]["seconds"])


def over_text(form: str, values: list[float], unit: str = "") -> str:
    value, low, high = (f"{value:{form}}" for value in values)
    return f"{value}{unit} ({low} to {high})"


def percents(values: list[float]) -> str:
    return over_text(".0f", [100 * value for value in values], " %")


def on_fewest(content: Record, made: list[Record]) -> Record:
    return next(c for c in made if label(c) == label(content) and c["devices"]["count"] == 1)


def expected(made: list[Record]) -> Cells:
    """The cells of the main tables."""
    cells: Cells = {}
    trained_for = [c["training"]["seconds"] for c in made]
    for content in made:
        base, test = on_fewest(content, made), content["test"]
        of_all = {
            f"training ({unit(trained_for)})": in_unit(content["training"]["seconds"], trained_for),
            "images/s": rate_text(content),
            "test AUC": spread(test, "mean_auc", "mean_low", "mean_high"),
            "fair": "passed",
        }
        name = run(content) if content is base else label(content)
        cells |= {("All runs", name, column): text for column, text in of_all.items()}
        if content is base:
            continue
        ratios = {
            "training time": f"{sooner(content, base):.2f}",
            "images/s": over_text(".2f", over(content, base)),
            "efficiency": percents(over(content, base, divisor=2)),
            "synthetic efficiency": percents(over(content, base, "synthetic", 2)),
        }
        table = "Speed-ups and efficiency"
        cells |= {(table, label(content), column): text for column, text in ratios.items()}
        for row in test["findings"]:
            cells["AUC per finding", row["finding"], label(content)] = f"{row['auc']:.3f}"
    return cells


def unit(seconds: list[float]) -> str:
    """The one unit of a column of times."""
    return "s" if max(seconds) < 600 else "min:s" if max(seconds) < 3600 else "h:min:s"


def in_unit(value: float, seconds: list[float]) -> str:
    return short(value) if unit(seconds) == "s" else clock(value)
