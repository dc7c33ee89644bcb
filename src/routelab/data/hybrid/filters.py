"""Why a single target does not belong in a hybrid corpus."""

from __future__ import annotations

from collections.abc import Callable

from routelab.data.hybrid.config import HybridConfig
from routelab.data.hybrid.targets import CLOSE, OPEN, Target
from routelab.data.reflection import ReflectiveWords

Check = Callable[[Target], bool]


def reason_to_drop(
    target: Target,
    config: HybridConfig,
    words: ReflectiveWords,
    check: Check | None,
    measure: Callable[[str], int],
) -> str | None:
    """Return the first reason to leave ``target`` out, or None; the costly check of its answer comes last."""
    if target.asked not in (None, target.mode):
        return "contradicts_word"
    if not target.answer.strip():
        return "no_answer"
    if any(tag in text for tag in (OPEN, CLOSE) for text in (target.thought, target.answer)):
        return "tags"
    limit = config.limit(target.domain, target.mode)
    if limit is not None and measure(target.reply) > limit:
        return "too_long"
    if target.mode == "no_think" and words.count(target.answer):
        return "reflective"
    if check is None:
        return None
    if target.gold is None:
        return "no_gold" if config.unverified == "drop" else None
    return None if check(target) else "wrong_answer"
