"""Most tests of the report read its words: there each chart is drawn once, not for a phone too."""

from collections.abc import Iterator

import pytest
from markupsafe import Markup

from helpers.results.charts import Chart
from helpers.results.report import page, svg

BOTH_WIDTHS = ("test_report_browser", "test_strange_records")


@pytest.fixture(autouse=True, scope="module")
def _one_width(request: pytest.FixtureRequest) -> Iterator[None]:
    def drawn(chart: Chart) -> dict[str, Markup]:
        return dict.fromkeys(("wide", "narrow"), svg.inline(chart.figure(page.WIDE), chart.name))

    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__.rpartition(".")[2] not in BOTH_WIDTHS:
            patch.setattr(page, "_drawn", drawn)
        yield
