"""What the records of one or several batches say, side by side.

Everything here reads records and nothing else, so the same comparison can be made on another
machine, years later. Tables for a reader are in ``helpers.results.comparison_tables``, pictures in
``helpers.results.charts``.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import paths
from helpers.errors import UserError
from helpers.frameworks import order
from helpers.frameworks.capabilities import sharing
from helpers.results import comparability
from helpers.results.agreement import differences, workers
from helpers.training import record


@dataclass(frozen=True)
class Entry:
    """One run as its folder tells it; ``content`` is the record, checked."""

    folder: Path
    content: dict[str, Any]
    setting: str = ""
    """What sets it apart from other runs of its notebook that are compared: ``bf16``."""

    @property
    def label(self) -> str:
        """The framework, which notebook where it has several, and its setting where these differ.

        ``PyTorch``, ``PyTorch Exp Loss``, ``PyTorch bf16``. That replicas share GPUs is always
        said (``PyTorch sharing 1 GPU``): they are never repeats of others, nor are they measured
        against others.
        """
        name = str(self.content["framework"]["name"])
        variant = self.content["run"]["notebook"].partition("_MultiGPU")[2].replace("_", " ")
        gpus = self.content.get("devices", {}).get("shared_gpus")
        shared = f"sharing {gpus} GPU{'s' * (gpus > 1)}" if gpus else ""
        return " ".join(part for part in (name, variant.strip(), self.setting, shared) if part)

    @property
    def devices(self) -> int | None:
        return self.content.get("devices", {}).get("count")

    @property
    def run(self) -> str:
        """Label, number of devices, and whether it was resumed, for people."""
        parts = [self.label, *([devices(self.devices)] if self.devices is not None else [])]
        return ", ".join(parts + ([comparability.RESUMED] if self.resumed_after else []))

    @property
    def timed(self) -> str:
        """``run`` as it stands beside a time: ``Keras, 2 devices (not comparable)``."""
        marks = comparability.marks(self.content)
        return comparability.marked(
            self.run, [mark for mark in marks if mark != comparability.RESUMED]
        )

    @property
    def variant(self) -> str:
        """Which of a batch's runs of the same notebook it is: ``seed0``; "" where it is alone."""
        return (self.content["run"].get("variant") or "").replace("-", " ")

    @property
    def finished(self) -> bool:
        return bool(self.content["state"] == "finished")

    @property
    def comparable(self) -> bool:
        """Whether its fairness certificate lets its times stand beside the others'."""
        return bool(self.content.get("fairness", {}).get("comparable", False))

    @property
    def resumed_after(self) -> int:
        """The epochs that an earlier process had done; 0 of a run in one go."""
        return comparability.resumed_after(self.content)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The runs that are compared, in order, and the records that could not be read.

    Nothing changes in it once it is made, so what was worked out from one can be kept for it.
    """

    entries: tuple[Entry, ...]
    unreadable: tuple[str, ...]
    folders: tuple[Path, ...]

    @property
    def finished(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.finished)


def load(batches: str | Path | Iterable[str | Path] = "latest") -> Comparison:
    """The runs of a batch (a name under ``runs/``, or a folder), or of several together.

    A batch that is named twice counts once. A record that cannot be read is reported in the
    result, it does not hide the others.

    Raises:
        UserError: one of several batches is not there.
    """
    if isinstance(batches, str | Path):
        batches = [batches]
    # Latest is a link to a batch that may be named beside it.
    found = {folder.resolve(): folder for folder in map(_folder, batches)}
    folders = tuple(found.values())
    gone = [folder for folder in folders if not folder.is_dir()]
    if gone and len(folders) > 1:
        raise UserError(f"{gone[0]}: there is no such batch")
    entries, unreadable = [], []
    for folder in folders:
        for path in sorted(folder.glob(f"*/{record.FILE}")):
            try:
                entries.append(Entry(path.parent, record.read(path)))
            except UserError as error:
                unreadable.append(str(error))
    entries = _set_apart(entries)
    entries.sort(key=lambda e: (order(e.label), e.devices or 0, e.content["run"]["started"]))
    return Comparison(tuple(entries), tuple(unreadable), folders)


def how_to_begin(compared: Comparison) -> str | None:
    """What to do where there is nothing to compare; None where there is something."""
    if compared.entries or compared.unreadable:
        return None
    where = " and ".join(str(folder) for folder in compared.folders)
    return (
        f"There is no record under {where} yet: run 'make compare' in a terminal, "
        'or all cells of a framework\'s notebook (then set runs = "interactive" here).'
    )


def results(compared: Comparison) -> pd.DataFrame:
    """One row a finished run, numbers only: the source of every table and chart.

    Columns: label, devices, kind (``comparability.kind``), comparable (its certificate was passed),
    marks (``comparability.marks``: why its times may not stand beside others', if so), seconds
    (all epochs, training and validation), images_per_second, first_step_seconds,
    synthetic_seconds (of as many images), synthetic_scaled (whether that was scaled up from fewer
    measured images), synthetic_images_per_second, loader_images_per_second, mean_auc,
    auc_low and auc_high (the ends of its 95 % interval over patients), joules, images_per_joule.
    """
    return pd.DataFrame([_numbers(entry) for entry in compared.finished], columns=list(_COLUMNS))


def remarks(compared: Comparison) -> pd.DataFrame:
    """What is missing or not comparable, and why: columns about, remark."""
    said: dict[str, list[str]] = {}
    for why in compared.unreadable:
        said.setdefault(why, []).append("a record")
    for entry in compared.entries:
        if not entry.finished:
            reason = entry.content.get("reason") or "no reason was recorded"
            state = _STATES[entry.content["state"]]
            name = ", ".join(filter(None, [entry.run, entry.variant]))
            said.setdefault(f"{state}: {reason}", []).append(name)
    for what, remark in [*differences(compared.finished), *workers(compared.finished)]:
        said.setdefault(remark, []).append(what)
    limited: dict[str, list[str]] = {}
    for entry in compared.finished:
        for text in _limits(entry.content):
            limited.setdefault(text, []).append(entry.run)
    everyone = [entry.run for entry in compared.finished]
    for text, runs in limited.items():
        every = len(everyone) > 1 and runs == everyone
        said.setdefault(text, []).extend(["every finished run"] if every else runs)
    rows = [
        {"about": "; ".join(dict.fromkeys(runs)), "remark": text} for text, runs in said.items()
    ]
    return pd.DataFrame(rows, columns=["about", "remark"]).set_index("about")


def latest_of_each(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each label and number of devices: the last that was started."""
    last = {(entry.label, entry.devices): entry for entry in entries}
    return list(last.values())


def widest(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each label: the last run on the most devices (skipped ones have none)."""
    last: dict[str, Entry] = {}
    for entry in latest_of_each(entries):
        if (entry.devices or 0) >= (last[entry.label].devices or 0 if entry.label in last else 0):
            last[entry.label] = entry
    return list(last.values())


def devices(count: int) -> str:
    """``1 device``, ``4 devices``."""
    return f"{count} device{'s' if count != 1 else ''}"


_COLUMNS = (
    "label",
    "devices",
    "kind",
    "comparable",
    "marks",
    "seconds",
    "images_per_second",
    "first_step_seconds",
    "synthetic_seconds",
    "synthetic_scaled",
    "synthetic_images_per_second",
    "loader_images_per_second",
    "mean_auc",
    "auc_low",
    "auc_high",
    "joules",
    "images_per_joule",
)

_STATES = {
    "running": "still running, or lost with its machine",
    "failed": "failed",
    "interrupted": "interrupted",
    "skipped": "skipped",
}

# Runs that differ in one of these are never repeats of each other: it stands in their label.
_SETTINGS: dict[str, Callable[[dict[str, Any]], str]] = {
    "recipe": lambda c: str(c["recipe"]["name"]),
    "precision": lambda c: str(c["recipe"]["precision"]),
    "crop": lambda c: f"{c['recipe']['crop']} px",
    "epochs": lambda c: f"{c['recipe']['epochs']} epoch{'s' * (c['recipe']['epochs'] != 1)}",
    "batch": lambda c: f"{c['recipe']['batch']} per device",
    "warm-up": lambda c: f"warm-up {c['recipe'].get('warmup_epochs', 0.0):g}",
    "device": lambda c: f"on {_device(c['devices'])}",
    "images": lambda c: f"{sum(c['data']['images'].values())} images",
    "data": lambda c: f"data {c['data']['sha256'][:6]}",
}


def _device(devices: dict[str, Any]) -> str:
    return ", ".join(dict.fromkeys(devices["names"])) if devices["kind"] == "gpu" else "the CPU"


def _set_apart(entries: Sequence[Entry]) -> list[Entry]:
    """The entries with what sets them apart in their labels, where anything does."""
    settings: list[dict[str, str]] = []
    for entry in entries:
        settings.append({})
        for what, said in _SETTINGS.items():
            with suppress(KeyError):  # a run that never began, or an older record
                settings[-1][what] = said(entry.content)
    several = [w for w in _SETTINGS if len({found[w] for found in settings if w in found}) > 1]
    if "images" in several and "data" in several:
        several.remove("data")  # other data, as their number says already
    return [
        replace(entry, setting=" ".join(found[what] for what in several if what in found))
        for entry, found in zip(entries, settings, strict=True)
    ]


def _limits(content: dict[str, Any]) -> list[str]:
    """What a finished run's own record says it cannot show."""
    texts = []
    if content["devices"]["kind"] == "cpu" and content["devices"]["count"] > 1:
        texts.append("virtual CPU devices share the cores: speed-up means nothing here")
    if changed := comparability.departures(content):
        texts.append(f"not the recipe's own training: {changed}")
    if gpus := content["devices"].get("shared_gpus"):
        found = sharing(content["devices"]["count"], gpus)
        texts.append(f"{found} take turns there: speed-up means nothing here")
    if epoch := comparability.resumed_after(content):
        texts.append(
            f"resumed after epoch {epoch}: its times are those of its last process, or the sum "
            "over several, and are used in no comparison"
        )
    if content.get("checkpoint", {}).get("changed_code"):
        texts.append("the code changed before it was resumed: its epochs are of two programs")
    if damaged := content.get("checkpoint", {}).get("damaged"):
        texts.append(f"started again, because its earlier checkpoint was damaged: {damaged}")
    if not content["fairness"]["comparable"]:
        failed = [c["check"] for c in content["fairness"]["checks"] if c["verdict"] == "fail"]
        texts.append(f"fairness certificate not passed: {', '.join(failed) or 'see its table'}")
    unchecked = [c for c in content["fairness"]["checks"] if c["verdict"] == "not checked"]
    texts += [f"{c['check']} not checked: {c.get('reason') or 'no reason'}" for c in unchecked]
    said: dict[str, list[str]] = {}
    for row in content["test"]["findings"]:
        if row["reason"] or row["auc"] is None:
            said.setdefault(row["reason"] or "AUC missing", []).append(row["finding"])
    texts += [f"{', '.join(findings)}: {reason}" for reason, findings in said.items()]
    if "in_mean" not in content["test"]:
        texts.append("old record: its mean AUC has no interval and includes rare findings")
    texts += [f"{item['what']}: {item['reason']}" for item in content.get("skipped", [])]
    for other in content.get("neighbours", {}).get("processes", []):
        who = f"{other['name'] or 'a process'} ({other['process']}) on {other['gpu'][:12]}"
        when = "before it began" if other["seen"] == "before" else "while it ran"
        texts.append(f"shared its GPU with {who}, seen {when}: its times are not reliable")
    if reason := content.get("neighbours", {}).get("reason"):
        texts.append(f"it is not known whether another process used its GPUs: {reason}")
    energy = content.get("energy", {})
    if energy.get("joules") is None and energy.get("reason"):
        texts.append(f"no energy: {energy['reason']}")
    return texts


def _numbers(entry: Entry) -> dict[str, Any]:
    content = entry.content
    training, synthetic = content["training"], content["synthetic"]
    trained = training.get("train_images_seen") or sum(e["images"] for e in content["epochs"])
    scaled = synthetic["images"] < trained
    return {
        "label": entry.label,
        "devices": entry.devices,
        "kind": comparability.kind(content),
        "comparable": entry.comparable,
        "marks": comparability.marks(content),
        "seconds": training["seconds"],
        "images_per_second": training["images_per_second"],
        "first_step_seconds": training["first_step_seconds"],
        "synthetic_seconds": trained / synthetic["images_per_second"],
        "synthetic_scaled": scaled,
        "synthetic_images_per_second": synthetic["images_per_second"],
        "loader_images_per_second": content["loader"]["images_per_second"],
        "mean_auc": content["test"]["mean_auc"],
        "auc_low": content["test"].get("mean_low"),
        "auc_high": content["test"].get("mean_high"),
        "joules": content.get("energy", {}).get("joules"),
        "images_per_joule": content.get("energy", {}).get("images_per_joule"),
    }


def _folder(batch: str | Path) -> Path:
    """A batch by its name under ``runs/``, else a folder as it is given."""
    given, named = Path(batch), paths.RUNS / batch
    return given.absolute() if given.is_dir() and not named.exists() else named
