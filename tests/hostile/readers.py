"""Tables, class folders and archives made to do harm, or that are not what they say."""

from PIL import Image

from hostile.case import Case, Lay, laid

MAPPING = 'file = "list.csv"\npath = "Path"\ngroup = "Who"\nfindings = ["Mass"]\n'
NAMES = 'file = "list.csv"\npath = "Path"\nlabels = "Labels"\nfindings = ["mass"]\n'


def table(text: str, mapping: str = MAPPING) -> Lay:
    """A folder with this CSV and mapping, and one image `a.png`."""
    return laid(
        "data-prep verify --quick {} --reader table",
        {"a.png": Image.new("RGB", (4, 4)).save, "list.csv": text, "table.toml": mapping},
    )


CASES = [
    Case(
        "table-climbing",
        table("Path,Who,Mass\na.png,1,1\n../a.png,1,0\n"),
        r"line 3, column 'Path'.*not a safe path within",
    ),
    Case(
        "mapping-no-toml",
        table("Path,Who,Mass\na.png,1,1\n", "file = list.csv\n"),
        "table.toml: .*line 1",
    ),
    Case("list-call", table("Path,Labels\na.png,\"[__import__('os')]\"\n", NAMES), "not a list of"),
    Case(
        "cifar-half-an-image",
        laid(
            "data-prep verify --quick {} --reader cifar10",
            {
                "batches.meta.txt": "a\nb\n",
                "data_batch_1.bin": bytes(3000),
                "test_batch.bin": bytes(3073),
            },
        ),
        "not a multiple of 3073",
    ),
]
