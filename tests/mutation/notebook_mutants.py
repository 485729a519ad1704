"""Would the fairness check notice? Changes a notebook in small ways, and lets each change train.

A mutant is a notebook with one change in a code cell that defines functions: another number,
another operator, an argument or a statement left out. It is run to the end of its test on two
virtual devices, with a small network and 200 images, and ends in one of three ways:

- an *error*: the notebook does not run to its end, or not within the time limit;
- *caught*: a row of the fairness check says "fail" or "different";
- it *survives*. ``notebook_mutants.toml`` lists those that train the same as before, with reasons.

    python tests/mutation/notebook_mutants.py --all                         all, which takes hours
    python tests/mutation/notebook_mutants.py --notebook JAX --sample 20    some of one notebook

A process imports the notebook's framework once, computes nothing, and is forked for each mutant.
Exit code 1: a mutant survived that is not listed, or one is listed that did not survive.
"""

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mutations import ROOT, Mutant, mutants_of
from notebook_runs import LATE, Outcome, outcome_of, write_recipes

KERNELS = {"PyTorch": "pytorch", "TensorFlow": "tensorflow", "JAX": "jax"}
"""The environment of a notebook; its network in ``own_networks`` has the same name."""
TIMES = 4
"""A mutant may take so many times as long as the notebook as it is."""


def cells_of(notebook: str) -> Iterator[str]:
    """The texts of a notebook's code cells."""
    path = ROOT / "notebooks" / f"{notebook}_MultiGPU.ipynb"
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


@cache
def mutants(notebook: str) -> list[tuple[str, Mutant]]:
    """Every mutant of a notebook, with the text of the cell that it changes."""
    cells = [text for text in cells_of(notebook) if "\ndef " in f"\n{text}"]
    return [(text, mutant) for text in cells for mutant in mutants_of(notebook, text)]


def import_all(notebook: str) -> None:
    """Import what the notebook imports, as it does."""
    texts = [text for text in cells_of(notebook) if "helpers.begin(" in text]
    nodes = [node for text in texts for node in ast.parse(text).body]
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(list(imports), []), notebook, "exec"), {})


def play(notebook: str, tried: Sequence[tuple[str, Mutant]]) -> list[tuple[Outcome, bool]]:
    """How each mutant ended, and whether what survived trained the same as without a change."""
    with tempfile.TemporaryDirectory(prefix="notebook-mutants-") as folder:
        # What JAX has compiled for one process serves the next.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
        recipes = write_recipes(Path(folder), KERNELS[notebook])
        import_all(notebook)
        sound, limit = {}, 0
        for name, recipe in recipes.items():
            began = time.monotonic()
            sound[name] = outcome_of(notebook, {}, recipe, 600)
            limit = max(limit, 60, int(TIMES * (time.monotonic() - began)))
            if not sound[name].trained:
                sys.exit(f"notebook_mutants.py: {notebook} as it is: {sound[name]}")
        print(f"{notebook} runs, each mutant for {limit} s at most", flush=True)
        found = []
        for cell, mutant in tried:
            same = True
            for name, recipe in recipes.items():
                outcome = outcome_of(notebook, {cell: mutant.source}, recipe, limit)
                same = same and outcome.trained == sound[name].trained
                if not outcome.trained:
                    break
            found.append((outcome, same))
            how = f"{outcome}{', trains the same' if same else ''}"
            print(f"{mutant.line}\n    {mutant.change}\n    {how}", flush=True)
    return found


def reason_of(mutant: Mutant, listed: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The first entry of the list that holds of a mutant."""
    for entry in listed:
        named = mutant.module in entry.get("notebooks", KERNELS)
        if named and entry["line"] in mutant.line and entry.get("change", "") in mutant.change:
            return entry
    return None


def report(
    notebook: str,
    tried: Sequence[tuple[str, Mutant]],
    ended: Sequence[tuple[Outcome, bool]],
    listed: Sequence[Mapping[str, Any]],
    *,
    whole: bool,
) -> int:
    """Print how many ended how; 1 if something survived, or is listed, that should not be."""
    errors = sum(bool(outcome.error) for outcome, _ in ended)
    slow = sum(outcome.error == LATE for outcome, _ in ended)
    rows = Counter(outcome.rows[0] for outcome, _ in ended if outcome.rows)
    alive = [
        (m, same) for (_, m), (outcome, same) in zip(tried, ended, strict=True) if outcome.trained
    ]
    unlisted = [(m, same) for m, same in alive if reason_of(m, listed) is None]
    print(f"\n{notebook}: {len(tried)} mutants")
    print(f"{errors:5} killed by an error, {slow} of them by the time limit")
    print(f"{rows.total():5} caught; by the first row that fails:")
    for row, count in rows.most_common():
        print(f"{count:11} {row}")
    print(f"{len(alive) - len(unlisted):5} survived and listed")
    print(f"{len(unlisted):5} survived and not listed")
    for mutant, same in unlisted:
        how = "trains the same" if same else "TRAINS SOMETHING ELSE"
        print(f"SURVIVED, {how}: {mutant.line}\n    {mutant.change}")
    late = [m for (_, m), (outcome, _) in zip(tried, ended, strict=True) if outcome.error == LATE]
    used = [reason_of(mutant, listed) for mutant in [*late, *(mutant for mutant, _ in alive)]]
    mine = [entry for entry in listed if notebook in entry.get("notebooks", KERNELS)]
    stale = [entry for entry in mine if entry not in used] if whole else []
    for entry in stale:
        print(f"NO SURVIVOR, take it off the list: {entry['line']}")
    return 1 if unlisted or stale else 0


def in_its_kernel(notebook: str, words: Sequence[str]) -> int:
    """The same for one notebook, in the environment that has its framework."""
    python = ROOT / ".venvs" / KERNELS[notebook] / "bin" / "python"
    alone = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)}
    command = [str(python), __file__, "--here", "--notebook", notebook, *words]
    return subprocess.run(command, env=alone, check=False).returncode


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--notebook", choices=KERNELS, help="one of them (default: all)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sample", type=int, default=6, help="mutants a notebook (default: 6)")
    which.add_argument("--all", action="store_true", help="every mutant, which takes hours")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument("--line", default="", help="only mutants of lines that hold this text")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    said = parser.parse_args(words)
    if not said.here:
        names = [said.notebook] if said.notebook else list(KERNELS)
        return max(in_its_kernel(name, words) for name in names)
    tried = [(cell, each) for cell, each in mutants(said.notebook) if said.line in each.line]
    if not said.all:
        tried = random.Random(said.seed).sample(tried, min(said.sample, len(tried)))
    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    ended = play(said.notebook, tried)
    whole = said.all and not said.line
    return report(said.notebook, tried, ended, listed["survivor"], whole=whole)


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "kernels")]
    sys.exit(main(sys.argv[1:]))
