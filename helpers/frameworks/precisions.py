"""Properties of the recipe's precisions that hold in every framework."""

import os
from collections.abc import Mapping

from helpers.errors import UnsupportedError
from helpers.recipe import PRECISIONS

DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""What a recipe's precision computes convolutions and matrix products in."""

ON_GPUS_ONLY = {"tf32 on CPUs": "TF32 is a mode of NVIDIA's tensor cores"}
"""In every framework's reasons, which :func:`check` looks up."""

LEFT_TO_PYTORCH = {"fp16": "only PyTorch's notebooks scale the loss, without which it is useless"}
"""In the reasons of frameworks that could compute in it."""


def check(precision: str, kind: str, skipped: Mapping[str, str]) -> None:
    """Refuse ``precision`` on devices of ``kind`` where the framework's ``skipped`` has a reason.

    Raises:
        UnsupportedError: with the reason, and the precisions it computes in everywhere.
    """
    capability = "tf32 on CPUs" if precision == "tf32" and kind != "gpu" else precision
    if reason := skipped.get(capability):
        *first, last = [name for name in PRECISIONS if name not in {"tf32", *skipped}]
        others = f"{', '.join(first)} or {last}" if first else last
        raise UnsupportedError(f"precision {precision}: {reason}; use {others}")


WITHOUT_SWITCH = ("chainer", "chainermn", "mxnet")
"""The modules of frameworks with no switch of their own for TF32."""


def allow_tf32(allowed: bool) -> None:
    """For :data:`WITHOUT_SWITCH`: cuDNN rounds convolutions to TF32 by default.

    CuPy does not let cuBLAS round its matrix products unless ``CUPY_TF32`` is set.

    The CUDA libraries read the environment variable once, some of them when they are loaded: this
    has to be called before the framework is imported.
    """
    os.environ["CUPY_TF32"] = str(int(allowed))
    if allowed:
        os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    else:
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"


def tf32_allowed() -> bool:
    """Whether :func:`allow_tf32` has allowed it in this process."""
    return os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
