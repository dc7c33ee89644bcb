"""From targets to a hybrid corpus: check, pair, balance, split, and say what was dropped and why."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from routelab.data.hybrid.config import HybridConfig
from routelab.data.hybrid.filters import Check, reason_to_drop
from routelab.data.hybrid.targets import MODES, Mode, Target
from routelab.data.reflection import ReflectiveWords
from routelab.errors import DataError

Row = dict[str, Any]
Group = Mapping[Mode, list[Target]]

SPLITS = ("train", "validation", "test")
_NAMED = 5  # dropped targets that the report names, by mode and reason


@dataclass(frozen=True)
class HybridCorpus:
    """Chats by split, and the report on how they came about (plain data, see :func:`build_hybrid`)."""

    splits: Mapping[str, list[Row]]
    report: Row


class _Dropped:
    """Targets that were left out, by mode and reason."""

    def __init__(self) -> None:
        self.ids: dict[Mode, dict[str, list[str]]] = {mode: {} for mode in MODES}

    def add(self, reason: str, targets: Iterable[Target]) -> None:
        for target in targets:
            self.ids[target.mode].setdefault(reason, []).append(target.id)

    def report(self) -> Row:
        return {
            mode: {reason: {"count": len(ids), "ids": ids[:_NAMED]} for reason, ids in sorted(reasons.items())}
            for mode, reasons in self.ids.items()
        }


def build_hybrid(
    targets: Sequence[Target],
    config: HybridConfig | None = None,
    *,
    check: Check | None = None,
    measure: Callable[[str], int] = len,
    unit: str = "characters",
) -> HybridCorpus:
    """Build the corpus of ``config`` from think and no_think targets, whatever their order and origin.

    Targets of one prompt belong together (case and white space aside). The split of a question depends on its text
    alone, so both its modes are in one split, and more data does not move it.

    Args:
        check: whether a target answers rightly, such as ``routelab.evaluate.scoring.target_is_right``. None: answers
            are not checked.
        measure, unit: the length of a reply, for limits and report; give a tokenizer's to have it in tokens.

    Returns:
        Rows ``{"id", "messages", "mode", "question" (names the prompt), "domain", "gold"}`` by split. The report has
        ``config``, ``targets`` given and ``kept`` (by split) by mode, ``dropped`` by mode and reason (count and some
        ids), ``domains`` and ``length`` of what was kept.

        Reasons: ``duplicate``, ``contradicts_word`` (the source's control word asked for the other mode),
        ``no_answer``, ``tags`` (thought tags where none belong), ``too_long``, ``reflective``, ``no_gold``,
        ``wrong_answer``, ``unpaired``, ``other_mode`` (the question went to the other mode), ``ratio``.

    Raises:
        DataError: two targets have one id, or nothing is left.
        ConfigError: a limit of a domain that does not occur.
    """
    config = config or HybridConfig()
    config.check_domains(target.domain for target in targets)
    _refuse_repeated_ids(targets)
    dropped = _Dropped()
    groups = _groups(_sound(targets, config, check, measure, dropped), config.seed)
    splits: dict[str, list[Row]] = {split: [] for split in SPLITS}
    kept: list[Target] = []
    for split in SPLITS:
        mine = [group for key, group in groups.items() if _split_of(key, config) == split]
        chosen = _balance(_pair(mine, config, dropped), config, dropped)
        splits[split] = [_row(target, config) for target in chosen]
        kept += chosen
    report = {
        "config": asdict(config),
        "targets": _by_mode(targets),
        "kept": {split: dict(Counter(row["mode"] for row in rows)) for split, rows in splits.items()},
        "dropped": dropped.report(),
        "domains": {name: _by_mode([t for t in kept if t.domain == name]) for name in sorted({t.domain for t in kept})},
        "length": {"unit": unit} | {mode: _lengths([t for t in kept if t.mode == mode], measure) for mode in MODES},
    }
    if not kept:
        reasons = {mode: {name: each["count"] for name, each in why.items()} for mode, why in report["dropped"].items()}
        raise DataError(f"no target of {len(targets)} is left for the hybrid corpus; dropped: {reasons}")
    return HybridCorpus({split: rows for split, rows in splits.items() if rows}, report)


def _refuse_repeated_ids(targets: Sequence[Target]) -> None:
    repeated = [name for name, times in Counter(target.id for target in targets).items() if times > 1]
    if repeated:
        raise DataError(f"{len(repeated)} ids name more than one target, such as {repeated[0]!r}; make them differ")


def _sound(
    targets: Iterable[Target],
    config: HybridConfig,
    check: Check | None,
    measure: Callable[[str], int],
    dropped: _Dropped,
) -> list[Target]:
    words = ReflectiveWords(config.reflective)
    seen: set[tuple[str, str]] = set()
    sound = []
    for target in targets:
        content = (target.key, target.reply)
        reason = "duplicate" if content in seen else reason_to_drop(target, config, words, check, measure)
        seen.add(content)
        if reason is None:
            sound.append(target)
        else:
            dropped.add(reason, [target])
    return sound


def _groups(targets: Iterable[Target], seed: int) -> dict[str, Group]:
    """The targets by prompt, in an order that the seed and the prompts decide."""
    groups: dict[str, dict[Mode, list[Target]]] = {}
    for target in targets:
        groups.setdefault(target.key, {mode: [] for mode in MODES})[target.mode].append(target)
    return {key: groups[key] for key in sorted(groups, key=lambda key: _hash(f"{seed}/{key}"))}


def _pair(groups: Sequence[Group], config: HybridConfig, dropped: _Dropped) -> list[Target]:
    if config.pairing == "any":
        return [target for group in groups for mode in MODES for target in group[mode]]
    if config.pairing == "different":
        return _one_mode_each(groups, config, dropped)
    kept = []
    for group in groups:
        pairs = min(len(group[mode]) for mode in MODES)
        for mode in MODES:
            kept += group[mode][:pairs]
            dropped.add("unpaired", group[mode][pairs:])
    return kept


def _one_mode_each(groups: Sequence[Group], config: HybridConfig, dropped: _Dropped) -> list[Target]:
    """Questions that only one mode can answer are its own; each other one goes to the mode that is behind."""
    count = {mode: sum(len(g[mode]) for g in groups if not all(g.values())) for mode in MODES}
    ratio = 1.0 if config.ratio is None else config.ratio
    kept = []
    for group in groups:
        mode: Mode = "think" if group["think"] else "no_think"
        if all(group.values()):
            mode = "think" if count["think"] * ratio <= count["no_think"] else "no_think"
            count[mode] += len(group[mode])
            dropped.add("other_mode", group["no_think" if mode == "think" else "think"])
        kept += group[mode]
    return kept


def _balance(targets: Sequence[Target], config: HybridConfig, dropped: _Dropped) -> list[Target]:
    """Take the last targets of the mode that has more than its ratio."""
    if config.ratio is None:
        return list(targets)
    count = _by_mode(targets)
    room = {
        "no_think": min(count["no_think"], round(count["think"] * config.ratio)),
        "think": min(count["think"], round(count["no_think"] / config.ratio)),
    }
    kept = []
    for target in targets:
        if room[target.mode] > 0:
            room[target.mode] -= 1
            kept.append(target)
        else:
            dropped.add("ratio", [target])
    return kept


def _row(target: Target, config: HybridConfig) -> Row:
    asked = {"role": "user", "content": f"{target.question} {config.word(target.mode)}"}
    return {
        "id": target.id,
        "messages": [*map(dict, target.prompt[:-1]), asked, {"role": "assistant", "content": target.reply}],
        "mode": target.mode,
        "question": target.key[:16],
        "domain": target.domain,
        "gold": target.gold,
    }


def _split_of(key: str, config: HybridConfig) -> str:
    place = _hash(f"split/{key}") / 2**64
    if place < config.test:
        return "test"
    return "validation" if place < config.test + config.validation else "train"


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _by_mode(targets: Iterable[Target]) -> dict[str, int]:
    found = Counter(target.mode for target in targets)
    return {mode: found[mode] for mode in MODES}


def _lengths(targets: Sequence[Target], measure: Callable[[str], int]) -> Row | None:
    lengths = [measure(target.reply) for target in targets]
    return {"mean": fmean(lengths), "median": median(lengths), "max": max(lengths)} if lengths else None
