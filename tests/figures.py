"""Records with a value of its own in every numeric field, and what a report of them should say.

Worked out from the records' JSON, without the code that makes the report.
"""

import random
from collections.abc import Callable
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


def compiling(content: Record) -> str:
    last, training = content["epochs"][-1], content["training"]
    longer = training["first_step_seconds"] - last["train_seconds"] / last["steps"]
    return f"{round(100 * max(longer, 0) / training['seconds'])} %"


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


def fed(content: Record) -> str:
    """How many devices the loader feeds, and that of its slowest and its fastest round."""
    (least, most), (slow, fast) = ends(content, "loader"), ends(content, "synthetic")
    supply, demand = rate(content, "loader"), rate(content, "synthetic")
    count = content["devices"]["count"]
    pairs = ((supply, demand), (least, fast), (most, slow))
    value, low, high = (int(one // (other / count)) for one, other in pairs)
    return f"{value:,}" if low == high else f"{value:,} ({low:,} to {high:,})"


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

    wanted = int(100 * min(map(best, made)) + 1e-4) / 100
    trained_for = [c["training"]["seconds"] for c in made]
    started = [c["training"]["first_step_seconds"] for c in made]
    learnt = [so_far(c)[-1] for c in made]
    for content in made:
        training, test, energy = content["training"], content["test"], content["energy"]
        base = on_fewest(content, made)
        trained = {
            f"training ({unit(trained_for)})": in_unit(training["seconds"], trained_for),
            "images/s": rate_text(content),
            "test AUC": mean_auc(test),
            "fair": "passed",
            "evidence": "record",
        }
        if content is not base:
            for name, factor in factors(content, base, wanted).items():
                where = f"AUC {wanted:.2f} {name}"
                row = f"{run(content)} over 1"
                cells["Hardware and statistical efficiency, for each target", row, where] = (
                    f"{factor:.2f}"
                )
            put(
                "Speed-up and efficiency",
                label(content),
                **{
                    "devices": "1 to 2",
                    "efficiency": percents(over(content, base, divisor=2)),
                    "training time": f"{sooner(content, base):.2f}",
                    "images/s": over_text(".2f", over(content, base)),
                    "synthetic efficiency": percents(over(content, base, "synthetic", 2)),
                },
            )
            for row in test["findings"]:
                at = ("AUC per finding, 95 % interval", row["finding"], run(content))
                cells[at] = spread(row, "auc", "low", "high")
            cells["AUC per finding, 95 % interval", "Mean", run(content)] = mean_auc(test)
        put(
            "Mean AUC, on the same test images",
            run(content),
            **paired(content, median_one(made), len(made) - 1),
        )
        put("All runs", run(content), **trained)
        reached = [n for n, e in enumerate(content["epochs"]) if e["valid_auc"] >= wanted]
        put(
            "Time to a chosen AUC",
            run(content),
            **{f"time ({unit(learnt)})": in_unit(so_far(content)[reached[0]], learnt)},
            epoch=str(reached[0] + 1),
            best_AUC=f"{best(content):.3f}",
        )
        _, images = way(content, wanted)
        seen = sum(epoch["images"] for epoch in content["epochs"])
        put(
            "What a run uses",
            run(content),
            **{
                "Wh an epoch": short(energy["joules"] / 3600 / len(content["epochs"])),
                f"Wh to AUC {wanted:.2f}": short(energy["joules"] / 3600 * images / seen),
                f"first step ({unit(started)})": in_unit(training["first_step_seconds"], started),
            },
        )
        put(
            "Supply and demand of images",
            run(content),
            supply=rate_text(content, "loader"),
            demand=rate_text(content, "synthetic"),
            devices_fed=fed(content),
            change_first="nothing",
        )
        found = content["attribution"]
        shares = {name: share(found, name) for name in found["shares"]}
        put("Shares of an epoch", run(content), **shares, compiling=compiling(content))
        put(
            "Energy of the GPUs while training",
            run(content),
            **{"energy (kJ)": short(energy["joules"] / 1000)},
            images_per_joule=f"{energy['images_per_joule']:.3g}",
        )
    check = max((c["fairness"]["checks"][0] for c in made), key=lambda check: check["difference"])
    told = {
        "largest difference": size(check["difference"], 1),
        "limit": size(check["threshold"], 0),
    }
    put("Passed checks", check["check"], **told)
    return cells


def unit(seconds: list[float]) -> str:
    """The one unit of a column of times."""
    return "s" if max(seconds) < 600 else "min:s" if max(seconds) < 3600 else "h:min:s"


def in_unit(value: float, seconds: list[float]) -> str:
    return short(value) if unit(seconds) == "s" else clock(value)


def way(content: Record, wanted: float) -> tuple[float, int]:
    """Seconds and images until the end of the first epoch that reached an AUC."""
    reached = next(n for n, e in enumerate(content["epochs"]) if e["valid_auc"] >= wanted)
    return so_far(content)[reached], sum(e["images"] for e in content["epochs"][: reached + 1])


def factors(content: Record, base: Record, wanted: float) -> dict[str, float]:
    (seconds, images), (alone, of_one) = way(content, wanted), way(base, wanted)
    hardware = (images / seconds) / (of_one / alone)
    return {
        "speed-up": alone / seconds,
        "hardware efficiency": hardware,
        "statistical efficiency": images / of_one,
    }


def factors_said(content: Record, base: Record, wanted: float) -> str:
    found = factors(content, base, wanted)
    came = f"was {found['speed-up']:.2f} times as fast"
    if found["speed-up"] < 1:
        came = f"took {1 / found['speed-up']:.2f} times as long"
    return (
        f"{label(content)} {came} to reach AUC {wanted:.2f} on 2 devices as on 1 (one "
        f"run each). It trained {found['hardware efficiency']:.2f} times as many images/s and "
        f"needed {found['statistical efficiency']:.2f} times as many images, "
        "compiling and validation included."
    )


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
            ["hosts", first["run"]["host"]],
            ["CPU", f"{hardware['cpu']}, {hardware['cores']} logical cores"],
            ["memory", f"{hardware['memory_bytes'] / 2**30:.0f} GiB"],
            ["GPUs", "2 x NVIDIA H100"],
            ["between GPUs", "not recorded"],
            ["driver", hardware["driver"]],
            ["system", hardware["platform"]],
            ["nodes", "one"],
            ["runs", str(len(made))],
        ],
    }


def expected_sentences(made: list[Record]) -> set[str]:
    """Every line beside the tables that comes from the records."""
    wide = [c for c in made if c["devices"]["count"] == 2]
    first, second = sorted(wide, key=duration)[:2]
    _, quick = sorted(wide, key=rate, reverse=True)[:2]
    low, high = ends(first)
    checks = len([c["fairness"]["checks"][0] for c in made])
    by_data = sorted(wide, key=lambda c: c["attribution"]["shares"]["data"])
    waited = " to ".join(
        f"{share(c['attribution'], 'data')} in {run(c)}" for c in (by_data[0], by_data[-1])
    )
    wanted = int(100 * min(map(best, made)) + 1e-4) / 100
    split = [factors_said(c, on_fewest(c, made), wanted) for c in wide]
    ups = [factors(c, on_fewest(c, made), wanted)["speed-up"] for c in wide]
    short_gain, gain = gains(made)
    lines = [split[ups.index(min(ups))], split[ups.index(max(ups))]]
    times = [rate(c, "loader") / rate(c, "synthetic") for c in made]
    return {
        f"- **More devices** {short_gain}: {gain} {' '.join(lines)}",
        f"On 2 NVIDIA H100, {label(first)} finishes first and is fastest in steady state; measured "
        "once; all six are fairly compared.",
        f"- **Fastest** {label(first)}: Training time, compiling included: {label(first)} "
        f"{time_text(duration(first))}; then {label(second)} {time_text(duration(second))}. "
        f"Images/s in steady state: {label(first)} {short(rate(first))} ({short(low)} to "
        f"{short(high)}); then {label(quick)} {rate_text(quick)}. Measured once: a lead in "
        "training time counts from 11 %, on the assumption that runs differ by 3 %.",
        f"- **Fair?** yes: {len(made)} of {len(made)} finished runs passed their fairness check. "
        f"Checks: {checks} pass.",
        f"- **Waited for** data: Data took, as a share of an epoch, {waited}, in 6 of 6 runs.",
        f"- Packed images do not pay in {len(made)} of {len(made)} rows: "
        f"the loader alone supplies {short(min(times))} to {short(max(times))} times the images/s "
        "that training on synthetic data uses.",
        f"### Time to a validation AUC of {wanted:.2f}",
        f"The difference is each run's mean AUC minus that of {run(median_one(made))}, which is in "
        "the middle. Both use the same images and resamples, so an easy or hard test part cancels "
        "out. The table compares these trained networks; another seed may reverse the order. These "
        "are simultaneous 95 % intervals for all rows (Bonferroni).",
        *(f"- {run(c)}: {c['attribution']['sentence']}" for c in made),
    }


def duration(content: Record) -> float:
    return float(content["training"]["seconds"])


def gains(made: list[Record]) -> tuple[str, str]:
    """What the second device brings, at a glance and in a sentence."""
    wide = [c for c in made if c["devices"]["count"] == 2]
    times = sorted((sooner(c, on_fewest(c, made)), label(c)) for c in wide)
    rates = sorted((over(c, on_fewest(c, made))[0], label(c)) for c in wide)
    at_a_glance, whole = [], []
    for found, name in ((times, "training"), (rates, "steady state")):
        (low, least), (high, most) = found[0], found[-1]
        at_a_glance.append(f"{name} x {low:.2f} to {high:.2f}")
        whole.append(f"{name} {low:.2f} ({least}) to {high:.2f} ({most}) times as fast")
    return ", ".join(at_a_glance), f"A second device makes the whole {whole[0]}, and {whole[1]}."


def place(content: Record, made: list[Record]) -> float:
    """The quickest on two devices first; stable, so one device stands before two."""
    (wide,) = (c for c in made if label(c) == label(content) and c["devices"]["count"] == 2)
    return duration(wide)


def expected_alts(made: list[Record]) -> set[str]:
    """What is read aloud in place of the charts."""
    wide = [c for c in made if c["devices"]["count"] == 2]

    def told(what: str, part: Callable[[Record], str], of: list[Record] = made) -> str:
        return f"{what}: {'; '.join(map(part, of))}."

    def ended(c: Record) -> str:
        last = c["epochs"][-1]
        return (
            f"{run(c)} ends after {time_text(so_far(c)[-1])} with validation loss "
            f"{last['valid_loss']:.3f} and AUC {last['valid_auc']:.3f}"
        )

    def fast(c: Record) -> str:
        return (
            f"{label(c)} on {count_of(c)} {short(rate(c, 'files'))} on real data, "
            f"{short(rate(c, 'synthetic'))} synthetic"
        )

    def efficient(c: Record) -> str:
        return f"{label(c)} on 2 devices {100 * over(c, on_fewest(c, made), divisor=2)[0]:.0f} %"

    def where(c: Record) -> str:
        found = c["attribution"]
        shares = ", ".join(f"{n} {share(found, n)}" for n in found["shares"])
        return f"{run(c)} {shares}, compiling {compiling(c)}"

    wanted = int(100 * min(map(best, made)) + 1e-4) / 100

    best_values = "by number of devices; best values"
    return {
        told(
            "Columns that rise by hardware efficiency and fall by statistical efficiency",
            lambda c: factors_said(c, on_fewest(c, made), wanted).rstrip("."),
            wide,
        ),
        told(f"Validation AUC against time {best_values}", lambda c: f"{run(c)} {best(c):.3f}"),
        told(f"Validation AUC against images {best_values}", lambda c: f"{run(c)} {best(c):.3f}"),
        told("Losses and validation AUC against images", ended, wide),
        told(
            "Images per second in the rounds after training",
            fast,
            sorted(made, key=lambda c: place(c, made)),
        ),
        told(
            "Training time, and images per second in steady state",
            lambda c: (
                f"{label(c)} on 2 devices {time_text(duration(c))}, {short(rate(c))} images/s"
            ),
            sorted(wide, key=duration),
        ),
        told(
            "Training time by framework and number of devices, with the times published in 2018",
            lambda c: f"{label(c)} on {count_of(c)} {time_text(c['training']['seconds'])}",
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
            "Shares of an epoch with 95 % intervals, as in the table",
            where,
        ),
        told(
            "Images trained per joule",
            lambda c: f"{label(c)} on {count_of(c)} {c['energy']['images_per_joule']:.3g}",
        ),
    }
