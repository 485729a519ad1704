"""Two mean AUCs on the same test images, from records alone."""

from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pytest
import records

from data_prep import FINDINGS
from helpers import record
from helpers.frameworks import ROWS
from helpers.results import comparison, paired_test
from helpers.results.comparison import Comparison


def images_of(patients: int = 150, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Images of patients, and how easy each is: the same for whoever looks at it."""
    random = np.random.default_rng(seed)
    of = np.repeat(np.arange(patients), random.integers(1, 6, patients))
    split = pd.DataFrame(random.random((len(of), 14)) < 0.2, columns=list(FINDINGS), dtype=np.uint8)
    split.insert(0, "group", of)
    split.insert(0, "image", [f"{seed}-{number}.png" for number in range(len(of))])
    return split, random.normal(size=(patients, 14))[of]


def scored(
    split: pd.DataFrame, shared: np.ndarray, skill: float, seed: int, own: float = 0.4
) -> dict[str, Any]:
    """The section ``test`` of a network with this ``skill`` that errs much as the others do."""
    noise = own * np.random.default_rng(seed).normal(size=shared.shape)
    scores = skill * split[list(FINDINGS)].to_numpy() + shared + noise
    result = records.evaluate_findings(split, scores)
    return record.plain(result | {"loss": 0.2, "seconds": 1.0})  # type: ignore[no-any-return]


def batch(folder: Path, **sections: dict[str, Any]) -> Comparison:
    for framework, section in sections.items():
        records.save(folder, records.make(framework, test=section))
    return comparison.load(folder)


def test_of_two_runs_the_reference_is_the_lower_and_of_three_the_middle(tmp_path: Path) -> None:
    split, shared = images_of(60)
    two = {"PyTorch": scored(split, shared, 1.0, 1), "Keras": scored(split, shared, 0.5, 2)}
    assert paired_test.reference(batch(tmp_path / "2", **two)) == "Keras, 2 devices"
    three = batch(tmp_path / "4", **two, Chainer=scored(split, shared, 0.8, 4))
    assert paired_test.reference(three) == "Chainer, 2 devices"
    other, luck = images_of(60, seed=1)
    apart = batch(tmp_path / "3", **two, TensorFlow=scored(other, luck, 1.0, 3))
    found = paired_test.differences(apart).loc["TensorFlow, 2 devices"]
    assert found["verdict"] == "cannot be paired: other test images"
    assert np.isnan(found["difference"])


def test_what_single_intervals_cannot_tell_the_paired_difference_can(tmp_path: Path) -> None:
    split, shared = images_of()
    families = list(dict.fromkeys(row.family for row in ROWS))[:5]
    skills = dict(zip(families, (1.0, 1.0, 1.1, 0.9, 1.02), strict=True))
    tests = {
        name: scored(split, shared, skill, seed)
        for seed, (name, skill) in enumerate(skills.items(), start=1)
    }
    compared = batch(tmp_path, **tests)
    found = paired_test.differences(compared)
    base = found["reference"].iloc[0]
    assert base not in ("TensorFlow, 2 devices", "MXNet, 2 devices")  # neither best nor worst
    verdicts = found["verdict"].to_dict()
    assert verdicts.pop(base) == "the reference"
    assert verdicts.pop("TensorFlow, 2 devices") == "higher"
    assert verdicts.pop("MXNet, 2 devices") == "lower"
    # Their own intervals overlap all the while.
    middle = tests[base.partition(",")[0]]
    assert tests["TensorFlow"]["mean_low"] < middle["mean_high"]
    assert tests["MXNet"]["mean_high"] > middle["mean_low"]
    said = paired_test.sentence(compared)
    assert f"higher than {base}: TensorFlow, 2 devices; lower than {base}: MXNet, 2" in said


def test_many_rows_are_told_apart_no_oftener_than_one(tmp_path: Path) -> None:
    split, shared = images_of(80)
    tests = {f"Framework {i}": scored(split, shared, 1.0, i) for i in range(12)}
    for count in (2, 12):
        some = {f"Framework {i}": tests[f"Framework {i}"] for i in range(count)}
        found = paired_test.differences(batch(tmp_path / str(count), **some))
        base = found["reference"].iloc[0].partition(",")[0]
        for run, row in found.dropna(subset="low").iterrows():
            rival = str(run).partition(",")[0]
            width = _width(tests[rival], tests[base], 0.05 / (count - 1))
            assert row["high"] - row["low"] == pytest.approx(width)


def _width(one: dict[str, Any], other: dict[str, Any], out: float) -> float:
    apart = np.array(one["resamples"]) - np.array(other["resamples"])
    return 2 * NormalDist().inv_cdf(1 - out / 2) * float(np.std(apart, ddof=1))


@pytest.mark.parametrize("verdict", ["fail", "different"])
def test_a_run_that_failed_its_check_is_no_reference(verdict: str, tmp_path: Path) -> None:
    split, shared = images_of(60)
    tests = {name: scored(split, shared, 1.0, seed) for seed, name in enumerate(("Keras", "JAX"))}
    row = {"check": "x", "difference": 1.0, "threshold": 0.0, "verdict": verdict, "reason": None}
    wrong = {"comparable": False, "checks": [row]}
    middle = scored(split, shared, 0.97, 5)
    records.save(tmp_path, records.make("PyTorch", test=middle, fairness=wrong))
    compared = batch(tmp_path, **tests)
    assert paired_test.reference(compared) in ("Keras, 2 devices", "JAX, 2 devices")


def test_nothing_to_pair_is_no_sentence(tmp_path: Path) -> None:
    assert paired_test.sentence(comparison.load(tmp_path)) == ""
    assert paired_test.sentence(records.load(tmp_path / "one", records.make())) == ""
    keras = records.make("Keras")
    keras["test"]["sample"] = "b" * 32
    assert paired_test.sentence(records.load(tmp_path / "one", keras)) == ""


def test_with_several_seeds_the_range_over_runs_counts(tmp_path: Path) -> None:
    """Three seeds, three test splits: each pair differs by itself, together they do not."""
    for seed, gap in enumerate((0.04, -0.03, 0.03)):
        for framework, auc in (("PyTorch", 0.75), ("Keras", 0.75 + gap), ("Chainer", 0.70)):
            content = records.make(framework, auc=auc)
            content["test"]["sample"] = f"{seed}" * 32
            records.save(tmp_path / str(seed), content)
    alone = paired_test.differences(comparison.load(tmp_path / "0"))
    assert alone.loc["Keras, 2 devices", "verdict"] == "higher"
    assert alone.loc["Keras, 2 devices", ["low", "high"]].tolist() == pytest.approx([0.04, 0.04])
    together = paired_test.differences(comparison.load([tmp_path / str(seed) for seed in range(3)]))
    keras = together.loc["Keras, 2 devices"]
    assert (keras["pairs"], keras["verdict"]) == (3, paired_test.ALIKE)
    # Student's t with two degrees of freedom, at 95 % for two rows: 6.205 standard errors.
    half = 6.205347 * np.std([0.04, -0.03, 0.03], ddof=1) / np.sqrt(3)
    assert keras["high"] - keras["low"] == pytest.approx(2 * half, rel=1e-4)
    assert together.loc["Chainer, 2 devices", "verdict"] == "lower"
