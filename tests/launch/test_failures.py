"""Which of several failures was the first."""

from typing import Any

import pytest

from helpers.errors import UserError
from helpers.launch import failures


def told(capfd: pytest.CaptureFixture[str], *errors: tuple[int, BaseException]) -> list[Any]:
    """What the runner hears when ranks end one after the other."""
    for rank, error in errors:
        failures.tell_why(rank, "b", error)
    found = map(failures.heard, capfd.readouterr().err.splitlines())
    return [said for said in found if said][::-1]


def test_the_earliest_error_counts(capfd: pytest.CaptureFixture[str]) -> None:
    assert failures.earliest([]) is None
    errors = (3, ValueError("no such file\nas was said")), (0, RuntimeError("Connection closed"))
    found = failures.earliest(told(capfd, *errors))
    assert str(found) == "rank 3 on b: ValueError: no such file"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (-9, "killed (signal 9; out of memory?)"),
        (-11, "killed (signal 11)"),
        (3, "ended with exit code 3"),
    ],
)
def test_the_first_that_ended_without_a_word_counts_before_those_that_noticed(
    code: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    noticed = told(capfd, (0, RuntimeError("Connection closed by peer")))
    ends = [{"rank": 2, "host": "b", "ended": failures.how(code)}]
    ends.append({"rank": 1, "host": "b", "ended": failures.how(-9)})
    assert str(failures.earliest([*noticed, *ends])) == f"rank 2 on b: {said}"


def test_what_a_user_can_put_right_is_every_ranks(capfd: pytest.CaptureFixture[str]) -> None:
    found = failures.earliest(told(capfd, (1, UserError("9 images"))))
    assert found is not None and (str(found), found.ename) == ("9 images", "UserError")
