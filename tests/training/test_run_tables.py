"""A notebook's tables: what has no value is a dash, or left out and named."""

import pandas as pd
import pytest

from helpers.training import run_tables


def test_what_has_no_value_is_a_dash_or_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.DataFrame(
        {
            "phase": ["train", "warm-up"],
            "utilisation (%)": [92.593, 85.5],
            "images": [5120.0, float("nan")],
            "images/s": [244.968, float("nan")],
            "power (W)": [float("nan"), None],
            "slow": [None, "a reason"],
        }
    )
    shown = run_tables.shown(table, 2)
    assert shown.iloc[0].tolist() == ["train", 92.59, "5120", "244.97", "-"]
    assert shown.iloc[1].tolist() == ["warm-up", 85.5, "-", "-", "a reason"]
    assert capsys.readouterr().out == "Not measured here: power (W).\n"
    assert "power (W)" in table and table["images"].isna().any(), "the table itself stays as it is"


def test_what_was_not_measured_is_named_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    run_tables.shown(pd.DataFrame({"loss": [0.5], "valid_auc": [None]}), 2)
    said = "Not measured here: the AUC of the validation images (valid_auc).\n"
    assert capsys.readouterr().out == said


def test_a_table_without_gaps_stays_a_table_of_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run_tables.shown(pd.DataFrame({"auc": [0.7123, 0.5]}), 3)
    assert shown["auc"].tolist() == [0.712, 0.5] and not capsys.readouterr().out
