"""List the figures that are missing or not comparable, with the reasons."""

from typing import Any

from helpers import record
from helpers.frameworks.switches import COMPILED_HERE
from helpers.results import by_class, comparability, run_sets
from helpers.results.comparison import Comparison, Entry
from helpers.results.shared_settings import departures, differences, workers
from helpers.results.tables import Table, table
from helpers.training import measurement_rounds

_STATES = {
    "running": "still running, or lost with its machine",
    "failed": "failed",
    "interrupted": "interrupted",
    "skipped": "skipped",
}


def remarks(compared: Comparison) -> Table:
    """What is missing or not comparable, and why."""
    said: dict[str, list[str]] = {}
    for why in [*compared.unreadable, *compared.set_aside]:
        said.setdefault(why, []).append("a record")
    for entry in compared.entries:
        if not entry.finished:
            reason = entry.content.get("reason") or "no reason was recorded"
            state = _STATES[entry.content["state"]]
            name = ", ".join(filter(None, [entry.run, entry.variant]))
            said.setdefault(f"{state}: {reason}", []).append(name)
    for what, remark in [*differences(compared.finished), *workers(compared.finished)]:
        said.setdefault(remark, []).append(what)
    limited: dict[str, list[Entry]] = {}
    for entry in compared.finished:
        for text in _limits(entry.content):
            limited.setdefault(text, []).append(entry)
    for text, runs in limited.items():
        said.setdefault(text, []).append(run_sets.named(runs, compared.finished))
    rows = [("; ".join(dict.fromkeys(runs)), {"remark": text}) for text, runs in said.items()]
    return table("Not comparable, or missing", "about", rows)


def _where(checkpoint: dict[str, Any]) -> str:
    """``after epoch 3``, ``twice, after epoch 3 and after epoch 5``."""
    places = [f"after epoch {epoch}" for epoch in checkpoint["restarts"]]
    times = {1: "", 2: "twice, "}.get(len(places), f"{len(places)} times, ")
    return times + " and ".join(filter(None, [", ".join(places[:-1]), places[-1]]))


def _limits(content: dict[str, Any]) -> list[str]:
    """What a finished run's own record says it cannot show."""
    texts = []
    if comparability.kind(content) == "shared cores" and content["devices"]["count"] > 1:
        texts.append("its CPU devices share cores, so its speed-up is meaningless")
    if comparability.simulated_nodes(content):
        count = comparability.nodes(content)
        texts.append(f"its {count} nodes were simulated on one machine, so no network was measured")
    if changed := departures(content):
        texts.append(f"the recipe was changed: {changed}")
    if comparability.resumed_after(content):
        texts.append(
            f"resumed {_where(content['checkpoint'])}: its times cover its last "
            "process, or the sum of several, so no comparison uses them"
        )
    if len(content["epochs"]) - comparability.resumed_after(content) == 1:
        texts.append("it trained one epoch, so its images/s contain compiling")
    if apart := comparability.disagreement(content):
        texts.append(
            f"{apart}, so they did different work or another program took part of the devices; "
            "it is not ranked"
        )
    if content.get("checkpoint", {}).get("changed_code"):
        texts.append("the code changed before it resumed, so its epochs come from two programs")
    if variants := comparability.variants(content):
        texts.append(
            f"trained differently: {', '.join(variants)}; it is not ranked with the other runs"
        )
    if comparability.failed(content):
        failed = [c["check"] for c in content["fairness"]["checks"] if c["verdict"] == "fail"]
        texts.append(f"fairness check not passed: {', '.join(failed) or 'see its table'}")
    switches = content["training"].get("switches", ())
    if content["framework"]["kernel"] == "jax" and COMPILED_HERE not in switches:
        texts.append(
            "an earlier run may have compiled its program; a first run's first step and times to a "
            "target are longer"
        )
    texts += by_class.limits(content)
    texts += [f"{item['what']}: {item['reason']}" for item in content.get("skipped", [])]
    for other in content.get("other_processes", {}).get("processes", []):
        who = f"{other['name'] or 'a process'} ({other['process']}) on {other['gpu'][:12]}"
        when = "before it began" if other["seen"] == "before" else "while it ran"
        texts.append(f"its GPU was in use by {who}, seen {when}: its times are not reliable")
    if reason := content.get("other_processes", {}).get("reason"):
        texts.append(f"it is not known whether another process used its GPUs: {reason}")
    if comparability.disturbed(content):
        said = record.other_programs(content["other_programs"])
        texts.append(f"{said} while it was measured: its times are not reliable")
    elif content.get("other_programs", {}).get("reason"):
        texts.append(record.other_programs(content["other_programs"]))
    texts += measurement_rounds.scattered(content)
    energy = content.get("energy", {})
    if energy.get("joules") is None and energy.get("reason"):
        texts.append(f"no energy: {energy['reason']}")
    return texts
