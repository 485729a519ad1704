"""The page's first screen: what was trained, and the answers as cards with a figure each."""

import re

from helpers.results import conclusions
from helpers.results.comparison import Comparison

_EVIDENCE = {
    "Fastest": "speed",
    "Fair?": "fairness",
    "Waited for": "devices",
    "More devices": "scaling",
}
"""The sections with the evidence for the answers, by their questions."""
_SENTENCE = re.compile(r"(?<=\.)\s+(?=[A-Z0-9])")
_TONES = {"yes": "good", "no": "bad", "only in part": "other"}


def cards(compared: Comparison) -> list[dict[str, str]]:
    """The answers' figures and first sentences; ``more``, the rest, opens their ``section``."""
    found = []
    for answer in conclusions.answers(compared):
        said, *more = _SENTENCE.split(answer.text)
        found.append(
            {
                "question": answer.question,
                "figure": answer.figure or answer.verdict,
                "tone": _TONES.get(answer.verdict, ""),
                "text": said,
                "more": " ".join(more),
                "section": _EVIDENCE[answer.question],
            }
        )
    return found


def about(compared: Comparison) -> list[str]:
    """The settings that all finished runs share, and how many seeds they have."""
    each: dict[str, set[str]] = {}
    for content in (entry.content for entry in compared.finished):
        recipe, data = content["recipe"], content.get("data")
        for name, text in (
            ("recipe", f"recipe {recipe['name']}"),
            ("images", f"{data['images']['train']:,} images for training" if data else ""),
            ("size", f"{recipe['crop']} px"),
            ("epochs", f"{recipe['epochs']} epoch{'s' * (recipe['epochs'] != 1)}"),
            ("precision", str(recipe["precision"])),
            ("seed", f"seed {recipe['seed']}"),
        ):
            each.setdefault(name, set()).add(text)
    seeds = each.pop("seed", set())
    shared = [text for texts in each.values() if len(texts) == 1 for text in texts if text]
    return [*shared, *([f"{len(seeds)} seeds"] if len(seeds) > 1 else [])]
