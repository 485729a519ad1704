"""The recipes for containers: they say the same, and what they copy and run is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "environments"))


DOCKER = ROOT / "environments" / "container" / "Dockerfile"
APPTAINER = ROOT / "environments" / "container" / "apptainer.def"
PLACE = "/opt/chexnet"


def instructions(file: Path) -> list[tuple[str, str]]:
    """What a Dockerfile says, as pairs of a word and the rest."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.M).replace("\\\n", " ")
    return [(line.split()[0], " ".join(line.split()[1:])) for line in text.splitlines() if line]


def sections(file: Path) -> dict[str, list[str]]:
    """What an Apptainer recipe says: its header as "", and its sections by name."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for line in file.read_text().splitlines():
        if line.startswith("%"):
            name = line[1:]
            found[name] = []
        elif line.strip() and not line.strip().startswith("#"):
            found[name].append(line.strip())
    return found


def commands(lines: list[str]) -> list[str]:
    return [" ".join(part.split()) for line in lines for part in line.split("&&")]


def docker_commands() -> list[str]:
    return commands([rest for word, rest in instructions(DOCKER) if word == "RUN"])


def test_both_copy_the_same_and_it_is_there() -> None:
    copied = [rest.split() for word, rest in instructions(DOCKER) if word == "COPY"]
    files = {name for *names, _ in copied for name in names}
    assert {line.split()[0] for line in sections(APPTAINER)["files"]} == files
    assert all(line.split()[1] == f"{PLACE}/" for line in sections(APPTAINER)["files"])
    assert dict(instructions(DOCKER))["WORKDIR"] == PLACE
    for *names, to in copied:
        assert to == "./" or names == [to], "a folder keeps its name"
    assert all((ROOT / name).exists() for name in files)
    settings = (ROOT / "pyproject.toml").read_text() + (ROOT / "setup.py").read_text()
    here = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    packages = here & set(re.findall(r'^    "(\w+)[\w.]*",$', settings, re.M))
    assert {"helpers", "data_prep"} <= packages <= files and "gpumon" in files


def test_both_run_the_same_commands() -> None:
    theirs = [line for line in commands(sections(APPTAINER)["post"]) if not line.startswith("cd ")]
    ours = [line.replace("$ARGS", "{{ ARGS }}") for line in docker_commands()]
    assert theirs == ours
    assert 'make envs ARGS="{{ ARGS }}"' in theirs and "rm -f data_prep/*.so" in theirs
    assert "ARGS=--gpu" in sections(APPTAINER)["arguments"]
    assert ("ARG", "ARGS=--gpu") in instructions(DOCKER)
    compare = f"{PLACE}/.venvs/lab/bin/rosetta"
    assert dict(instructions(DOCKER))["ENTRYPOINT"] == f'["{compare}"]'
    assert sections(APPTAINER)["runscript"] == [f'exec {compare} "$@"']
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    assert "envs" in targets


BASE = "CONTAINER_TEST_BASE"
"""A variable with the name of an image: a base for Podman and Buildah without a registry."""
BUILDERS = {"podman": "info", "docker": "info", "buildah": "info", "apptainer": "version"}
"""What each is asked, to see whether it works here."""


def done(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


def has_worked(*words: str) -> str:
    """What a command prints."""
    ended = done(*words)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout


def test_it_builds_and_compare_starts_in_it(tmp_path: Path) -> None:
    """Where there is a builder and a base: with the lab's environment alone."""
    there = [
        each
        for each, word in BUILDERS.items()
        if shutil.which(each) and not done(each, word).returncode
    ]
    if not there:
        pytest.skip(f"none of {', '.join(BUILDERS)} works here")
    program, image = there[0], str(tmp_path / "chexnet.sif")
    base, given = dict(instructions(DOCKER))["FROM"], os.environ.get(BASE)
    if not given:
        to = [str(tmp_path / "base.sif")] if program == "apptainer" else []
        pulled = done(program, "pull", *to, base if program == "docker" else f"docker://{base}")
        if pulled.returncode:
            pytest.skip(f"{program} gets no {base} (${BASE}): {pulled.stderr.strip()[-300:]}")
    small, tag = ["--build-arg", "ARGS=--cpu --environments lab"], "chexnet-test"
    if program == "apptainer":
        has_worked(program, "build", *small, image, str(APPTAINER))
        start = [program, "run", image]
    else:
        other = ["--from", given] if given else []
        has_worked(program, "build", *other, "--file", str(DOCKER), *small, "--tag", tag, str(ROOT))
        start = [program, "run", "--rm", tag]
    if program == "buildah":  # runs commands, and no entry point
        container = has_worked(program, "from", tag).split()[-1]
        start = [program, "run", container, "--", f"{PLACE}/.venvs/lab/bin/rosetta"]
    assert "usage: rosetta" in has_worked(*start, "--help")
