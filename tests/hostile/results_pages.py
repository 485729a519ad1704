"""Records that are none, alone below a folder of which a results page is asked for."""

from collections.abc import Callable
from pathlib import Path

from hostile.case import Case
from hostile.records import STRANGE, Put

NOT_THERE = {"a folder": "no record.json in it", "a link to itself": "a link, which is not foll"}
LINKS = {name: "a link, which is not followed" for name in STRANGE if name.startswith("a link")}


def below(put: Put) -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        (folder / "from" / "others").mkdir(parents=True)
        put(folder / "from" / "others" / "record.json")
        return ["rosetta", "report", "--results", str(folder)]

    return lay


CASES = [
    Case(f"results page: {name}", below(put), (NOT_THERE | LINKS).get(name, says))
    for name, (put, says) in STRANGE.items()
]
