"""`rosetta slurm FILE.toml`: the batch script, how it is submitted, and a job in a real Slurm."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import slurm_cluster
from runner_tools import BEGIN, FINISH, ROOT, Suite, wait_for

from helpers import paths
from helpers.__main__ import main
from helpers.runner import slurm

SWEEP = '[sweep]\nnnodes = [1, 2]\nnotebooks = ["PyTorch_MultiGPU"]\n'
SLURM = """\
[slurm]
partition = "gpu"
time = "02:00:00"
cpus-per-task = 16
mem = "64G"
gres = "gpu:4"
setup = ["module load cuda/12.6"]
constraint = "a100"
contiguous = true
"""


def write(folder: Path, text: str, name: str = "mine.toml") -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'recipe = "demo"\n{text}', encoding="utf-8")
    return str(path)


def check_shell(text: str, folder: Path, *options: str) -> None:
    """By bash's own reading, and by shellcheck's where it is here."""
    path = folder / "job.sh"
    path.write_text(text, encoding="utf-8")
    subprocess.run(["bash", "-n", path], check=True)
    beside = Path(sys.executable).parent / "shellcheck"
    program = str(beside) if beside.exists() else shutil.which("shellcheck")
    if program is not None:
        subprocess.run([program, *options, path], check=True)


def test_one_job_runs_all_numbers_of_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, SWEEP + SLURM)
    assert main(["slurm", path]) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert lines[0] == "#!/bin/bash" and len(lines) <= 40
    given = {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")}
    assert given >= {
        *("--job-name=mine", "--nodes=2", "--partition=gpu", "--time=02:00:00", "--mem=64G"),
        *("--cpus-per-task=16", "--gres=gpu:4", "--constraint=a100", "--contiguous", "--requeue"),
    }
    command = f".venvs/lab/bin/rosetta run --recipe {path} --name mine &"
    assert lines.index("module load cuda/12.6") < lines.index(command)
    check_shell(said, tmp_path)


def test_without_cores_a_job_has_whole_nodes(tmp_path: Path) -> None:
    said = slurm.script(slurm.job_of(write(tmp_path, "")))
    assert "#SBATCH --exclusive\n#SBATCH --mem=0\n" in said
    by_core = '[slurm]\nmem-per-cpu = "4G"\n'
    assert "--mem=" not in slurm.script(slurm.job_of(write(tmp_path, by_core)))


def test_a_path_of_any_name_is_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a $(touch PWNED) 'b", SLURM)
    monkeypatch.setattr(paths, "ROOT", tmp_path / 'c "d')
    monkeypatch.setattr(paths, "RUNS", tmp_path / "e f")
    said = slurm.script(slurm.job_of(path))
    assert f'#SBATCH --chdir="{tmp_path}/c \\"d"' in said
    assert '#SBATCH --output="../e f/slurm-%x-%j.log"' in said  # where `submit` says that it is
    (command,) = [line for line in said.splitlines() if line.startswith(".venvs")]
    assert shlex.split(command)[3] == path
    check_shell(said, tmp_path, "--exclude=SC2016")  # that nothing in the path is expanded


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[slurm]\npartition = "a\\nb"', "slurm[...]: Expected `str` matching"),
        ('[slurm]\n"x --y" = "z"', "`key` in `$.slurm`"),
        ("[sweep]\nnnodes = [0]", "nodes is 0"),
    ],
)
def test_a_mistake_is_one_line_and_reaches_no_script(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["slurm", write(tmp_path, f"{text}\n")]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and said in error, error


def test_what_only_the_nodes_can_tell_is_left_to_them(tmp_path: Path) -> None:
    for line in ("devices = [8]", 'data = "/scratch/images"', "nnodes = [64]"):
        assert slurm.script(slurm.job_of(write(tmp_path, f"[sweep]\n{line}\n")))


def sbatch(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name, first in PATH."""
    monkeypatch.setattr(paths, "RUNS", folder / "runs")
    (folder / "bin").mkdir()
    program = folder / "bin" / "sbatch"
    program.write_text(f"#!/bin/bash\ncat > {folder}/queued\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")


def test_a_job_queued_from_inside_a_job_inherits_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its two nodes, its tasks and cores would be the new job's; where Slurm is, is kept."""
    said = f"env > {tmp_path}/environment; echo '12 of 40 h are left'; echo 7"
    sbatch(tmp_path, said, monkeypatch)
    of_a_job = {"SLURM_NNODES": "2", "SLURM_CPUS_PER_TASK": "3", "SBATCH_GRES": "gpu:1"}
    of_a_job |= {"SLURM_JOB_ID": "5", "PMI_RANK": "0", "SLURM_CONF": "/etc/slurm.conf"}
    for name, value in of_a_job.items():
        monkeypatch.setenv(name, value)
    path = write(tmp_path, SLURM)
    assert main(["slurm", path, "--submit"]) == 0
    inherited = (tmp_path / "environment").read_text("utf-8")
    assert "SLURM_CONF=/etc/slurm.conf\n" in inherited
    assert not re.search("^(SLURM_(?!CONF)|SBATCH_|PMI_)", inherited, re.MULTILINE)
    assert (tmp_path / "queued").read_text("utf-8") == slurm.script(slurm.job_of(path))
    first, second = capsys.readouterr().out.splitlines()
    assert first == "The job first runs this line of mine.toml: module load cuda/12.6"
    assert second == f"Job 7: mine, 1 node; it prints to {paths.RUNS / 'slurm-mine-7.log'}"


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("", "said: nothing"),
        ("echo Moin", "said: Moin"),
        ("echo Welcome >&2; echo 'sbatch: error: Invalid account' >&2; exit 1", "Invalid account"),
    ],
)
def test_slurm_that_queues_nothing_is_one_line(
    script: str,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sbatch(tmp_path, script, monkeypatch)
    assert main(["slurm", write(tmp_path, ""), "--submit"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and line in error, error


TRAINS = """
import time
import numpy as np
from safetensors.numpy import save_file
said = json.dumps({"history": [1]})
save_file({"a": np.zeros(1)}, Path(run) / "checkpoint.safetensors", {"said": said})
(Path(run) / "trains").touch()
while not (Path(run).parents[1] / "go").exists():
    time.sleep(0.1)
"""
"""It has one epoch at once, and no other."""


def test_a_job_is_requeued_after_an_epoch_and_else_says_that_it_is_not(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a real Slurm: told to stop as before its time limit, twice, and submitted again."""
    suite.notebook("Train", BEGIN, TRAINS, FINISH)
    words = suite.command()
    rosetta = suite.folder / ".venvs" / "lab" / "bin" / "rosetta"
    rosetta.parent.mkdir(parents=True)
    line = f'exec {shlex.join(words[:3])} "$@" {shlex.join(words[4:])}\n'
    rosetta.write_text("#!/bin/bash\n" + line, encoding="utf-8")
    rosetta.chmod(0o755)
    monkeypatch.setattr(paths, "ROOT", suite.folder)
    text = slurm.script(
        slurm.job_of(write(suite.folder, '[slurm]\npartition = "p"\ncpus-per-task = 1\n'))
    )
    text = text.replace("unset PYTHONPATH", f"export PYTHONPATH={ROOT} #")
    paths.RUNS.mkdir()
    folder = paths.RUNS / "mine" / "Train-1x"
    try:
        with (
            tempfile.TemporaryDirectory(prefix="slurm-") as there,
            slurm_cluster.cluster(Path(there) / "c") as cluster,
        ):
            cluster.environment["JUPYTER_PATH"] = os.environ["JUPYTER_PATH"]

            def restarts() -> int:
                shown = cluster.run("scontrol", "--oneliner", "show", "job", job)
                return int(shown.partition("Restarts=")[2].split()[0])

            def stop() -> str:
                """As Slurm does before a time limit; what the job printed."""
                wait_for((folder / "trains").exists)
                (folder / "trains").unlink()
                cluster.run("scancel", "--signal=USR1", "--batch", job)
                cluster.wait(job, "PENDING", "FAILED", seconds=240)
                return (paths.RUNS / f"slurm-mine-{job}.log").read_text("utf-8")

            job = cluster.run("sbatch", "--parsable", input=text).strip()
            said = stop()
            assert "stopped by SIGUSR1" in said and restarts() == 1, said
            said = stop()
            assert "no epoch and no run was finished: ask for a longer time limit" in said
            assert cluster.state(job) == "FAILED" and restarts() == 1, said
            (paths.RUNS / "go").touch()
            job = cluster.run("sbatch", "--parsable", input=text).strip()
            cluster.wait(job, "COMPLETED", "FAILED", seconds=240)
    except slurm_cluster.CannotBeHad as error:
        pytest.skip(str(error))
    assert json.loads((folder / "record.json").read_text("utf-8"))["state"] == "finished"


def test_what_a_module_sets_for_python_does_not_reach_the_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rosetta = tmp_path / ".venvs" / "lab" / "bin" / "rosetta"
    rosetta.parent.mkdir(parents=True)
    rosetta.write_text('#!/bin/bash\necho "path: $PYTHONPATH, home: $PYTHONHOME."\n')
    rosetta.chmod(0o755)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    setup = '[slurm]\nsetup = ["export PYTHONPATH=/module PYTHONHOME=/module"]\n'
    text = slurm.script(slurm.job_of(write(tmp_path, setup)))
    done = subprocess.run(
        ["bash"], input=text, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "path: , home: .\n"
