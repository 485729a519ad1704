"""Evaluate a trained network by its task's metric, after an epoch or on the test part."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from helpers.record.tasks import MULTICLASS, MULTILABEL
from helpers.training import accuracy, roc_auc

MODULES: dict[str, ModuleType] = {MULTILABEL.name: roc_auc, MULTICLASS.name: accuracy}
"""What measures each task; with the same functions in each."""

Evaluation = roc_auc.Evaluation | accuracy.Evaluation


def of_epoch(task: str, targets: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """An epoch's validation, by the record's fields; NaN for what cannot be computed.

    Args:
        task: ``multilabel`` or ``multiclass``.
        targets: as in :func:`evaluate`.
        scores: (images, outputs).

    Raises:
        ValueError: the shapes do not fit, or a score is NaN or infinite.
    """
    found: dict[str, float] = MODULES[task].of_epoch(targets, scores)
    return found


def evaluate(
    task: str,
    targets: np.ndarray,
    scores: np.ndarray,
    *,
    groups: Sequence[Any],
    names: Sequence[str],
    sample: Any,
) -> Evaluation:
    """What the logits of the test part come to, with intervals over groups.

    Args:
        task: ``multilabel`` or ``multiclass``.
        targets: of findings (images, findings), 0 or 1; of classes (images,), each image's class.
        scores: (images, outputs).
        groups: which each image is of, as a patient's.
        names: of the outputs.
        sample: a hash of which images these are (``run_identity.images``), to be updated.

    Raises:
        ValueError: the shapes do not fit, or a score is NaN or infinite.
    """
    found: Evaluation = MODULES[task].evaluate(targets, scores, groups, names, sample)
    return found
