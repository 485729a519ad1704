"""These callbacks mark phases in Keras, Lightning and Hugging Face training loops.

>>> model.fit(data, callbacks=[gpumon.callbacks.Keras(monitor)])
>>> lightning.Trainer(callbacks=[gpumon.callbacks.Lightning(monitor)])
>>> transformers.Trainer(model, callbacks=[gpumon.callbacks.HuggingFace(monitor)])

Each marks ``train`` and ``validate`` (and Keras' ``predict``), with the epoch. None imports the
framework: it has the methods that the framework calls, and those that it may call do nothing.
"""

from __future__ import annotations

from typing import Any

from gpumon.monitor import Monitor
from gpumon.phases import Marker, Phase


class _Phases:
    """Opens and closes phases by name, whatever order the framework calls in."""

    def __init__(self, monitor: Monitor | Marker) -> None:
        self.monitor = monitor
        self._open: dict[str, Phase] = {}

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
        # Hooks that need no action, also those of later versions of a framework.
        if name.startswith(("on_", "set_")):
            return _nothing
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        return {"monitor": self.monitor, "_open": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _nothing(*_: Any, **__: Any) -> None:
    pass


class Keras(_Phases):
    """For ``fit``, ``evaluate`` and ``predict``. Validation within an epoch nests in ``train``."""

    def on_train_begin(self, logs: Any = None) -> None:
        self._end("validate", "train")  # what an interrupt or a failure left open

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._end("validate")
        self._begin("train", epoch=epoch + 1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._end("validate", "train")

    def on_train_end(self, logs: Any = None) -> None:
        self._end("validate", "train")

    def on_test_begin(self, logs: Any = None) -> None:
        self._begin("validate")

    def on_test_end(self, logs: Any = None) -> None:
        self._end("validate")

    def on_predict_begin(self, logs: Any = None) -> None:
        self._begin("predict")

    def on_predict_end(self, logs: Any = None) -> None:
        self._end("predict")


class Lightning(_Phases):
    """For Lightning's Trainer. Its check of the validation before training is ``validate`` too."""

    @property
    def state_key(self) -> str:
        return "gpumon"

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        pass

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._end("validate", "test", "predict", "train")

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin("train", epoch=trainer.current_epoch + 1)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._end("train")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin("validate")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._end("validate")

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin("test")

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        self._end("test")

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin("predict")

    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        self._end("predict")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end("validate", "test", "predict", "train")


class HuggingFace(_Phases):
    """For the Trainer of ``transformers``. It reports no start of an evaluation, only its steps.

    What ``predict`` does is therefore ``validate`` too.
    """

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._end("validate")
        self._begin("train", epoch=int(state.epoch or 0) + 1)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._end("validate", "train")

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._end("validate")

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if "validate" not in self._open:
            self._begin("validate")

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._end("validate")

    def on_predict(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._end("validate")

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._end("validate", "train")
