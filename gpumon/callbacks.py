"""These callbacks mark phases in Keras, Lightning and Hugging Face training loops.

>>> model.fit(data, callbacks=[gpumon.callbacks.Keras(monitor)])
>>> lightning.Trainer(callbacks=[gpumon.callbacks.Lightning(monitor)])
>>> transformers.Trainer(model, callbacks=[gpumon.callbacks.HuggingFace(monitor)])

Each callback marks ``train``, with its epoch, and ``validate``. Keras and Lightning also have
``predict``, and Lightning has ``test``. No callback imports its framework.
"""

from __future__ import annotations

from typing import Any, ClassVar

from gpumon.monitor import Monitor
from gpumon.phases import Marker, Phase

Hooks = dict[str, tuple[tuple[str, ...], str]]


class _Phases:
    """Opens and closes phases at the calls of a framework, whatever order they come in.

    hooks: by the name of a call, the phases that end at it, and the one that begins.
    """

    hooks: ClassVar[Hooks]

    def __init__(self, monitor: Monitor | Marker) -> None:
        self.monitor = monitor
        self._open: dict[str, Phase] = {}

    def _attributes(self, *arguments: Any) -> dict[str, Any]:
        """The attributes of ``train``, by the arguments of its call."""
        raise NotImplementedError

    def _begin(self, name: str, **attributes: Any) -> None:
        self._end(name)
        self._open[name] = self.monitor.phase(name, **attributes)
        self._open[name].__enter__()

    def _end(self, *names: str) -> None:
        for name in names:
            phase = self._open.pop(name, None)
            if phase is not None:
                phase.__exit__(None, None, None)

    def __getattr__(self, name: str) -> Any:
        # Hooks that need no action too, and those of later versions of a framework.
        if not name.startswith(("on_", "set_", "setup", "teardown")):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        ending, beginning = self.hooks.get(name, ((), ""))

        def hook(*arguments: Any, **_: Any) -> None:
            self._end(*ending)
            if beginning:
                own = self._attributes(*arguments) if beginning == "train" else {}
                self._begin(beginning, **own)

        return hook

    def __getstate__(self) -> dict[str, Any]:
        return {"monitor": self.monitor, "_open": {}}


class Keras(_Phases):
    """Mark the phases of ``fit``, ``evaluate`` and ``predict`` in Keras.

    Validation within an epoch is the phase ``train/validate``.

    Args:
        monitor: the Monitor that records, or its Marker.
    """

    hooks: ClassVar[Hooks] = {
        "on_train_begin": (("validate", "train"), ""),  # what an interrupt or a failure left open
        "on_epoch_begin": (("validate",), "train"),
        "on_epoch_end": (("validate", "train"), ""),
        "on_train_end": (("validate", "train"), ""),
        "on_test_begin": ((), "validate"),
        "on_test_end": (("validate",), ""),
        "on_predict_begin": ((), "predict"),
        "on_predict_end": (("predict",), ""),
    }

    def _attributes(self, epoch: int, *_: Any) -> dict[str, Any]:
        return {"epoch": epoch + 1}


class Lightning(_Phases):
    """Mark the phases of Lightning's Trainer.

    The sanity check before training is also marked as ``validate``.

    Args:
        monitor: the Monitor that records, or its Marker.
    """

    hooks: ClassVar[Hooks] = {
        "on_train_epoch_start": ((), "train"),
        "on_train_epoch_end": (("train",), ""),
        "on_validation_start": ((), "validate"),
        "on_validation_end": (("validate",), ""),
        "on_test_start": ((), "test"),
        "on_test_end": (("test",), ""),
        "on_predict_start": ((), "predict"),
        "on_predict_end": (("predict",), ""),
        "on_exception": (("validate", "test", "predict", "train"), ""),
        "teardown": (("validate", "test", "predict", "train"), ""),
    }

    @property
    def state_key(self) -> str:
        return "gpumon"

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass

    def _attributes(self, trainer: Any, *_: Any) -> dict[str, Any]:
        return {"epoch": trainer.current_epoch + 1}


class HuggingFace(_Phases):
    """Mark the phases of the Trainer in Hugging Face's ``transformers``.

    ``predict`` is also marked as ``validate``, because the Trainer reports both in the same way.

    Args:
        monitor: the Monitor that records, or its Marker.
    """

    hooks: ClassVar[Hooks] = {
        "on_epoch_begin": (("validate",), "train"),
        "on_epoch_end": (("validate", "train"), ""),
        "on_step_begin": (("validate",), ""),
        "on_evaluate": (("validate",), ""),
        "on_predict": (("validate",), ""),
        "on_train_end": (("validate", "train"), ""),
    }

    def _attributes(self, arguments: Any, state: Any, *_: Any) -> dict[str, Any]:
        return {"epoch": int(state.epoch or 0) + 1}

    def on_prediction_step(self, *_: Any, **__: Any) -> None:
        if "validate" not in self._open:
            self._begin("validate")
