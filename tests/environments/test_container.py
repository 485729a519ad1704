"""The recipes for containers: they say the same, and what they copy and run is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "environments" / "container" / "Dockerfile"
APPTAINER = ROOT / "environments" / "container" / "apptainer.def"
PLACE = "/opt/chexnet"


def instructions(file: Path) -> list[tuple[str, str]]:
    """What a Dockerfile says, as pairs of a word and the rest."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.M).replace("\\\n", " ")
    return [(line.split()[0], " ".join(line.split()[1:])) for line in text.splitlines() if line]


def sections(file: Path) -> dict[str, list[str]]:
    """What an Apptainer recipe says, by section."""
    _, *parts = re.split(r"^%(\w+)\n", file.read_text(), flags=re.M)
    texts = (re.findall(r"^ *([^#\s].*?)\s*$", text, re.M) for text in parts[1::2])
    return dict(zip(parts[::2], texts, strict=True))


def commands(lines: list[str]) -> list[str]:
    return [" ".join(part.split()) for line in lines for part in line.split("&&")]


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
    ours = commands([rest for word, rest in instructions(DOCKER) if word == "RUN"])
    assert theirs == [line.replace("$ARGS", "{{ ARGS }}") for line in ours]
    assert 'make envs ARGS="{{ ARGS }}"' in theirs and "rm -f data_prep/*.so" in theirs
    assert "ARGS=--gpu" in sections(APPTAINER)["arguments"]
    assert ("ARG", "ARGS=--gpu") in instructions(DOCKER)
    compare = f"{PLACE}/.venvs/lab/bin/rosetta"
    assert dict(instructions(DOCKER))["ENTRYPOINT"] == f'["{compare}"]'
    assert sections(APPTAINER)["runscript"] == [f'exec {compare} "$@"']
