"""`rosetta slurm FILE.toml`: the batch script, and what an untrusted file cannot put into it."""

import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import ValidationError
from runner_tools import ROOT, wait_for

from helpers import paths
from helpers.__main__ import main
from helpers.errors import UserError
from helpers.recipe import key_types
from helpers.recipe.keys import SLURM as SLURM_KEYS
from helpers.runner.slurm import script

MODEL = 'recipe = "demo"\n'
SLURM = """\
[slurm]
partition = "gpu"
account = "project1"
time = "02:00:00"
cpus = 16
mem = "64G"
gres = "gpu:4"
modules = ["cuda/12.6"]
sbatch_args = ["--constraint=a100"]
"""


def write(folder: Path, text: str, name: str = "mine.toml") -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(MODEL + text, encoding="utf-8")
    return str(path)


def test_the_script_is_what_one_would_write_by_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, f"[sweep]\nnnodes = [1, 2]\n{SLURM}")
    assert main(["slurm", path]) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert lines[0] == "#!/bin/bash" and 20 <= len(lines) <= 40
    assert "#   sbatch --nodes=1 --job-name=mine-1n job.sh; sbatch --nodes=2" in lines[2]
    given = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert given[:9] == [
        *("--job-name=mine", "--partition=gpu", "--account=project1", "--time=02:00:00"),
        *("--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=16", "--mem=64G"),
        "--gres=gpu:4",
    ]
    assert {"--requeue", "--signal=B:USR1@180", "--constraint=a100"} <= set(given)
    loaded = lines.index("module load cuda/12.6 || exit")
    assert lines[loaded + 1] == "unset PYTHONPATH PYTHONHOME"
    assert lines.index("trap again USR1 # until the runner has begun") < loaded
    assert loaded + 1 < lines.index(f"{script.ROSETTA} run --recipe {path} \\")
    assert f".venvs/lab/bin/rosetta run --recipe {path} \\" in lines
    assert "ROSETTA_STOP_SECONDS" not in said, "it is the runner's own number"
    check_shell(said, tmp_path)


def test_the_docs_show_the_script_of_their_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = (ROOT / "docs" / "slurm-settings.md").read_text(encoding="utf-8")
    settings = docs.partition("```toml\n")[2].partition("```")[0]
    shown = docs.partition("```bash\n")[2].partition("```")[0]
    monkeypatch.setattr(paths, "ROOT", Path("/shared/me/chexnet"))
    said = script.text(script.job_of(write(tmp_path, settings)))
    assert said.replace(str(tmp_path), "/shared/me").endswith(f"\n\n{shown}")


@pytest.mark.parametrize(("notice", "seconds"), [(60, 30), (90, 45), (600, 540)])
def test_a_stop_in_order_is_given_up_before_slurm_ends_the_job(
    notice: int, seconds: int, tmp_path: Path
) -> None:
    said = script.text(script.job_of(write(tmp_path, f"[slurm]\nsignal_seconds = {notice}\n")))
    assert f"\nexport ROSETTA_STOP_SECONDS={seconds} #" in said
    check_shell(said, tmp_path)


def check_shell(text: str, folder: Path, *options: str) -> None:
    """By bash's own reading, and by shellcheck's where it is here."""
    path = folder / "job.sh"
    path.write_text(text, encoding="utf-8")
    subprocess.run(["bash", "-n", path], check=True)
    beside = Path(sys.executable).parent / "shellcheck"
    program = str(beside) if beside.exists() else shutil.which("shellcheck")
    if program is not None:
        subprocess.run([program, *options, path], check=True)


@pytest.mark.parametrize(
    ("lines", "cores", "memory"),
    [
        ('cpus = 32\nmem = "64G"\ngres = "gpu:a100:4"', "8 for each of 4 GPUs", "16G for each"),
        (
            'cpus = 9\nmem = "700"\nsbatch_args = ["--gpus-per-node=1g.10gb:2"]',
            "4.5 for each of 2 GPUs",
            "350 for each",
        ),
        ('cpus = 4\nmem = "8G"', "4 for all devices of a node", "8G for all devices"),
    ],
)
def test_cores_and_memory_stand_below_their_reasons(
    lines: str, cores: str, memory: str, tmp_path: Path
) -> None:
    said = script.text(script.job_of(write(tmp_path, f"[slurm]\n{lines}\n"))).splitlines()
    (at,) = [n for n, line in enumerate(said) if line.startswith("#SBATCH --cpus-per-task=")]
    end = ": a process and up to 8 loader workers per device."
    assert said[at - 1] == f"# Cores: {cores}{end}"
    assert said[at + 1].startswith(f"# Memory: {memory}") and "--mem=" in said[at + 2]


def test_memory_may_be_asked_for_by_the_core(tmp_path: Path) -> None:
    for lines in ("", "cpus = 4\n"):
        path = write(tmp_path, f'[slurm]\n{lines}mem_per_cpu = "4G"\n')
        said = script.text(script.job_of(path))
        assert "\n#SBATCH --mem-per-cpu=4G\n" in said and "--mem=" not in said
    check_shell(said, tmp_path)


def test_whole_nodes_and_no_requeue(tmp_path: Path) -> None:
    path = write(tmp_path, "[slurm]\nrequeue = false\n")
    said = script.text(script.job_of(path, "other"))
    assert "--exclusive" in said and "--no-requeue" in said and "scontrol" not in said
    assert '--name other-"$SLURM_JOB_NUM_NODES"n' in said
    check_shell(said, tmp_path)


def test_a_login_node_need_not_be_able_to_run_so_many_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of Slurm, and in another, smaller job."""
    path = write(tmp_path, "[sweep]\nnnodes = [64]\n")
    assert "#SBATCH --nodes=64\n" in script.text(script.job_of(path))
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}.items():
        monkeypatch.setenv(name, value)
    assert "#SBATCH --nodes=64\n" in script.text(script.job_of(path))


def test_one_job_measures_all_numbers_of_nodes(tmp_path: Path) -> None:
    """On subsets of the same nodes, in turn; else each number of nodes has a job."""
    path = write(tmp_path, "[sweep]\nnnodes = [1, 2, 4]\nrepeats = 2\n[slurm]\none_job = true\n")
    job = script.job_of(path)
    assert job.nodes == (4,) and [job.experiment(nodes) for nodes in job.nodes] == ["mine-4n"]
    said = script.text(job)
    assert "--nodes=4 --job-name=mine-4n job.sh\n" in said
    assert '--nnodes 1,2,4 --name mine-"$SLURM_JOB_NUM_NODES"n' in said
    of_one = [run.nodes for run in job.plan(4).runs if run.notebook == "PyTorch_MultiGPU"]
    assert of_one == [1, 2, 4, 1, 2, 4]
    check_shell(said, tmp_path)


WAITS = "while [ ! -e go ]; do sleep 0.05; done"
LISTENS = "import os, signal, sys, time\nsignal.signal(10, lambda *_: sys.exit(75))\n"


@pytest.mark.parametrize("when", ["before the runner", "before it listens", "while it runs"])
def test_a_signal_at_any_moment_has_the_job_queued_again(when: str, tmp_path: Path) -> None:
    """By bash alone: the script with a runner that waits, and with a scontrol that notes."""
    before = when == "before the runner"
    lines = f'[slurm]\nsetup = ["touch there", "{WAITS}"]\n' if before else ""
    (tmp_path / "job.sh").write_text(script.text(script.job_of(write(tmp_path, lines))))
    runs = f"{LISTENS if when == 'while it runs' else 'import time'}\nopen('there', 'w')\n"
    beside = tmp_path / Path(script.ROSETTA).parent
    beside.mkdir(parents=True)
    for path, text in (
        (tmp_path / script.ROSETTA, f"#!{sys.executable}\n{runs}\ntime.sleep(600)\n"),
        (beside / "scontrol", "#!/bin/sh\necho $* > queued\n"),
    ):
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    known = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"}
    job = subprocess.Popen(
        ["bash", "job.sh"], cwd=tmp_path, env=known | {"PATH": f"{beside}:/usr/bin:/bin"}
    )
    wait_for((tmp_path / "there").exists)
    job.send_signal(signal.SIGUSR1)
    (tmp_path / "go").touch()
    assert job.wait(60) == 75
    assert (tmp_path / "queued").read_text() == "requeue 7\n"


HOSTILE = ("a; touch PWNED", "$(touch PWNED)", "a\\nb", "a\\n#SBATCH --wrap=x", "'a", '\\"a', "`a`")
BAD = {
    "a second line": ('partition = "a\\nb"', "line 3: 'partition' in [slurm] is"),
    "a time that is none": ('time = "two hours"', "give a time limit as sbatch takes it"),
    "a time that is over at once": ('time = "00:04:00"', "which Slurm may begin 60 s sooner"),
    "no time at all": ('time = "00:02:00"', "leaves no time before the 180 s"),
    "an option of ours": ('sbatch_args = ["--nodes=9"]', "none that rosetta slurm gives"),
    "lines in lines": ('setup = ["a\\nb"]', "a list of lines of shell"),
    "memory asked for twice": ('mem = "9G"\nmem_per_cpu = "1G"', "line 4: 'mem' is the memory"),
    "no number of cores": ("cpus = 0", "a whole number from 1"),
    "yes": ('requeue = "yes"', "give true or false"),
    "a key nobody knows": ('acount = "x"', "did you mean 'account'?"),
}


@pytest.mark.parametrize("value", HOSTILE)
def test_nothing_that_a_shell_would_run_is_a_value(value: str) -> None:
    value = value.replace("\\n", "\n").replace("\\", "")
    texts = [(key, value) for key in ("partition", "account", "mem", "mem_per_cpu", "gres", "time")]
    options = (value, f"--mem={value}")
    lists = [(key, [one]) for key in ("modules", "sbatch_args") for one in options]
    for key, given in (*texts, *lists):
        with pytest.raises(ValidationError):
            key_types.convert(given, SLURM_KEYS[key])


@pytest.mark.parametrize("what", BAD)
def test_a_mistake_is_one_line_and_reaches_no_script(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, said = BAD[what]
    assert main(["slurm", write(tmp_path, f"[slurm]\n{line}\n")]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and said in error, error


def test_a_path_of_any_name_is_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a $(touch PWNED) 'b", SLURM)
    monkeypatch.setattr(paths, "ROOT", tmp_path / 'c "d')
    said = script.text(script.job_of(path))
    assert f'#SBATCH --chdir="{tmp_path}/c \\"d"' in said
    (command,) = [line for line in said.splitlines() if line.startswith(".venvs")]
    assert shlex.split(command.rstrip("\\"))[3] == path
    check_shell(said, tmp_path, "--exclude=SC2016")  # that nothing in the path is expanded


def test_names_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give a recipe's file"):
        script.job_of("chexnet")
    with pytest.raises(UserError, match="experiment name 'my own'"):
        script.job_of(write(tmp_path, SLURM, "my own.toml"))
    with pytest.raises(UserError, match=r"mine.toml, line 3: nodes"):
        script.job_of(write(tmp_path, "[sweep]\nnnodes = [0]\n"))


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("90", 5400), ("90:30", 5430), ("02:00:00", 7200), ("1-12", 129600), ("1-00:30", 88200)],
)
def test_time_limits(limit: str, seconds: int) -> None:
    assert script.seconds_of(limit) == seconds
