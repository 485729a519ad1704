"""What evaluates a trained network by its task's metric, after an epoch or on the test part."""

from types import ModuleType

from helpers.record.tasks import MULTICLASS, MULTILABEL
from helpers.training import accuracy, roc_auc

MODULES: dict[str, ModuleType] = {MULTILABEL.name: roc_auc, MULTICLASS.name: accuracy}
"""By the name of a task. Each has ``of_epoch`` and ``evaluate``, with the same arguments."""
