"""Verdicts at their limits, and what of a fairness check goes into the record and the notebook."""

import math
from dataclasses import replace

import pytest

from helpers.fairness.check_results import Check, FairnessCheck, counted

NAN = math.nan
PASS, KNOWN = Check("a", 1.0, 1.0), Check("b", 2.0, 1.0, "why", rest=0.5)
FAIL, UNCHECKED = Check("c", 2.0, 1.0), Check("d", None, None, "there is one device")


@pytest.mark.parametrize("limit", [0.0, 1e-10, 1e-5, 1e-2])
def test_a_difference_passes_up_to_its_limit_and_not_above(limit: float) -> None:
    above = math.nextafter(limit, math.inf)
    assert Check("", 0.0, limit).verdict == "pass"
    assert Check("", limit, limit).verdict == "pass"
    assert Check("", above, limit).verdict == "fail"
    assert Check("", above, limit, "why", rest=limit).verdict == "expected"
    assert Check("", above, limit, "why", rest=above).verdict == "fail"


@pytest.mark.parametrize(
    ("check", "verdict"),
    [
        (Check("", NAN, 1.0), "fail"),
        (Check("", NAN, 1.0, "why", rest=NAN), "fail"),
        (Check("", 2.0, 1.0, "why", rest=NAN), "fail"),
        (Check("", math.inf, 1.0), "fail"),
        (Check("", 0.5, NAN), "fail"),
        (Check("", 2.0, 1.0, "a reason that predicts nothing"), "fail"),
        (Check("", 0.5, 1.0, "why", rest=2.0), "pass"),
        (Check("", None, 1.0), "not checked"),
        (Check("", 0.0, None), "not checked"),
        (Check("", None, None, "why", rest=0.0), "not checked"),
    ],
)
def test_verdicts(check: Check, verdict: str) -> None:
    assert check.verdict == verdict


def test_one_failed_check_makes_a_run_not_comparable() -> None:
    assert FairnessCheck((PASS, KNOWN, UNCHECKED)).comparable
    assert not FairnessCheck((PASS, FAIL)).comparable
    assert not FairnessCheck((FAIL, PASS)).comparable
    assert FairnessCheck(()).comparable


def test_the_record_has_every_check_with_its_verdict() -> None:
    found = FairnessCheck((KNOWN, FAIL)).as_record()
    checks = found.pop("checks")
    assert found == {"comparable": False}
    assert list(checks[0]) == ["check", "difference", "threshold", "verdict", "reason"]
    assert [list(check.values()) for check in checks] == [
        ["b", 2.0, 1.0, "expected", "why"],
        ["c", 2.0, 1.0, "fail", None],
    ]


def test_the_notebooks_table_has_a_row_a_check_and_no_nan_but_where_one_was_found() -> None:
    found = Check("e", NAN, 1.0)
    table = FairnessCheck((PASS, KNOWN, UNCHECKED, found, Check("f", 0.0, 1e-10))).table()
    assert list(table.columns) == ["difference", "threshold", "verdict", "reason"]
    assert table.index.name == "check" and table.T.to_dict("list") == {
        "a": ["1.0e+00", "1.0e+00", "pass", ""],
        "b": ["2.0e+00", "1.0e+00", "expected difference", "why"],
        "d": ["-", "-", "not checked", "there is one device"],
        "e": ["nan", "1.0e+00", "fail", ""],
        "f": ["0", "1.0e-10", "pass", ""],
    }


def test_rows_found_later_take_the_places_of_those_of_their_names() -> None:
    again, more = Check("d", 0.5, 1.0), Check("g", 0.0, 1.0)
    found = FairnessCheck((PASS, UNCHECKED, KNOWN)).updated([again, more])
    assert found == FairnessCheck((PASS, again, KNOWN, more))
    assert FairnessCheck((PASS,)).updated([]) == FairnessCheck((PASS,))


def test_what_is_trained_differently_is_no_failure_and_not_comparable() -> None:
    other = Check("e", 2.0, 1.0, "why", variant="augmentation (no flip)")
    assert other.verdict == "different"
    assert other.as_record()["variant"] == "augmentation (no flip)"
    assert "variant" not in replace(other, difference=1.0).as_record()
    assert replace(other, rest=1.0).verdict == "expected"
    found = FairnessCheck((PASS, other))
    assert not found.comparable
    assert found.table().loc["e", "reason"] == "augmentation (no flip)"


def test_verdicts_are_counted_the_most_frequent_first() -> None:
    assert counted(["expected", "pass", "pass"]) == "2 pass, 1 expected difference"
    assert counted(["expected", "expected"]) == "2 expected differences"
