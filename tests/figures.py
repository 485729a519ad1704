"""Records with a value of its own in every numeric field, and what a report of them should say.

Worked out from the records' JSON, without the code that makes the report.
"""

import random
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import records

from helpers import record

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
                content[section] |= record.throughput(rounds, images=128)
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


def count_of(content: Record) -> str:
    count = content["devices"]["count"]
    return f"{count} device" if count == 1 else f"{count} devices"


def run(content: Record) -> str:
    return f"{label(content)}, {count_of(content)}"


def short(value: float) -> str:
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def spread(found: Record, value: str, low: str, high: str) -> str:
    return f"{found[value]:.3f} ({found[low]:.3f} to {found[high]:.3f})"


def size(value: float, digits: int) -> str:
    return f"{value:.{digits}e}"


def share(found: Record, name: str) -> str:
    low, value, high = (
        round(100 * end)
        for end in (found["intervals"][name][0], found["shares"][name], found["intervals"][name][1])
    )
    return f"{value} %" if low == value == high else f"{value} % ({low} to {high})"


def compiled(content: Record) -> float:
    last, training = content["epochs"][-1], content["training"]
    longer = training["first_step_seconds"] - last["train_seconds"] / last["steps"]
    return float(max(longer, 0) / training["seconds"])


def summed(content: Record, field: str) -> float:
    """The sum of a field over all epochs."""
    return float(sum(epoch[field] for epoch in content["epochs"]))


def compiling(content: Record) -> str:
    return f"{round(100 * compiled(content))} %"


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
    """Every cell of every table that comes from the records."""
    cells: Cells = {}

    def put(table: str, row: str, **columns: str) -> None:
        cells.update({(table, row, name.replace("_", " ")): text for name, text in columns.items()})

    trained_for = [c["training"]["seconds"] for c in made]
    started = [c["training"]["first_step_seconds"] for c in made]
    for content in made:
        training, test, energy = content["training"], content["test"], content["energy"]
        base, found = on_fewest(content, made), content["attribution"]
        name = run(content) if content is base else label(content)
        put(
            "All runs",
            name,
            **{
                f"training ({unit(trained_for)})": in_unit(training["seconds"], trained_for),
                "images/s": rate_text(content),
                "test AUC": mean_auc(test),
                "fair": "passed",
                "limited by": limit(content),
                "evidence": "record",
            },
        )
        if content is not base:
            put(
                "Speed-ups and efficiency",
                label(content),
                **{
                    "devices": "1 to 2",
                    "training time": f"{sooner(content, base):.2f}",
                    "images/s": over_text(".2f", over(content, base)),
                    "efficiency": percents(over(content, base, divisor=2)),
                    "synthetic efficiency": percents(over(content, base, "synthetic", 2)),
                },
            )
            for row in test["findings"]:
                at = ("AUC per finding, 95 % interval", row["finding"], run(content))
                cells[at] = spread(row, "auc", "low", "high")
            cells["AUC per finding, 95 % interval", "Mean", run(content)] = mean_auc(test)
            times = rate(content, "loader") / rate(content, "synthetic")
            put(
                "What limits training",
                label(content),
                **{
                    "for data": share(found, "data"),
                    "compiling": compiling(content),
                    "loader / devices": f"x {short(times)}",
                },
            )
        put(
            "Mean AUC, on the same test images",
            run(content),
            **paired(content, median_one(made), len(made) - 1),
        )
        put(
            "Energy, memory and the first step",
            run(content),
            **{
                "energy (kJ)": short(energy["joules"] / 1000),
                "images per joule": f"{energy['images_per_joule']:.3g}",
                f"first step ({unit(started)})": in_unit(training["first_step_seconds"], started),
            },
        )
    check = max((c["fairness"]["checks"][0] for c in made), key=lambda check: check["difference"])
    told = f"{size(check['difference'], 1)} (limit {size(check['threshold'], 0)})"
    put("Passed checks: 1 of them in every run", check["check"], largest_difference=told)
    return cells


def limit(content: Record) -> str:
    """The waits that are named, the longest first."""
    waits = {"data": content["attribution"]["shares"]["data"], "compiling": compiled(content)}
    named = {name: value for name, value in waits.items() if value > 0.05}
    order = sorted(named, key=named.__getitem__, reverse=True)
    return ", ".join(f"{name} {round(100 * named[name])} %" for name in order)


def unit(seconds: list[float]) -> str:
    """The one unit of a column of times."""
    return "s" if max(seconds) < 600 else "min:s" if max(seconds) < 3600 else "h:min:s"


def in_unit(value: float, seconds: list[float]) -> str:
    return short(value) if unit(seconds) == "s" else clock(value)


def mean_auc(test: Record) -> str:
    return spread(test, "mean_auc", "mean_low", "mean_high")


def median_one(made: list[Record]) -> Record:
    """The run that all others are held against, pair by pair."""
    return sorted(made, key=lambda content: content["test"]["mean_auc"])[(len(made) - 1) // 2]


def paired(content: Record, base: Record, rivals: int) -> dict[str, str]:
    """A row of the table of differences on the same test images."""
    if content is base:
        return {"difference": "-", "verdict": "the reference"}
    one, other = content["test"], base["test"]
    each = np.subtract(one["resamples"], other["resamples"])
    difference = one["mean_auc"] - other["mean_auc"]
    half = NormalDist().inv_cdf(1 - 0.025 / rivals) * np.std(each, ddof=1)
    low, high = difference - half, difference + half
    verdict = "no significant difference" if low <= 0 <= high else "higher" if low > 0 else "lower"
    return {"difference": f"{difference:+.3f} ({low:+.3f} to {high:+.3f})", "verdict": verdict}


def time_text(seconds: float) -> str:
    return clock(seconds) if seconds >= 120 else f"{short(seconds)} s"


def versions(made: list[Record]) -> list[list[str]]:
    """A row each set of packages, with the labels that share it."""
    found: dict[str, dict[str, None]] = {}
    for content in made:
        packages = sorted(content["framework"]["versions"].items())
        told = ", ".join(f"{name} {version}" for name, version in packages)
        found.setdefault(told, {})[label(content)] = None
    return [[", ".join(labels), told] for told, labels in found.items()]


def expected_rows(made: list[Record]) -> dict[str, list[list[str]]]:
    """The tables whose first column is not one row's name alone, row by row."""
    first = made[0]
    hardware, recipe, data = first["hardware"], first["recipe"], first["data"]
    images = data["images"]
    every = {
        "machine": first["run"]["host"],
        "recipe": f"{recipe['name']}, {recipe['crop']} px, {recipe['epochs']} epochs, "
        f"{recipe['precision']}",
        "seed": str(recipe["seed"]),
        "data": f"{data['kind']}, {data['pixels']} px, {images['train']} + {images['valid']} + "
        f"{images['test']} images, {data['folder']}",
        "initial weights": f"{first['weights']['source']}, {first['weights']['sha256'][:12]}",
        "commit": first["run"]["commit"],
        "environment": "not recorded",
    }
    machine = [[what, value, "every run"] for what, value in every.items()]
    for count in COUNTS:
        those = [c for c in made if c["devices"]["count"] == count]
        runs, scaled_to = f"every run on {count_of(those[0])}", those[0]["recipe"]
        machine += [
            ["devices", f"{count} x NVIDIA H100", runs],
            ["global batch", str(scaled_to["global_batch_size"]), runs],
            ["learning rate", f"{scaled_to['scaled_learning_rate']:g}", runs],
        ]
    return {
        "Versions": versions(made),
        "Devices, recipe, data": machine,
        "Machines": [
            [
                first["run"]["host"],
                first["run"]["host"],
                f"{hardware['cpu']}, {hardware['cores']} logical cores",
                f"{hardware['memory_bytes'] / 2**30:.0f} GiB",
                "2 x NVIDIA H100",
                "not recorded",
                hardware["driver"],
                hardware["platform"],
            ],
        ],
    }


def expected_sentences(made: list[Record]) -> set[str]:
    """Every line beside the tables that comes from the records."""
    wide = [c for c in made if c["devices"]["count"] == 2]
    times = sorted((sooner(c, on_fewest(c, made)), label(c)) for c in wide)
    rates = sorted((over(c, on_fewest(c, made))[0], label(c)) for c in wide)
    whole = [
        f"{found[0][0]:.2f} ({found[0][1]}) to {found[-1][0]:.2f} ({found[-1][1]}) times as fast"
        for found in (times, rates)
    ]
    return {
        f"{label(min(wide, key=duration))} finishes first and is fastest in steady state.",
        f"- More devices: 2 devices instead of 1 make the whole training {whole[0]}, and steady "
        f"state {whole[1]}.",
        f"- Fair: {len(made)} of {len(made)} finished runs passed their fairness check.",
        f"The difference is each run's mean AUC minus that of {run(median_one(made))}, which is in "
        "the middle. Both use the same images and resamples, so an easy or hard test part cancels "
        "out. The table compares these trained networks; another seed may reverse the order. These "
        "are simultaneous 95 % intervals for all rows (Bonferroni).",
    }


def duration(content: Record) -> float:
    return float(content["training"]["seconds"])
