import pytest

from helpers.attribution import attribute

EPOCHS = [
    {"train_seconds": 100.0, "valid_seconds": 1.0},  # the first, with tracing
    {"train_seconds": 8.0, "valid_seconds": 2.0},
    {"train_seconds": 8.0, "valid_seconds": 2.0},
]


def shares(real: float, synthetic: float, loader: float) -> tuple[dict[str, float], str]:
    found = attribute(EPOCHS, real=real, synthetic=synthetic, loader=loader, devices="4 GPUs")
    assert sum(found["shares"].values()) == pytest.approx(1)
    return found["shares"], found["sentence"]


def test_loader_bound() -> None:
    found, sentence = shares(real=1000, synthetic=2300, loader=1100)
    assert found["validation"] == pytest.approx(0.2)
    assert found["data"] == pytest.approx(0.8 * (1 - 1000 / 2300))
    assert sentence.startswith("The loader is the limit")
    assert "1,100" in sentence and "4 GPUs could take 2,300" in sentence


def test_compute_bound() -> None:
    found, sentence = shares(real=990, synthetic=1000, loader=5000)
    assert found["compute"] > 0.78
    assert sentence.startswith("Compute is the limit")


def test_faster_than_synthetic_is_noise_not_negative_time() -> None:
    assert shares(real=1010, synthetic=1000, loader=5000)[0]["data"] == 0


def test_neither_alone_is_the_limit() -> None:
    assert "hinder each other" in shares(real=500, synthetic=1000, loader=1200)[1]
