"""`rosetta slurm --submit` and `rosetta status` where Slurm, the files or the user are out of luck.

Slurm's programs are stand-ins here, which answer as no cluster of a test would: each of these ends
in one plain line, or goes on.
"""

import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import faults
import pytest
import records
from runner_tools import wait_for

from helpers import paths
from helpers.__main__ import main
from helpers.frameworks import installed
from helpers.launch.failures import TERMINATED, RankError
from helpers.recipe import lookup
from helpers.runner import journal, plans
from helpers.runner.slurm import programs, script, this_job

RECIPE = 'recipe = "demo"\n[sweep]\nnnodes = [1, 2]\nnotebooks = ["PyTorch_MultiGPU"]\n[slurm]\n'
EPOCHS = lookup("demo").epochs
Said = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a recipe, and Slurm's programs in ``bin``: a queue that is empty, and job 7."""
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(installed, "problem", lambda *_: None)
    (tmp_path / "bin").mkdir()
    (tmp_path / "mine.toml").write_text(RECIPE)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    program(tmp_path, "squeue", "exit 0")
    program(tmp_path, "sbatch", f"cat >> {tmp_path / 'queued'}; echo 7")
    return tmp_path


@pytest.fixture(name="said")
def said_fixture(capsys: pytest.CaptureFixture[str]) -> Said:
    """A command's exit code, output and error."""
    return lambda *words: (main(words), *capsys.readouterr())


def program(folder: Path, name: str, script: str, head: str = "#!/bin/bash\n") -> None:
    path = folder / "bin" / name
    path.write_text(f"{head}{script}\n", encoding="latin-1")
    path.chmod(0o755)


def begin(folder: Path, nodes: int = 1, state: str = "failed", *, whole: bool = True) -> Path:
    """A batch of the recipe's, which has come to its end where it is ``whole``."""
    chosen: dict[str, Any] = {"nnodes": [nodes], "devices": [1], "notebooks": ["PyTorch_MultiGPU"]}
    plan = plans.make_plan(recipe=str(folder / "mine.toml"), **chosen)
    plan.runs[0].state = state
    path = paths.RUNS / f"mine-{nodes}n"
    path.mkdir(parents=True)
    began, ended = "2026-11-22T09:00:00+00:00", "2026-11-22T10:00:00+00:00" if whole else None
    journal.write(path, plan, {"started": began, "finished": ended})
    if state == "finished":
        run = path / plan.runs[0].folder
        run.mkdir()
        (run / "record.json").write_text(json.dumps(records.make(devices=1)))
    return path


ILL = {
    "no sbatch": ("sbatch", None, "no sbatch here: Slurm's programs are on a cluster's login node"),
    "no squeue": ("squeue", None, "no squeue here"),
    "squeue is down": (
        "squeue",
        "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
        "squeue: slurm_load_jobs error: Unable to contact",
    ),
    "squeue hangs": ("squeue", "exec sleep 60", "squeue has not answered for 1 s; try again"),
    "sbatch hangs": ("sbatch", "exec sleep 60", "sbatch has not answered for 1 s; try again"),
    "sbatch says nothing": ("sbatch", "exit 0", "sbatch printed no job number, but ''"),
    "sbatch says nonsense": ("sbatch", "echo Moin; echo 7 of 9", "but 'Moin\\n7 of 9': check"),
    "sbatch greets": (
        "sbatch",
        "echo 'Welcome to the cluster' >&2; echo 'sbatch: error: Invalid account' >&2; exit 1",
        "error: sbatch: error: Invalid account",
    ),
    "sbatch's bytes": ("sbatch", "printf 'error: \\xff\\xfe\\n' >&2; exit 1", "sbatch: error: "),
    "sbatch is killed": ("sbatch", "kill -9 $$", "sbatch: exit code -9"),
}


@pytest.mark.parametrize("what", ILL)
def test_slurm_that_does_not_work_is_one_line(
    what: str, folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, script, line = ILL[what]
    monkeypatch.setattr(programs, "SECONDS", 1.0)
    program(folder, name, script or "")
    if script is None:
        (folder / "bin" / name).unlink()
    code, _, error = said("slurm", str(folder / "mine.toml"), "--submit")
    assert code == 2 and error.count("\n") == 1 and line in error, error


def test_a_program_that_cannot_be_started_is_one_line(folder: Path, said: Said) -> None:
    program(folder, "sbatch", "", head="#!/no/such/shell\n")
    code, _, error = said("slurm", str(folder / "mine.toml"), "--submit")
    assert code == 2 and error.count("\n") == 1 and "sbatch: No such file" in error, error


def test_a_sites_own_sbatch_may_say_more(folder: Path, said: Said) -> None:
    program(folder, "sbatch", "cat >/dev/null; echo '12 hours of 40 are left'; echo '7;fast'")
    code, out, _ = said("slurm", str(folder / "mine.toml"), "--submit")
    assert code == 0 and "Job 7: mine-1n, 1 node; it prints to" in out
    assert "slurm-mine-2n-7.log" in out


def test_what_is_queued_whole_or_ended_is_told_apart(folder: Path, said: Said) -> None:
    """One of two numbers of nodes may have something to do: it alone is queued."""
    file = str(folder / "mine.toml")
    program(folder, "squeue", 'case "$*" in *mine-2n*) echo 5;; esac')
    begin(folder)
    code, out, _ = said("slurm", file, "--submit")
    assert code == 0 and "Job 7: mine-1n" in out and "Job 7: mine-2n" not in out
    assert "It continues the experiment: 0 of 1 runs are finished" in out
    assert "Not queued: job 5 is called mine-2n already: wait for it, or end it" in out

    program(folder, "squeue", "exit 0")
    begin(folder, 2, "finished")
    code, out, _ = said("slurm", file, "--submit")
    assert code == 0 and "Not queued: mine-2n has finished: rosetta report mine-2n" in out
    program(folder, "squeue", 'case "$*" in *mine-1n*) echo 5;; esac')
    (folder / "queued").unlink()
    code, out, error = said("slurm", file, "--submit")
    assert code == 2 and out == "" and error.count("\n") == 1 and not (folder / "queued").exists()
    assert "job 5 is called mine-1n" in error and "mine-2n has finished" in error


def test_kernels_that_are_not_made_are_told_before_the_job_waits(
    folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In vain, where none of them is."""
    file = folder / "mine.toml"
    file.write_text(RECIPE.replace('U"]', 'U", "MXNet_Gluon_MultiGPU"]'))
    made = ["pytorch"]
    monkeypatch.setattr(
        installed, "problem", lambda kernel: None if kernel in made else f"no {kernel}: 'make envs'"
    )
    code, out, _ = said("slurm", str(file), "--submit")
    assert (
        code == 0
        and "Some runs will be skipped, and the job will end as failed: no mxnet: 'make" in out
    )
    (folder / "queued").unlink()
    made.clear()
    code, out, error = said("slurm", str(file), "--submit")
    assert (code, out) == (2, "") and error.count("\n") == 1 and "no mxnet: 'make envs'; " in error
    assert not (folder / "queued").exists()


@pytest.mark.parametrize(
    ("srun", "why"),
    [
        ("exit 0", None),
        (
            "echo srun: no binding here >&2; echo 'srun: error: Task launch for StepId=7.1 failed "
            "on node n2: Communication connection failure' >&2; exit 1",
            "on node n2: Communication connection failure",
        ),
        ("echo 'srun: error: Node failure on n2' >&2; exit 1", "Node failure on n2"),
        ("exit 3", None),
        ("echo 'srun: fatal: cpus-per-task set by two different variables' >&2; exit 1", None),
        ("echo 'srun: Job step creation: Requested nodes are busy' >&2; exec sleep 60", None),
        ("exec sleep 60", "has not answered for 1 s"),
    ],
)
def test_only_a_node_that_is_gone_is_called_gone(
    srun: str, why: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_job, "SECONDS", 1.0)
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}.items():
        monkeypatch.setenv(name, value)
    program(folder, "srun", srun)
    found = this_job.lost_node(RankError("rank 1 on n2: ValueError: no such file", "ValueError"))
    assert found is None if why is None else found is not None and why in found, found
    assert found is None or "binding" not in found
    ended = RankError("srun ended with exit code 143", TERMINATED)
    assert this_job.lost_node(ended) == "Slurm has ended what ran on a node of this job"


def test_of_two_shells_that_submit_at_once_one_is_refused(folder: Path, said: Said) -> None:
    """While the first waits for sbatch, nobody could know of its job by squeue."""
    waits = f"touch {folder}/waits; until [ -e {folder}/go ]; do sleep 0.05; done; echo 7"
    program(folder, "sbatch", f"cat >/dev/null; {waits}")
    file = str(folder / "mine.toml")
    with ThreadPoolExecutor() as pool:
        first = pool.submit(main, ["slurm", file, "--submit"])
        wait_for((folder / "waits").exists)
        code, _, error = said("slurm", file, "--submit")
        (folder / "go").touch()
        assert first.result() == 0
    assert (
        code == 2 and error.count("\n") == 1 and "another rosetta slurm queues mine (" in error
    ), error
    assert said("slurm", file, "--submit")[0] == 0, "the first has let go"


def half_journal(folder: Path) -> None:
    path = begin(folder) / journal.FILE
    path.write_text(path.read_text()[:100])


def stranger(folder: Path) -> None:
    (paths.RUNS / "mine-1n").mkdir(parents=True)
    (paths.RUNS / "mine-1n" / "thesis.tex").touch()


def file_in_the_way(folder: Path) -> None:
    paths.RUNS.mkdir()
    (paths.RUNS / "mine-1n").touch()


def link_to_nowhere(folder: Path) -> None:
    paths.RUNS.mkdir()
    (paths.RUNS / "mine-1n").symlink_to(folder / "nowhere")


def no_runs(folder: Path) -> None:
    paths.RUNS.touch()


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (half_journal, "mine-1n/experiment.json: not a JSON file"),
        (stranger, "mine-1n: is not an experiment: give another --name, or remove the folder"),
        (file_in_the_way, "mine-1n: is not an experiment"),
        (link_to_nowhere, "mine-1n: is not an experiment"),
        (no_runs, "runs: File exists"),
    ],
)
def test_what_is_in_the_way_is_one_line_and_nothing_is_queued(
    spoil: Callable[[Path], None], line: str, folder: Path, said: Said
) -> None:
    spoil(folder)
    code, _, error = said("slurm", str(folder / "mine.toml"), "--submit")
    assert code == 2 and error.count("\n") == 1 and line in error, error
    assert not (folder / "queued").exists()


def test_runs_that_cannot_be_written_are_told_before_anything_is_queued(
    folder: Path, said: Said
) -> None:
    """Else Slurm ends the job at once, as it cannot write what it prints."""
    with faults.disk(folder / "runs", "size=1m,ro"):
        code, _, error = said("slurm", str(folder / "mine.toml"), "--submit")
    assert code == 2 and error.count("\n") == 1 and "Read-only file system" in error, error
    assert not (folder / "queued").exists()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('frameworks = ["pytorh"]', "line 5: unknown framework 'pytorh'"),
        ("seeds = [-1]", "line 5: seed -1"),
        ('precision = ["fp7"]', "line 5: "),
        ("epochs = 0", "line 5: epochs is 0"),
    ],
)
def test_a_sweep_with_a_mistake_is_told_before_anything_is_queued(
    line: str, told: str, folder: Path, said: Said
) -> None:
    text = RECIPE.replace('notebooks = ["PyTorch_MultiGPU"]', f"# none\n{line}")
    (folder / "mine.toml").write_text(text)
    code, out, error = said("slurm", str(folder / "mine.toml"), "--submit")
    assert code == 2 and out == "" and f"mine.toml, {told}" in error, error


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("", "", True),
        ("[slurm]\n", "[slurm]\ncpus = 2\n", True),
        ("nnodes = [1, 2]", "nnodes = [1, 2]\nseeds = [1]", False),
        ("[sweep]", "[train]\nepochs = 7\n[sweep]", False),
        ('"demo"', '"dome"', False),
    ],
)
def test_a_recipe_that_was_changed_while_its_job_waited_is_not_run(
    before: str, after: str, same: bool, folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = (folder / "mine.toml").rename(folder / "my own.toml")  # no batch is called so
    assert said("slurm", str(file), "--submit", "--name=mine")[0] == 0
    queued = (folder / "queued").read_text()
    told = re.findall(rf"^export {script.QUEUED}=(\w+) #", queued, re.MULTILINE)
    monkeypatch.setenv(script.QUEUED, told[0])
    file.write_text(RECIPE.replace(before, after))
    code, out, error = said(
        "run", "--recipe", str(file), "--nnodes=1", "--name=mine-1n", "--dry-run"
    )
    if same:
        assert (code, error) == (0, ""), error
    else:
        assert (code, out) == (2, "") and error.count("\n") == 1, out + error
        assert "my own.toml: was changed since this job was queued" in error or "dome" in error
    assert not (folder / "runs" / "mine-1n").exists()


def test_a_job_queued_from_inside_a_job_inherits_nothing_of_it(
    folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its two nodes, its tasks and cores would be the new job's; where Slurm is, is kept."""
    program(folder, "sbatch", f"cat >/dev/null; env > {folder / 'environment'}; echo 7")
    of_a_job = {"SLURM_NNODES": "2", "SLURM_CPUS_PER_TASK": "3", "SBATCH_GRES": "gpu:1"}
    of_a_job |= {"SLURM_JOB_ID": "5", "PMI_RANK": "0", "SLURM_CONF": "/etc/slurm.conf"}
    for name, value in of_a_job.items():
        monkeypatch.setenv(name, value)
    code, out, error = said("slurm", str(folder / "mine.toml"), "--submit")
    assert code == 0, error
    inherited = (folder / "environment").read_text()
    assert "SLURM_CONF=/etc/slurm.conf\n" in inherited
    assert not re.search("^(SLURM_(?!CONF)|SBATCH_|PMI_)", inherited, re.MULTILINE)
    assert "Queued from inside job 5, whose 5 variables the new job does not inherit: PMI_R" in out


@pytest.mark.parametrize(
    ("mode", "told"), [("CANCEL", True), ("GANG,CANCEL", True), ("OFF", False)]
)
def test_a_site_that_cancels_preempted_jobs_is_told(
    mode: str, told: bool, folder: Path, said: Said
) -> None:
    program(folder, "scontrol", f"echo 'PreemptMode             = {mode}'")
    code, out, _ = said("slurm", str(folder / "mine.toml"), "--submit")
    assert code == 0
    assert (f"not queued again (PreemptMode={mode}): then the same command" in out) == told


NODES = """\
gpu* n1 64 gpu:a100:4(S:0-1)
gpu* n2 32 gpu:v100:4
cpu n3 8 (null)
"""


@pytest.mark.parametrize(
    ("nodes", "more", "told"),
    [
        (NODES, "", "64 cores and gpu:a100:4 (n1); 32 cores and gpu:v100:4 (n2). Ask for one"),
        (NODES, 'partition = "gpu,cpu"', "; 8 cores and no GPU (n3). Ask for one kind"),
        (NODES, 'partition = "gpu,cpu"\ngres = "gpu:4"', "(n1); 32 cores and gpu:v100:4 (n2). As"),
        (NODES, 'gres = "gpu:v100:4"', ""),
        (NODES, 'sbatch_args = ["--constraint=v100"]', ""),
        (NODES.replace("32 gpu:v100", "64 gpu:a100"), "", ""),
        ("slurm_load_node error", "", ""),
    ],
)
def test_nodes_that_differ_are_told_before_the_job_is_queued(
    nodes: str, more: str, told: str, folder: Path, said: Said
) -> None:
    program(folder, "sinfo", f"cat <<'END'\n{nodes}\nEND")
    (folder / "mine.toml").write_text(f"{RECIPE}{more}\n")
    code, out, error = said("slurm", str(folder / "mine.toml"), "--submit")
    assert code == 0, error
    differ = [line for line in out.splitlines() if "nodes that differ" in line]
    assert len(differ) == bool(told) and all(told in line for line in differ), out


def test_untrusted_lines_of_shell_are_shown_before_anything_is_queued(
    folder: Path, said: Said
) -> None:
    lines = 'setup = ["curl x | sh", "true"]\nmodules = ["cuda"]\n'
    (folder / "mine.toml").write_text(RECIPE + lines)
    code, out, _ = said("slurm", str(folder / "mine.toml"), "--submit")
    first, second, third, *_ = out.splitlines()
    shown = "The job first runs this line of mine.toml: "
    assert code == 0 and [first, second] == [f"{shown}curl x | sh", f"{shown}true"]
    assert third.startswith("Job 7: mine-1n")


def test_what_only_the_nodes_can_tell_is_left_to_them(folder: Path, said: Said) -> None:
    for line in ("devices = [8]\ngpus = 8", 'data = "/scratch/images"', 'launcher = "srun"'):
        (folder / "mine.toml").write_text(RECIPE.replace("[slurm]", f"{line}\n[slurm]"))
        code, _, error = said("slurm", str(folder / "mine.toml"))
        assert code == 0, error


LINE = "{:<20}{:<20}{:<20}{:<20}{:<60}{:<200}\n"
"""As squeue prints what `status` asks for."""


def queue(folder: Path, *jobs: tuple[str, str, str, str, str, str]) -> None:
    (folder / "jobs").write_text("".join(LINE.format(*job) for job in jobs))
    program(folder, "squeue", f"cat {folder / 'jobs'}")


def rows(out: str) -> list[str]:
    return [" ".join(line.split()) for line in out.splitlines()]


def test_the_status_of_a_job_that_waits_and_of_one_that_runs(folder: Path, said: Said) -> None:
    begin(folder, state="running", whole=False)
    queue(
        folder,
        ("3", "RUNNING", "1:00:00", "0", "None", "mine-1n b"),
        ("4", "RUNNING", "1:02:03", "2", "None", "mine-1n"),
        ("5", "PENDING", "2:00:00", "0", "ReqNodeNotAvail, Reserved", "mine-2n"),
        ("6", "PENDING", "2:00:00", "0", "PartitionConfig", "never"),
        ("8", "PENDING", "2:00:00", "0", "Priority", "mine-1n"),
    )
    code, out, _ = said("status", "mine-1n", "mine-2n", "never")
    assert code == 0, out
    found = rows(out)
    run = "PyTorch_MultiGPU on 1 device"
    assert f"mine-1n 4 1:02:03 {run} running - 2 of the job" in found, out
    assert "mine-2n 5 2:00:00 - not begun - -" in found, out
    assert "mine-2n: job 5 waits (ReqNodeNotAvail, Reserved)" in found
    assert "never: job 6 waits (PartitionConfig), and would for ever" in found

    code, out, _ = said("status")
    assert code == 0 and any(row.startswith("mine-1n 4 ") for row in rows(out)), out


def test_the_status_of_what_ended_says_how_to_go_on(folder: Path, said: Said) -> None:
    begin(folder, state="failed")
    code, out, _ = said("status", "mine-1n")
    assert code == 0 and "no job of that name is queued; the same command continues it" in out
    begin(folder, 2, "finished")
    code, out, _ = said("status", "mine-2n")
    assert code == 0 and f"{EPOCHS} of {EPOCHS}" in out and "no job" not in out, out


@pytest.mark.parametrize(
    "script",
    ["exit 1", "exec sleep 60", "head -c 3000 /dev/urandom", "echo; echo a; echo 7; printf 9"],
)
def test_the_status_without_an_answer_of_squeues_shows_the_batches(
    script: str, folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "SECONDS", 1.0)
    begin(folder, state="running", whole=False)
    program(folder, "squeue", script)
    code, out, error = said("status")
    assert code == 0 and error == "" and "mine-1n" in out


def test_the_status_goes_by_no_damaged_journal(folder: Path, said: Said) -> None:
    half_journal(folder)
    code, _, error = said("status", "mine-1n")
    assert code == 2 and error.count("\n") == 1 and "experiment.json: not a JSON file" in error
    begin(folder, 2, "running", whole=False)
    code, out, _ = said("status")
    assert code == 0 and "mine-2n" in out and "mine-1n" not in out
    for name in ("../runs", "none", "a b", "-n", ""):
        code, out, error = said("status", name)
        assert (code, out) == (2, "") and error.count("\n") == 1, name


def test_a_folder_or_what_is_no_recipe_is_one_line(folder: Path, said: Said) -> None:
    (folder / "folder.toml").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    for name in ("folder.toml", "pipe", "bytes.toml", "none.toml", "mine"):
        code, out, error = said("slurm", str(folder / name))
        assert (code, out) == (2, "") and error.count("\n") == 1, name


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("slurm = 3\n", "'slurm' is a table"),
        ("[[slurm]]\ncpus = 1\n", "'slurm' is a table"),
        ("[slurm]\ncpus = true\n", "'cpus' in [slurm] is True"),
        ("[slurm]\ncpus = 1e9\n", "'cpus' in [slurm]"),
        ("[slurm]\ntime = 60\n", "'time' in [slurm] is 60"),
        ('[slurm]\ntime = "\u0661\u0662"\n', "'time' in [slurm]"),
        ('[slurm]\nmem = "\u0661G"\n', "'mem' in [slurm]"),
        ("[slurm]\nmodules = []\n", "'modules' in [slurm] is []"),
        ("[slurm]\nsignal_seconds = 0\n", "'signal_seconds' in [slurm] is 0"),
        ('[slurm]\nsbatch_args = ["--outp=/home/me/.bashrc"]\n', "'sbatch_args' in [slurm]"),
        ('[slurm]\nsbatch_args = ["--arr=1-9"]\n', "'sbatch_args' in [slurm]"),
        ('[slurm]\nsbatch_args = ["--time=1"]\n', "'sbatch_args' in [slurm]"),
        ('[slurm]\nsbatch_args = ["--gpus=8"]\n', "'sbatch_args' in [slurm]"),
        ('[slurm]\ngres = "--gpus-per-task=4"\n', "'gres' in [slurm]"),
        ('[slurm]\nsetup = [" #SBATCH --output=/home/me/.bashrc"]\n', "'setup' in [slurm]"),
        ('[slurm]\nsetup = ["#PBS -o x"]\n', "'setup' in [slurm]"),
    ],
)
def test_odd_settings_are_one_line(given: str, line: str, folder: Path, said: Said) -> None:
    (folder / "mine.toml").write_text(f'recipe = "demo"\n{given}', encoding="utf-8")
    code, out, error = said("slurm", str(folder / "mine.toml"))
    assert (code, out) == (2, "") and error.count("\n") == 1 and line in error, error


@pytest.mark.parametrize("name", ["a b", "'x'", "-n", "$(id)", "a\nb", "", "latest", "a" * 300])
def test_odd_names_are_one_line(name: str, folder: Path, said: Said) -> None:
    code, out, error = said("slurm", str(folder / "mine.toml"), f"--name={name}")
    assert (code, out) == (2, "") and error.count("\n") == 1, error
