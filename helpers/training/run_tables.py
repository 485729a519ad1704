"""Format tables for a notebook: a missing value is a dash or left out, and never NaN."""

import pandas as pd

MISSING = "-"
IN_WORDS = {
    "valid_auc": "the AUC of the validation images (valid_auc)",
    "valid_top5": "the validation images with their class among the first five (valid_top5)",
}
"""What a column's name means, of those that a machine or a recipe may not have."""


def shown(table: pd.DataFrame, digits: int) -> pd.DataFrame:
    """The table, rounded, with a dash where a value is missing.

    A column without any value is left out, and a printed line names it.
    """
    empty = [str(name) for name in table.columns if table[name].isna().all()]
    if empty:
        print(f"Not measured here: {', '.join(IN_WORDS.get(name, name) for name in empty)}.")
    found = table.drop(columns=empty).round(digits)
    for name in found.columns[found.isna().any()]:
        found[name] = [_text(value, digits) for value in found[name]]
    return found


def _text(value: object, digits: int) -> str:
    if pd.isna(value):  # type: ignore[call-overload]
        return MISSING
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
