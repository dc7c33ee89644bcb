"""Exact match and token F1 of short answers, as SQuAD scores them.

Source: SQuAD's normalisation (arXiv 1606.05250, section 6.1); HotpotQA and 2WikiMultiHopQA use the same.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
#: Answers that are right or wrong as a whole: sharing a word with them earns nothing (HotpotQA's rule).
_WHOLE = frozenset({"yes", "no", "noanswer"})


def normalised(answer: str) -> str:
    """Return ``answer`` in lower case, without punctuation and articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, gold: Sequence[str]) -> bool:
    """Return whether ``answer`` equals one of the answers in ``gold`` after normalisation."""
    return normalised(answer) in {normalised(one) for one in gold}


def token_f1(answer: str, gold: Sequence[str]) -> float:
    """Return the best ``2PR / (P + R)`` over ``gold``, with P and R the shares of common tokens in either.

    0 where only one of the two is yes, no or noanswer.
    """
    return max(_f1(normalised(answer), normalised(one)) for one in gold)


def _f1(answer: str, gold: str) -> float:
    if answer == gold:
        return 1.0
    if {answer, gold} & _WHOLE:
        return 0.0
    said, wanted = answer.split(), gold.split()
    common = sum((Counter(said) & Counter(wanted)).values())
    return 2 * common / (len(said) + len(wanted)) if common else 0.0
