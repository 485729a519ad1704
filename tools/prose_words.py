"""The words and openings of sentences that have a better one (docs/glossary.md has the words)."""

import re

EVERYWHERE = {  # in names and code too: tests/docs/test_vocabulary.py
    r"(?<!TLS )(?<!ca-)certificates?": "fairness check",
    r"roll[ -]calls?": "data-coverage check",
    r"lessons?": "the notebook's functions",
    r"luggage": "payload",
    r"lopsided": "imbalanced",
    r"learning factor|hardware factor": "statistical efficiency, hardware efficiency",
    r"told apart": "distinguished, significantly different",
    r"nobody|somebody|everybody|anybody|strangers?": "another user, no process, all ranks",
    r"held against": "compared with, checked against",
    r"gone? on with|goes on|begun again": "continues, resumes, restarts",
    r"the least and the most": "minimum and maximum",
    r"mended": "fixed",
    r"(?<!pillow-)stand-ins?": "fake, mock",
    r"of (?:one's|somebody's) own": "your, custom",
    r"batch(?:es)? of runs": "experiment",
    r"virtual nodes?": "simulated node",
    r"make probe": "rosetta doctor",
}
"""Each word as a pattern, and what to write instead (docs/glossary.md)."""

IN_PROSE = {
    r"tell \w+ apart|tells? apart": "distinguish",
    r"ranks? (?:nothing|nobody)": "is not ranked",
    r"(?:is|are) (?:said|told) (?:in|by|there|here)": "see, is described in",
    r"(?:says|say|said|tells|told) so": "reports THE THING",
    r"stands? (?:in(?! for)|under|above|below|beside|at|there|by)": "is, next to",
    r"(?<!page )(?<!segmentation )faults?": "bug",
    r"taken for|taken by itself": "treated as, used automatically",
    r"of (?:before|today)": "older, current",
    r"no longer|since then|earlier versions?": "describe today only",
    r"(?:of )?the house": "the project's",
    r"made of one machine": "simulated hosts",
    r"one's own|own code": "your, custom code",
    r"starved|hollow": "input-bound, low occupancy",
    r"the probe": "rosetta doctor",
    r"so many": "the same number",
    r"synchronisation (?:share|time)": "communication",
}
"""Words that only a sentence is searched for."""

OPENINGS = {
    r"Of\b": '"Repeats show the median.", not "Of repeats the median is shown."',
    r"Whether\b": '"Run X --check to find out.", not "Whether it works, X says."',
    r"What\b.*\b(?:is|are|was|were|does|has|have|says?|stands?)\b": (
        '"A recipe sets the network.", not "What is trained is said in a recipe."'
    ),
    r"Where\b": '"If none matches, gpumon reports nothing.", not "Where none holds, …"',
    r"(?:Below|Under|Above|Beside|Beneath)\b.*\bstands?\b": (
        '"The chart has a diagnosis below it.", not "Below the chart stands …"'
    ),
}
"""How no sentence begins, as a pattern; questions and headings may."""

ANY = re.compile(rf"\b(?:{'|'.join([*EVERYWHERE, *IN_PROSE])})\b", re.IGNORECASE)


def better(word: str) -> str:
    """What to write instead of a word that ``ANY`` has found."""
    for pattern, instead in {**EVERYWHERE, **IN_PROSE}.items():
        if re.search(rf"\b(?:{re.sub(r'[(][?]<![^)]*[)]', '', pattern)})\b", word, re.IGNORECASE):
            return instead
    raise KeyError(word)
