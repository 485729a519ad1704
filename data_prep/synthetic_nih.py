"""Generate synthetic X-ray-like images in the layout of the NIH's ChestX-ray14.

The labels have the NIH's combinations (see `nih_counts.json`), and patients have as many images as
the NIH's. Each finding is in at least one image in twenty (`MIN_FREQUENCY`), or the AUC of a small
set would depend on a single image. Some findings are easy to learn (Infiltration, Pneumothorax,
Edema), some hard (Cardiomegaly, Mass, Nodule).

A share of the labels is wrong on purpose (`MISSED_SHARE`, `UNLABELLED_SHARE`), as in the NIH's set,
where a program extracted the labels from reports. Therefore no model can reach an AUC of 1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.files import write_atomic
from data_prep.png import encode_png
from data_prep.readers.nih import FINDINGS, NO_FINDING, finding_sets, published_counts
from data_prep.synthetic_folder import check_numbers, write_synthetic_folder
from data_prep.synthetic_xray import random_anatomy, render_xray

#: The number changes if the same seed would give other images.
VERSION = 2
LABEL_FILE = "Data_Entry_2017.csv"

#: Tool name in demo.json.
TOOL = f"data_prep demo {VERSION}"

#: The header as the NIH writes it: two names contain a comma, so nine names make eleven columns.
HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)

#: Minimum share of images with a finding, for every finding.
MIN_FREQUENCY = 1 / 20
#: Share of labelled findings that are not in the image.
MISSED_SHARE = 0.06
#: Share of images that show a finding without the label, relative to the finding's frequency.
UNLABELLED_SHARE = 0.05
#: Maximum per patient; the NIH's patients have up to 184, too many for a small set.
MAX_IMAGES_PER_PATIENT = 20

#: One image to generate: its path, patient, follow-up, findings.
Job = tuple[str, int, int, tuple[str, ...]]


def generate_nih(
    folder: str | os.PathLike[str],
    *,
    images: int = 1600,
    seed: int = 0,
    size: int = 1024,
    **how: Any,
) -> dict[str, Any]:
    """Generate X-ray-like images with synthetic findings, in the NIH's format.

    The same images, seed and size give the same bytes. An interrupted call continues. The label
    file is written last, so a folder with a label file is complete.

    Args:
        folder: a new or empty folder, or the folder of an interrupted call.
        images: number of images.
        seed: of the random generator.
        size: side length in pixels.
        how: `num_workers` (default: one per CPU core) and `progress`, whether to show a bar.

    Returns:
        A dictionary of `images`, `patients`, `seed`, `size`, `written`, `skipped` and `seconds`.

    Raises:
        DataError: a number is out of range, the folder contains other files, or the disk is full.
    """
    folder = Path(folder)
    check_numbers(images, size, seed)
    jobs, table = assign_findings(images, seed)
    settings = {"tool": TOOL, "images": images, "seed": seed, "size": size}
    work = partial(_write_image, folder=os.fspath(folder), seed=seed, size=size)
    last = {LABEL_FILE: table.encode()}
    by_path = {job[0]: job for job in jobs}
    made = write_synthetic_folder(folder, settings, by_path, work, last, **how)
    patients = len({patient for _, patient, _, _ in jobs})
    return {**made, "patients": patients, "skipped": images - made["written"]}


def _write_image(job: Job, *, folder: str, seed: int, size: int) -> None:
    path, patient, followup, findings = job
    data = encode_png(generate_xray(seed, patient, followup, findings, size), is_noisy=True)
    write_atomic(os.path.join(folder, path), data)  # noqa: PTH118


def generate_xray(
    seed: int, patient: int, followup: int, findings: Sequence[str], size: int = 1024
) -> np.ndarray:
    """Generate one image, uint8 of shape (size, size); it depends on the arguments only."""
    body = random_anatomy(_generator(seed, patient, 0))
    rng = _generator(seed, patient, followup + 1)
    return render_xray(body, _planted(findings, rng), rng, size)


def _planted(findings: Sequence[str], rng: np.random.Generator) -> dict[str, float]:
    """Return the strength of each finding that the image really shows."""
    shares = frequencies()
    planted = {}
    for finding in FINDINGS:
        chance, power = rng.random(), float(np.clip(rng.normal(1.0, 0.25), 0.4, 1.6))
        share = UNLABELLED_SHARE * shares[finding]
        present = chance >= MISSED_SHARE if finding in findings else chance < share
        if present:
            planted[finding] = power
    return planted


@cache
def finding_set_weights() -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return the NIH's sets of findings, each with its relative weight in the synthetic set.

    All sets with a finding rarer than `MIN_FREQUENCY` are multiplied by one factor. Other findings
    in them become more frequent too, so the loop repeats until every finding is frequent enough.
    """
    sets = [(findings, float(count)) for findings, count in finding_sets()]
    while rare := {f: share for f, share in _shares(sets).items() if share < 0.999 * MIN_FREQUENCY}:
        finding, share = min(rare.items(), key=itemgetter(1))
        factor = MIN_FREQUENCY / (1 - MIN_FREQUENCY) / (share / (1 - share))
        sets = [(each, count * factor if finding in each else count) for each, count in sets]
    # Integers, because the last digit of a sum of fractions depends on the machine.
    return tuple((findings, round(100 * count)) for findings, count in sets)


@cache
def frequencies() -> dict[str, float]:
    """Return the share of synthetic images with each finding, for any number of images."""
    return _shares(finding_set_weights())


def _shares(sets: Sequence[tuple[tuple[str, ...], float]]) -> dict[str, float]:
    of = sum(count for _, count in sets)
    return {f: sum(count for findings, count in sets if f in findings) / of for f in FINDINGS}


def assign_findings(images: int, seed: int) -> tuple[list[Job], str]:
    """Assign images and findings to patients; return the jobs and the label file's text."""
    rng = _generator(seed, 0, 0)
    sets, counts = zip(*finding_set_weights(), strict=True)
    picked = [sets[at] for at in _in_proportion(counts, images)]
    order = rng.permutation(images)
    sizes = _patient_sizes(images, rng)
    jobs: list[Job] = []
    lines = [HEADER]
    for patient, follow_ups in enumerate(sizes, start=1):
        age, sex = int(np.clip(rng.normal(48, 17), 1, 94)), "M" if rng.random() < 0.565 else "F"
        for followup in range(follow_ups):
            findings = picked[order[len(jobs)]]
            name = f"{patient:08d}_{followup:03d}.png"
            jobs.append((f"images/{name}", patient, followup, findings))
            wide = rng.random() < 0.5
            original = "2992,2991" if wide else "2500,2048"
            spacing = "0.143,0.143" if wide else "0.168,0.168"
            view = "PA" if rng.random() < 0.6 else "AP"
            lines.append(
                f"{name},{'|'.join(sorted(findings)) or NO_FINDING},{followup},{patient},"
                f"{min(age + followup // 3, 95)},{sex},{view},{original},{spacing}"
            )
    return jobs, "\n".join(lines) + "\n"


def _in_proportion(counts: Sequence[int], draws: int) -> list[int]:
    """Return `draws` indices with frequencies in proportion to the counts, evenly spaced."""
    edges = np.cumsum(counts)
    places = (np.arange(draws) + 0.5) * (edges[-1] / draws)
    return [int(at) for at in np.searchsorted(edges, places, side="right")]


def _patient_sizes(images: int, rng: np.random.Generator) -> list[int]:
    """Return numbers of images per patient, in the NIH's proportions, with the sum `images`."""
    known = {int(size): int(n) for size, n in published_counts()["images_per_patient"].items()}
    known = {size: n for size, n in known.items() if size <= MAX_IMAGES_PER_PATIENT}
    sizes, weights = list(known), np.array(list(known.values()), dtype=float)
    drawn: list[int] = []
    while (left := images - sum(drawn)) > 0:
        drawn.append(min(left, sizes[int(rng.choice(len(sizes), p=weights / weights.sum()))]))
    return drawn


def _generator(seed: int, patient: int, what: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, patient, what, 1])))
