from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from routelab.data.hybrid import HybridConfig, Limits, Target, build_hybrid
from routelab.errors import ConfigError, DataError


def target(question: str, mode: str, answer: str = "4", **fields: Any) -> Target:
    defaults = {"id": f"{question}/{mode}", "thought": "I add." if mode == "think" else ""}
    return Target(prompt=({"role": "user", "content": question},), mode=mode, answer=answer, **(defaults | fields))


def pairs(n: int) -> list[Target]:
    return [target(f"q{i}", mode) for i in range(n) for mode in ("think", "no_think")]


def counts(corpus: Any, mode: str) -> dict[str, int]:
    return {reason: dropped["count"] for reason, dropped in corpus.report["dropped"][mode].items()}


def test_rows_end_in_the_control_word_and_answer_as_it_says() -> None:
    system = {"role": "system", "content": "Be kind."}
    user = {"role": "user", "content": "2+2?"}
    targets = [replace(t, prompt=(system, user)) for t in pairs(1)]
    rows = {row["mode"]: row for row in build_hybrid(targets).splits["train"]}
    assert rows["think"]["messages"] == [
        system,
        {"role": "user", "content": "2+2? /think"},
        {"role": "assistant", "content": "<think>\nI add.\n</think>\n\n4"},
    ]
    assert rows["no_think"]["messages"][1:] == [
        {"role": "user", "content": "2+2? /no_think"},
        {"role": "assistant", "content": "4"},
    ]
    assert rows["think"]["question"] == rows["no_think"]["question"]
    other = build_hybrid(targets, HybridConfig(think="/deep", no_think="/fast")).splits["train"]
    assert {row["messages"][1]["content"] for row in other} == {"2+2? /deep", "2+2? /fast"}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (target("q", "no_think", asked="think"), "contradicts_word"),
        (target("q", "think", answer="  "), "no_answer"),
        (target("q", "no_think", answer="<think> 4"), "tags"),
        (target("q", "think", thought="I </think> add"), "tags"),
        (target("q", "no_think", answer="Wait, it is 4"), "reflective"),
        (target("q", "no_think", answer="four, I am sure", domain="sums"), "too_long"),
        (target("q", "no_think", gold="5"), "wrong_answer"),
        (target("q", "think", gold=None), "no_gold"),
    ],
)
def test_every_reason_to_drop(bad: Target, reason: str) -> None:
    sound = [replace(t, gold="4") for t in pairs(2)]
    sound.append(target("sums", "think", gold="4", domain="sums"))
    config = HybridConfig(pairing="any", ratio=None, limits={"sums": Limits(no_think=10)})
    corpus = build_hybrid([*sound, bad], config, check=lambda t: t.gold == t.answer)
    assert counts(corpus, bad.mode) == {reason: 1}
    assert corpus.report["dropped"][bad.mode][reason]["ids"] == [bad.id]
    assert len(corpus.splits["train"]) == len(sound)


def test_thoughts_may_be_reflective_and_the_filter_can_be_off() -> None:
    targets = [target("q", "think", thought="Hmm, wait, okay."), target("q", "no_think", answer="Okay: 4")]
    with pytest.raises(DataError, match=r"no target of 2 is left.*'reflective': 1.*'unpaired': 1"):
        build_hybrid(targets)
    assert len(build_hybrid(targets, HybridConfig(reflective=())).splits["train"]) == 2


def test_limits_fall_back_to_the_star_and_count_in_the_given_unit() -> None:
    targets = [
        *pairs(1),
        target("r", "think", thought="one two three", domain="sums"),
        target("r", "no_think", domain="sums"),
    ]
    limits = {"*": Limits(think=3), "sums": Limits(no_think=100)}
    corpus = build_hybrid(targets, HybridConfig(limits=limits), measure=lambda text: len(text.split()), unit="words")
    assert counts(corpus, "think") == {"too_long": 1}
    assert counts(corpus, "no_think") == {"unpaired": 1}
    assert corpus.report["length"]["unit"] == "words"
    assert corpus.report["length"]["think"] == {"mean": 6, "median": 6, "max": 6}
    with pytest.raises(ConfigError, match="no target is of the domain 'sum'; did you mean 'sums'"):
        build_hybrid(targets, HybridConfig(limits={"sum": Limits(think=3)}))


def test_unverified_targets_can_stay() -> None:
    corpus = build_hybrid(pairs(2), HybridConfig(unverified="keep"), check=lambda t: False)
    assert len(corpus.splits["train"]) == 4


def test_same_pairs_answers_one_by_one() -> None:
    targets = [*pairs(1), target("q0", "think", thought="I count.", id="second"), target("q1", "think")]
    corpus = build_hybrid(targets)
    assert corpus.report["kept"]["train"] == {"no_think": 1, "think": 1}
    assert counts(corpus, "think") == {"unpaired": 2}


def test_prompts_are_the_same_up_to_case_and_white_space() -> None:
    corpus = build_hybrid([target("What  is\n2+2?", "think"), target("what is 2+2?", "no_think")])
    assert len(corpus.splits["train"]) == 2


def test_different_gives_each_question_one_mode_in_ratio() -> None:
    targets = [*pairs(40), target("only", "think")]
    corpus = build_hybrid(targets, HybridConfig(pairing="different"))
    rows = corpus.splits["train"]
    assert len({row["question"] for row in rows}) == len(rows)
    assert corpus.report["kept"]["train"] == {"no_think": 20, "think": 20}
    assert "only/think" in {row["id"] for row in rows} | set(corpus.report["dropped"]["think"]["ratio"]["ids"])
    unequal = build_hybrid(pairs(40), HybridConfig(pairing="different", ratio=3)).report["kept"]["train"]
    assert unequal == {"no_think": 30, "think": 10}


@pytest.mark.parametrize(("ratio", "kept"), [(0.5, (10, 20)), (2.0, (20, 10)), (None, (20, 20))])
def test_ratio(ratio: float | None, kept: tuple[int, int]) -> None:
    corpus = build_hybrid(pairs(20), HybridConfig(ratio=ratio))
    found = corpus.report["kept"]["train"]
    assert (found["no_think"], found["think"]) == kept
    assert sum(counts(corpus, "think").values()) + sum(counts(corpus, "no_think").values()) == 40 - sum(kept)


def test_splits_depend_on_the_question_alone() -> None:
    config = HybridConfig(validation=0.2, test=0.3)
    small, large = build_hybrid(pairs(100), config), build_hybrid(pairs(300)[::-1], replace(config, seed=5))
    where = [{row["id"]: split for split, rows in c.splits.items() for row in rows} for c in (small, large)]
    assert all(where[1][name] == split for name, split in where[0].items())
    assert all(where[0][f"q{i}/think"] == where[0][f"q{i}/no_think"] for i in range(100))
    sizes = {split: len(rows) / 600 for split, rows in large.splits.items()}
    assert sizes == pytest.approx({"train": 0.5, "validation": 0.2, "test": 0.3}, abs=0.08)


def test_the_order_of_targets_does_not_matter() -> None:
    assert build_hybrid(pairs(30)).splits == build_hybrid(pairs(30)[::-1]).splits
    assert build_hybrid(pairs(30)).splits != build_hybrid(pairs(30), HybridConfig(seed=1)).splits


def test_duplicates_and_repeated_ids() -> None:
    again = replace(target("q0", "think"), id="again")
    corpus = build_hybrid([*pairs(1), again])
    assert counts(corpus, "think") == {"duplicate": 1}
    with pytest.raises(DataError, match=r"1 ids name more than one target, such as 'q0/think'"):
        build_hybrid([*pairs(1), target("q0", "think", thought="else")])


def test_everything_is_accounted_for_and_the_report_is_plain_data() -> None:
    targets = [*pairs(30), *(target(f"only {i}", "think") for i in range(7))]
    corpus = build_hybrid(targets, HybridConfig(ratio=0.7, test=0.2))
    report = json.loads(json.dumps(corpus.report))
    for mode, given in report["targets"].items():
        kept = sum(each.get(mode, 0) for each in report["kept"].values())
        assert kept + sum(counts(corpus, mode).values()) == given
        assert report["domains"]["general"][mode] == kept


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pairing": "smae"}, "did you mean 'same'"),
        ({"unverified": "no"}, "unknown unverified"),
        ({"ratio": 0}, "above 0"),
        ({"ratio": True}, "above 0"),
        ({"validation": 1.0}, "from 0 to below 1"),
        ({"validation": 0.5, "test": 0.5}, "leave nothing to train on"),
        ({"think": "/no_think"}, "two different texts"),
        ({"think": " /think"}, "without white space around"),
        ({"limits": {"*": Limits(think=0)}}, r"of '\*' must be at least 1"),
    ],
)
def test_bad_configurations(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        HybridConfig(**options)
