"""The one exception a user is meant to read."""

import sys
from collections.abc import Callable
from functools import wraps

from data_prep.errors import DataError
from gpumon.errors import MonitorError


class UserError(Exception):
    """Something the user can put right: the message says what, where and how to fix it."""


def exits_cleanly(main: Callable[..., int]) -> Callable[..., int]:
    """Turn a user's error into one line on stderr and exit code 2; Ctrl-C into 130."""

    @wraps(main)
    def wrapped(*args: object, **kwargs: object) -> int:
        try:
            return main(*args, **kwargs)
        except (UserError, DataError, MonitorError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("interrupted: what was finished is kept", file=sys.stderr)
            return 130

    return wrapped


class UnsupportedError(UserError):
    """The framework cannot do what was asked for: the run is skipped, it has not failed."""
