"""Check the content of a file against its JSON schema before it is used."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from helpers.errors import UserError


def check(schema: Path, content: Any, where: Path | str) -> None:
    """Hold ``content`` against the JSON schema in the file ``schema``.

    Raises:
        UserError: naming the first field that does not fit, or a newer version of the schema.
    """
    validator = _validator(schema)
    from jsonschema.exceptions import best_match

    known = validator.schema["properties"]["schema"]["const"]
    said = content.get("schema") if isinstance(content, Mapping) else None
    if isinstance(said, int) and said > known:
        raise UserError(
            f"{where}: of a newer version of this project (schema {said}, this one reads {known}):"
            " update the checkout"
        )
    error = best_match(validator.iter_errors(content))
    if error is not None:
        field = "/".join(str(part) for part in error.absolute_path) or "(top)"
        raise UserError(f"{where}: field {field} does not fit the schema: {error.message[:200]}")


@cache
def _validator(schema: Path) -> Any:
    from jsonschema import Draft202012Validator  # a second, where JupyterLab is

    return Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
