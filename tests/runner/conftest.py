"""Every test of the runner has the checkout in small."""

from runner_tools import images_fixture, suite_fixture

__all__ = ["images_fixture", "suite_fixture"]
