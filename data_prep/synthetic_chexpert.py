"""Generate a synthetic data set of X-ray-like images in CheXpert's layout.

A CSV lists the paths, with a column per finding: 1.0, 0.0, -1.0 for an uncertain label, and an
empty cell for a finding that the report does not mention.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from data_prep.files import write_atomic
from data_prep.synthetic_folder import check_numbers, write_synthetic_folder
from data_prep.synthetic_nih import assign_findings, generate_xray

TOOL = "data_prep demo table 1"

#: Five findings of the NIH by CheXpert's names.
CHEXPERT_FINDINGS = {
    "Atelectasis": "Atelectasis",
    "Cardiomegaly": "Cardiomegaly",
    "Consolidation": "Consolidation",
    "Edema": "Edema",
    "Pleural Effusion": "Effusion",
}
HEADER = ["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", "No Finding", *CHEXPERT_FINDINGS]

#: Share of uncertain labels, and share of empty cells among the negative labels.
UNCERTAIN_SHARE, EMPTY_SHARE = 0.05, 0.6

MAPPING = """\
# What the columns of train.csv mean; see docs/table-toml.md.
file = "train.csv"
path = "Path"
group = "Path"
group_pattern = "patient[0-9]+"
findings = ["Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion"]
"""

#: An image to generate: its path, patient, follow-up and findings.
Job = tuple[str, int, int, tuple[str, ...]]


def generate_chexpert(
    folder: str | os.PathLike[str],
    *,
    images: int = 1600,
    seed: int = 0,
    size: int = 320,
    num_workers: int | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Generate `train.csv`, its grey JPEG images and the mapping `table.toml`.

    Images and findings are the same as in `generate_nih`. The same arguments, with the same Pillow,
    give the same bytes. Returns `images`, `seed`, `size`, `written` and `seconds`.
    """
    check_numbers(images, size, seed)
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 4])))
    jobs: dict[str, Job] = {}
    lines = [",".join(HEADER)]
    for _, patient, followup, findings in assign_findings(images, seed)[0]:
        path = f"train/patient{patient:05d}/study{followup + 1}/view1_frontal.jpg"
        jobs[path] = (path, patient, followup, findings)
        cells = ["" if findings else "1.0"]
        for name in CHEXPERT_FINDINGS.values():
            doubt, silence = rng.random(2)
            if doubt < UNCERTAIN_SHARE:
                cells.append("-1.0")
            elif name in findings:
                cells.append("1.0")
            else:
                cells.append("" if silence < EMPTY_SHARE else "0.0")
        lines.append(",".join([path, "Unknown", "0", "Frontal", "PA", *cells]))
    settings = {"tool": TOOL, "format": "table", "images": images, "seed": seed, "size": size}
    return write_synthetic_folder(
        Path(folder),
        settings,
        jobs,
        partial(_write_images, folder=os.fspath(folder), seed=seed, size=size),
        {"table.toml": MAPPING.encode(), "train.csv": ("\n".join(lines) + "\n").encode()},
        num_workers=num_workers,
        progress=progress,
    )


def _write_images(jobs: Sequence[Job], *, folder: str, seed: int, size: int) -> int:
    for path, patient, followup, findings in jobs:
        image = generate_xray(seed, patient, followup, findings, size)
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=90)
        write_atomic(os.path.join(folder, path), buffer.getvalue())  # noqa: PTH118
    return len(jobs)
