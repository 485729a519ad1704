"""List what is missing or not comparable, one line per reason."""

import re
from collections.abc import Iterator
from typing import Any

from helpers.record import sections
from helpers.results import by_class, comparability, run_sets
from helpers.results.comparison import Comparison, Entry
from helpers.results.shared_settings import departures, differences, workers
from helpers.results.tables import Table, table

_STATES = {
    "running": "still running, or lost with its machine",
    "failed": "failed",
    "interrupted": "interrupted",
    "skipped": "skipped",
}
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\w)")


def remarks(compared: Comparison) -> Table:
    """List what is missing or not comparable, and why."""
    said: dict[str, list[str]] = {}
    for why in compared.left_out:
        said.setdefault(why, []).append("a record")
    for entry in compared.entries:
        if not entry.finished:
            reason = entry.content.get("reason") or "no reason was recorded"
            state = _STATES[entry.content["state"]]
            name = ", ".join(filter(None, [entry.run, entry.variant]))
            said.setdefault(f"{state}: {reason}", []).append(name)
    for what, remark in [*differences(compared.finished), *workers(compared.finished)]:
        said.setdefault(remark, []).append(what)
    alike: dict[str, list[tuple[str, Entry]]] = {}
    for entry in compared.finished:
        for text in _limits(entry.content):
            alike.setdefault(_NUMBER.sub("#", text), []).append((text, entry))
    for found in alike.values():
        runs = run_sets.named((entry for _, entry in found), compared.finished)
        said.setdefault(_ranged([text for text, _ in found]), []).append(runs)
    rows = [("; ".join(dict.fromkeys(runs)), {"remark": text}) for text, runs in said.items()]
    return table("Not comparable, or missing", "about", rows)


def _ranged(texts: list[str]) -> str:
    """Merge texts that differ only in their numbers: ``used 0.22 to 0.89 of 2 cores``."""
    columns = zip(*(_NUMBER.findall(text) for text in texts), strict=True)
    ends = iter([dict.fromkeys([min(of, key=float), max(of, key=float)]) for of in columns])
    return _NUMBER.sub(lambda _: " to ".join(next(ends)), texts[0])


def _limits(content: dict[str, Any]) -> Iterator[str]:
    """List what a finished run cannot show, by its own record."""
    checkpoint, others = content.get("checkpoint", {}), content.get("other_processes", {})
    programs = content.get("other_programs", {})
    if comparability.kind(content) == "shared cores" and content["devices"]["count"] > 1:
        yield "its CPU devices share cores, so its speed-up is meaningless"
    if comparability.simulated_nodes(content):
        count = comparability.nodes(content)
        yield f"its {count} nodes were simulated on one machine, so no network was measured"
    if changed := departures(content):
        yield f"the recipe was changed: {changed}"
    if comparability.resumed_after(content):
        places = " and ".join(f"after epoch {epoch}" for epoch in checkpoint["restarts"])
        yield f"resumed {places}: its times cover its last process, so no comparison uses them"
    if len(content["epochs"]) - comparability.resumed_after(content) == 1:
        yield "it trained one epoch, so its images/s contain compiling"
    if times := comparability.disagreement(content):
        yield (
            f"its rounds after training ran at {times:.1f} times the rate of its epochs: they did "
            "different work or another program took part of the devices; it is not ranked"
        )
    if checkpoint.get("changed_code"):
        yield "the code changed before it resumed, so its epochs come from two programs"
    if variants := comparability.variants(content):
        yield f"differs from the recipe: {', '.join(variants)}; it is not ranked"
    if comparability.failed(content):
        failed = [c["check"] for c in content["fairness"]["checks"] if c["verdict"] == "fail"]
        yield f"fairness check not passed: {', '.join(failed) or 'see its table'}"
    yield from by_class.limits(content)
    for other in others.get("processes", []):
        when = "before it began" if other["seen"] == "before" else "while it ran"
        name = other["name"] or "a process"
        yield f"its GPU was in use by {name}, seen {when}: its times are not reliable"
    if reason := others.get("reason"):
        yield f"it is not known whether another process used its GPUs: {reason}"
    if comparability.disturbed(content):
        others = sections.other_programs(programs)
        yield f"{others} while it was measured: its times are not reliable"
    elif programs.get("reason"):
        yield sections.other_programs(programs)
    on_gpus = content["devices"]["kind"] == "gpu"
    if on_gpus and (reason := content.get("energy", {}).get("reason")):
        yield f"no energy: {reason}"
