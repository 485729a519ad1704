"""After every epoch what is needed to go on from there: weights, optimiser, what was measured.

A checkpoint is in the canonical layout of ``helpers.weights``, in every framework: the weights,
Adam's two moments for each of them and the number of steps. Nothing else goes on from epoch to
epoch, for the order of the images and every crop follow from seed, epoch and image. So a run that
was killed and resumed takes the same steps as one that was not.

The arrays are copied to the host between two epochs; a thread then writes them, under a temporary
name that is renamed, while the next epoch trains.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from helpers import identity
from helpers.errors import UserError
from helpers.record import Run
from helpers.weights import Arrays, under

FILE = "checkpoint.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """Where training begins: after epoch 0 with the initial weights, or after a later one."""

    weights: Arrays
    folder: Path
    about: dict[str, Any]
    """What must be the same for a run to go on: the recipe, and the digest of the images."""
    code: str | None = None
    """Digest of the code that trains now."""
    changed_code: bool = False
    """Whether the epochs that are done were trained by other code."""
    optimizer: Arrays = field(default_factory=dict)
    """What the framework module's ``load_optimizer`` takes; nothing at the beginning."""
    history: list[dict[str, Any]] = field(default_factory=list)
    first_step: float = float("nan")

    @property
    def epoch(self) -> int:
        """Epochs that are done."""
        return len(self.history)

    def as_record(self, seconds: float) -> dict[str, Any]:
        """The record's section ``checkpoint``; ``seconds`` are those of its :class:`Writer`."""
        changed = {"changed_code": True} if self.changed_code else {}
        return {"resumed_after": self.epoch, "seconds": seconds} | changed


class Writer:
    """Writes a run's checkpoints, each in the place of the one before."""

    def __init__(self, begin: Checkpoint) -> None:
        self._path = begin.folder / FILE
        self._about, self._code = begin.about, begin.code
        self._thread: Thread | None = None
        self._error: BaseException | None = None
        self.seconds = 0.0
        """For how long :meth:`save` held training up, all epochs together.

        The copy to the host, which is the caller's, comes before it."""

    def save(
        self,
        history: Sequence[Mapping[str, Any]],
        first_step: float,
        weights: Mapping[str, np.ndarray],
        optimizer: Mapping[str, np.ndarray],
    ) -> None:
        """Write a checkpoint while the caller goes on; the arrays are no longer the caller's."""
        start = time.perf_counter()
        self.close()
        arrays = {f"weights/{name}": array for name, array in weights.items()}
        arrays |= {f"optimizer/{name}": array for name, array in optimizer.items()}
        said: dict[str, Any] = {"about": self._about, "code": self._code}
        said |= {"history": list(history), "first_step": first_step}
        self._thread = Thread(target=self._write, args=(arrays, json.dumps(said)))
        self._thread.start()
        self.seconds += time.perf_counter() - start

    def close(self) -> None:
        """Wait until the last checkpoint is on the disk.

        Raises:
            OSError: it could not be written.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error

    def _write(self, arrays: Arrays, said: str) -> None:
        temporary = self._path.with_name(f".{FILE}.part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            whole = {name: _contiguous(array) for name, array in arrays.items()}
            save_file(whole, temporary, metadata={"said": said})
            temporary.replace(self._path)
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            self._error = error


def begin(run: Run, initial: Arrays, *, resume: bool) -> Checkpoint:
    """Where ``run`` begins: with ``resume`` at the last checkpoint in its folder, else anew.

    Its record says already which recipe, data and code it is of. With other code a run goes on,
    for whoever changes a cell wants to; that is printed and recorded.

    Raises:
        UserError: the checkpoint is damaged, or of another recipe or other images.
    """
    path = run.folder / FILE
    about, code = _about(run.content), identity.of(run.content).get("code")
    start = Checkpoint(initial, run.folder, about, code)
    if not resume:
        path.unlink(missing_ok=True)  # else a later resume would take it for this run's
        return start
    if not path.exists():
        print(
            f"Nothing to resume: no checkpoint in {run.folder}; training starts from the beginning"
        )
        return start
    try:
        with safe_open(path, "numpy") as file:
            said = json.loads(file.metadata()["said"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: not a checkpoint ({error}); remove it, or resume = False"
        ) from None
    differing = sorted(key for key in about if said["about"].get(key) != about[key])
    if differing == [_IMAGES]:
        raise UserError(
            f"{path}: of a run on other images or labels; give it the same data, or remove the file"
        )
    if differing:
        was = ", ".join(f"{key} {said['about'].get(key)}" for key in differing)
        raise UserError(
            f"{path}: of a run with another recipe ({was}); set that again, or remove the file"
        )
    found = replace(
        start,
        weights=under("weights/", arrays),
        optimizer=under("optimizer/", arrays),
        history=said["history"],
        first_step=said["first_step"],
        changed_code=said.get("code") != code,
    )
    print(f"Resumed after epoch {found.epoch} of {about['epochs']}, from {path}")
    if found.changed_code:
        print("The code has changed since: the epochs before and after it are not of one program")
    return found


def remove(folder: Path) -> None:
    """The run is whole, so nothing is left to go on with."""
    (Path(folder) / FILE).unlink(missing_ok=True)


_IMAGES = "images"


def _about(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says that must be the same for a run to go on."""
    return {**content["recipe"], _IMAGES: identity.of(content).get("data")}


def _contiguous(array: np.ndarray) -> np.ndarray:
    # ascontiguousarray would make a vector of a scalar.
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)
