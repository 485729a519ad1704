"""A plugin of pytest for tests that ranks run: each runs the same, as it runs the same notebook.

A file with such tests, marked ``on_ranks``, has one that is not, which starts the ranks
(``ranks_tools.run_tests``).
"""

import os
import re
from pathlib import Path

import pytest

from helpers.frameworks import rank_info


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest) -> Path:
    """All ranks have the same folder."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = Path(os.environ[rank_info.VARIABLE]) / name
    folder.mkdir(exist_ok=True)
    return folder
