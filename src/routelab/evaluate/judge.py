"""A model as judge of leakage, and how far it agrees with the count of reflective words (arXiv 2604.27201, A.4).

Off unless you call :func:`judge_answers` with an endpoint; only questions and answers are sent, one answer a request.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

from routelab.errors import EvaluationError
from routelab.evaluate.endpoint import ChatEndpoint
from routelab.evaluate.evaluation import Record

Verdict = Literal["none", "implicit", "explicit"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

REQUEST = """\
You judge how an answer was given, not whether it is right. Classify the reasoning that the answer shows:
- none: a direct answer. A worked solution or explanation that goes straight to its end counts as direct.
- implicit: it deliberates as it goes (doubts, re-checks, changes its mind), but not in a separate part.
- explicit: it has a separate part of reasoning, such as text inside <think> tags, before the answer.
End with one line: VERDICT: none, VERDICT: implicit or VERDICT: explicit."""

#: Characters of an answer that are shown; of a longer one, the first and last halves of it.
SHOWN = 24_000
_VERDICT = re.compile(r"\bverdict\b\W*(none|implicit|explicit)\b", re.IGNORECASE)


def judge_answers(
    endpoint: ChatEndpoint, records: Sequence[Record], *, on_progress: Callable[[int, int], None] | None = None
) -> list[Record]:
    """Ask ``endpoint`` for a verdict on every record's ``prompt`` and ``output``; return records with ``verdict``.

    Raises:
        EvaluationError: a record without text (those of private tasks have none), an endpoint that fails, or a reply
            without a verdict.
    """
    for number, record in enumerate(records):
        if not {"prompt", "output"} <= record.keys():
            raise EvaluationError(f"record {number} ({record.get('id')!r}) has no text to judge")
    judged = []
    for number, record in enumerate(records, start=1):
        judged.append({**record, "verdict": read_verdict(endpoint.reply(judging_prompt(record)))})
        if on_progress is not None:
            on_progress(number, len(records))
    return judged


def judging_prompt(record: Mapping[str, str]) -> list[Mapping[str, str]]:
    """Return the messages that ask for a verdict."""
    told = f"Question:\n{_shortened(record['prompt'])}\n\nAnswer:\n{_shortened(record['output'])}"
    return [{"role": "system", "content": REQUEST}, {"role": "user", "content": told}]


def read_verdict(reply: str) -> Verdict:
    """Return the last verdict in a judge's reply; a reply that is a single word may be the verdict itself.

    Raises:
        EvaluationError: there is none.
    """
    said = _VERDICT.findall(reply) or re.findall(r"\A\W*(none|implicit|explicit)\W*\Z", reply, re.IGNORECASE)
    for verdict in VERDICTS:
        if said and said[-1].lower() == verdict:
            return verdict
    raise EvaluationError(f"the judge gave no verdict ({', '.join(VERDICTS)}): {reply[-200:]!r}")


def agreement(records: Sequence[Record], mode: str, *, high: int = 1) -> Record:
    """Return how far the judge and the count of reflective words agree on the answers of one mode.

    An answer is *counted* if it holds at least ``high`` reflective words, and *judged* if the verdict is the mode's
    thinking: in no_think anything but none, in think ``explicit`` (appendix A.4 asks for many words there: raise
    ``high``).

    Returns:
        ``table``: answers by verdict, counted and not; ``judged_of_counted``: the paper's direction;
        ``counted_of_judged``: the other one; ``agree``: the share on which both say the same. None for the share of
        nothing.

    Raises:
        EvaluationError: an unknown mode, or a record that is not both measured and judged.
    """
    if mode not in ("think", "no_think"):
        raise EvaluationError(f"a mode is 'think' or 'no_think', not {mode!r}")
    if high < 1:
        raise EvaluationError(f"an answer is counted from at least one reflective word on, got {high}")
    pairs = _pairs(records)
    thinking = ("explicit",) if mode == "think" else ("implicit", "explicit")
    counted = [count >= high for count, _ in pairs]
    judged = [verdict in thinking for _, verdict in pairs]
    both = sum(c and j for c, j in zip(counted, judged, strict=True))
    table = Counter((verdict, count >= high) for count, verdict in pairs)
    return {
        "n": len(pairs),
        "table": {v: {"counted": table[v, True], "not_counted": table[v, False]} for v in VERDICTS},
        "judged_of_counted": _share(both, sum(counted)),
        "counted_of_judged": _share(both, sum(judged)),
        "agree": _share(sum(c == j for c, j in zip(counted, judged, strict=True)), len(pairs)),
    }


def true_negative_control(records: Sequence[Record]) -> Record:
    """Return what both measures say of answers that are direct beyond doubt, as of a model that cannot think.

    ``silent``: the share without a reflective word; ``judged_none``; ``both``. All should be 1 (paper, table 7).
    """
    pairs = _pairs(records)
    silent = [count == 0 for count, _ in pairs]
    none = [verdict == "none" for _, verdict in pairs]
    return {
        "n": len(pairs),
        "silent": _share(sum(silent), len(pairs)),
        "judged_none": _share(sum(none), len(pairs)),
        "both": _share(sum(s and n for s, n in zip(silent, none, strict=True)), len(pairs)),
    }


def _pairs(records: Sequence[Record]) -> list[tuple[int, str]]:
    for number, record in enumerate(records):
        missing = [name for name in ("reflective", "verdict") if name not in record]
        if missing:
            raise EvaluationError(
                f"record {number} ({record.get('id')!r}) lacks {', '.join(missing)}; measure and judge it"
            )
    return [(record["reflective"], record["verdict"]) for record in records]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _shortened(text: str) -> str:
    if len(text) <= SHOWN:
        return text
    half = SHOWN // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
