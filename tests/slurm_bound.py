"""A Slurm (``slurm_cluster``) that gives jobs GPUs and cores, and holds them to these.

By its own plugins: the kernel binds a job's processes to its cores, limits its memory, and lets it
open its GPUs alone. These are device files without a driver behind them; ``fake_nvml`` answers for
it. Each node has a host's name and GPUs of its own, as if it were a machine.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import fake_nvml
import slurm_cluster
from slurm_cluster import CannotBeHad, Cluster

GROUPS = ("cpuset", "devices", "freezer", "memory")
"""Control groups of version 1, which need no systemd."""
ROOT = Path("/sys/fs/cgroup")
MEMORY = 2000
"""MiB of a node."""
CONF = slurm_cluster.CONF.replace("task/none", "task/cgroup,task/affinity").replace(
    "SelectTypeParameters=CR_CPU", "SelectTypeParameters=CR_CPU_Memory"
)
CONF = CONF.replace("SlurmctldHost={host}", "SlurmctldHost={host}(127.0.0.1)") + "GresTypes=gpu\n"
NODE = (
    "NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs=2 "
    f"RealMemory={MEMORY} Gres=gpu:2 State=UNKNOWN\n"
)
GROUPS_CONF = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint={root}
ConstrainCores=yes
ConstrainRAMSpace=yes
ConstrainDevices={hides}
"""
GPUS = {"n1": (0, 1), "n2": (2, 3)}
"""Each node's GPUs, for ``fake_nvml.uuid``; there they are number 0 and 1."""
DRIVER = 195
"""The number that NVIDIA's has for its device files; here nobody answers to it."""
HOST = (
    *("unshare", "--uts", "--mount", "sh", "-c"),
    "hostname {name} && mount --bind {folder}/{name} {folder}/dev && "
    'mount --bind {folder}/hosts /etc/hosts && exec "$0" "$@"',
)


@contextmanager
def cluster(folder: Path, *, hides: bool) -> Iterator[Cluster]:
    """Two nodes with two cores and two GPUs each.

    Args:
        folder: as in ``slurm_cluster.cluster``.
        hides: whether a job cannot open the GPUs of others, and so counts its own from 0.

    Raises:
        CannotBeHad: with the reason to skip.
    """
    if lacking := [name for name in GROUPS if not (ROOT / name / "tasks").exists()]:
        raise CannotBeHad(f"no control groups of version 1 for Slurm here: {', '.join(lacking)}")
    if shutil.which("unshare") is None or (os.cpu_count() or 1) < 2:
        raise CannotBeHad("a node with a host's name of its own needs unshare, and two cores")
    slurm_cluster.unpacked()  # says first whether this is root
    (folder / "dev").mkdir(parents=True)
    for node, gpus in GPUS.items():
        _make_gpus(folder / node, gpus)
    names = Path("/etc/hosts").read_text(encoding="utf-8")
    (folder / "hosts").write_text(f"{names}\n127.0.0.1 {' '.join(GPUS)}\n", encoding="utf-8")
    about = {"root": ROOT, "hides": "yes" if hides else "no"}
    (folder / "cgroup.conf").write_text(GROUPS_CONF.format(**about), encoding="utf-8")
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/dev/nvidia[0-1]\n", encoding="utf-8")
    # The groups are the machine's: another such cluster has other jobs.
    conf = f"{CONF}FirstJobId={random.randint(1, 60_000_000)}\n"
    try:
        with slurm_cluster.cluster(folder, conf, NODE, HOST) as found:
            there = found.environment
            there["FAKE_NVML_SCRIPT"] = f"{folder}/dev/machine"
            there["FAKE_NVML_DEVICES"] = f"{folder}/dev/nvidia"
            there["LD_LIBRARY_PATH"] += f"{os.pathsep}{fake_nvml.library()}"
            yield found
    finally:
        for name in GROUPS:
            for node in slurm_cluster.NODES:
                for group, _, _ in os.walk(ROOT / name / f"slurm_{node}", topdown=False):
                    with suppress(OSError):  # another cluster's, or its last process still ends
                        Path(group).rmdir()


def _make_gpus(folder: Path, gpus: tuple[int, ...]) -> None:
    """A node's device files, and what its driver says of them."""
    folder.mkdir()
    machine = fake_nvml.machine(*[fake_nvml.A100] * len(gpus))
    try:
        for number, gpu in enumerate(gpus):
            os.mknod(folder / f"nvidia{number}", 0o020666, os.makedev(DRIVER, number))
            machine = machine.replace(
                f"{number} uuid {fake_nvml.uuid(number)}", f"{number} uuid {fake_nvml.uuid(gpu)}"
            )
    except PermissionError as error:
        raise CannotBeHad(f"no device files can be made here: {error}") from None
    (folder / "machine").write_text(machine, encoding="utf-8")
