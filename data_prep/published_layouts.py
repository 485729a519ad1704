"""The published data sets whose label files `data-prep init` knows by their columns."""

from __future__ import annotations

from typing import Any, NamedTuple


class Layout(NamedTuple):
    """A published data set: the columns of its label file, and the keys of `table.toml`.

    Without `findings` or `class` in the keys, every column that is not in `others` is a finding.
    """

    name: str
    columns: tuple[str, ...]
    keys: dict[str, Any]
    others: tuple[str, ...] = ()
    rgb: bool = False


LAYOUTS = (
    Layout(
        "CheXpert",
        ("Path", "Frontal/Lateral", "No Finding"),
        {"path": "Path", "group": "Path", "group_pattern": "patient[0-9]+"},
        others=("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", "No Finding"),
    ),
    Layout(
        "PadChest",
        ("ImageID", "ImageDir", "PatientID", "Labels"),
        {
            "path": "{ImageDir}/{ImageID}",
            "group": "PatientID",
            "labels": "Labels",
            "findings": [
                "alveolar pattern",
                "atelectasis",
                "cardiomegaly",
                "consolidation",
                "emphysema",
                "hiatal hernia",
                "infiltrates",
                "interstitial pattern",
                "laminar atelectasis",
                "nodule",
                "pleural effusion",
                "pneumonia",
                "pneumothorax",
                "pulmonary fibrosis",
            ],
            "no_finding": ["normal"],
            "handle_unknown": "ignore",
        },
    ),
    Layout(
        "RSNA Pneumonia",
        ("patientId", "x", "y", "width", "height", "Target"),
        {"path": "{patientId}", "findings": ["Target"], "merge_rows": True},
    ),
    Layout(
        "VinDr-CXR",
        ("image_id", "rad_id", "Aortic enlargement", "No finding"),
        {"path": "{image_id}", "merge_rows": True},
        others=("image_id", "rad_id", "No finding"),
    ),
    Layout(
        "VinDr-CXR of Kaggle",
        ("image_id", "class_name", "class_id", "rad_id"),
        {
            "path": "{image_id}",
            "labels": "class_name",
            "findings": [
                "Aortic enlargement",
                "Atelectasis",
                "Calcification",
                "Cardiomegaly",
                "Consolidation",
                "ILD",
                "Infiltration",
                "Lung Opacity",
                "Nodule/Mass",
                "Other lesion",
                "Pleural effusion",
                "Pleural thickening",
                "Pneumothorax",
                "Pulmonary fibrosis",
            ],
            "no_finding": ["No finding"],
            "merge_rows": True,
        },
    ),
    Layout(
        "HAM10000",
        ("lesion_id", "image_id", "dx"),
        {"path": "{image_id}", "group": "lesion_id", "class": "dx"},
        rgb=True,
    ),
    Layout(
        "ISIC 2020",
        ("image_name", "patient_id", "benign_malignant"),
        {"path": "{image_name}", "group": "patient_id", "class": "benign_malignant"},
        rgb=True,
    ),
    Layout(
        "ISIC 2018 or 2019",
        ("image", "MEL", "NV", "BCC"),
        {"path": "{image}"},
        others=("image",),
        rgb=True,
    ),
)
