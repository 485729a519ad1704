"""Start temporary MPI ranks with ``mpiexec`` and call a function in each of them.

The all-reduce of the self-test uses it. ``mpiexec`` is that of the kernel's environment (package
``mpich``).
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from helpers import paths
from helpers.frameworks import replicas

_RANK = "from helpers.frameworks import mpi_ranks; mpi_ranks._answer()"


def call(framework: str, function: Callable[[Any], Any], devices: Sequence[Any]) -> list[Any]:
    """What ``function(device)`` gives in a rank for each of the devices.

    Args:
        framework: whose ranks they are, for the error.
        function: has to be importable there, with what it is given.
        devices: one for each rank.

    Raises:
        ReplicaError: a rank failed, with what it said.
    """
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        (Path(folder) / "call").write_bytes(cloudpickle.dumps((function, list(devices))))
        command = [str(paths.MPIEXEC), "-prepend-rank"]
        command += ["-n", str(len(devices)), sys.executable, "-m", "mpi4py", "-c", _RANK, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise replicas.ReplicaError(f"a rank of {framework} failed:\n{done.stderr}")
        answers = (Path(folder) / str(rank) for rank in range(len(devices)))
        return [cloudpickle.loads(answer.read_bytes()) for answer in answers]


def _answer() -> None:
    """In a rank: call the function of :func:`call`, and write its result to the same folder."""
    from mpi4py import MPI  # joins MPI when it is imported, so by a rank alone

    folder, rank = Path(sys.argv[-1]), MPI.COMM_WORLD.rank
    function, devices = cloudpickle.loads((folder / "call").read_bytes())
    (folder / str(rank)).write_bytes(cloudpickle.dumps(function(devices[rank])))
