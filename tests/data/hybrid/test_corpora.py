"""What is made of a corpus or of its targets: phases, condensed answers, files."""

from __future__ import annotations

from pathlib import Path

import pytest

from routelab.data import MiniWorld, load_rows
from routelab.data.hybrid import (
    HybridConfig,
    bare_answer,
    build_hybrid,
    condense,
    condensing_prompt,
    read_targets,
    two_phases,
    write_corpus,
)
from routelab.errors import DataError


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    targets = read_targets(MiniWorld().arithmetic("train", 40, steps=2), "mini-arithmetic")
    return build_hybrid(targets).splits["train"]


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_two_phases_show_every_row_once(rows: list[dict], share: float) -> None:
    first, second = two_phases(rows, think_first=share)
    assert {row["mode"] for row in first} == {"think"}
    assert len(first) == 40 * share
    assert sum(row["mode"] == "no_think" for row in second) == 40
    assert sorted(row["id"] for row in [*first, *second]) == sorted(row["id"] for row in rows)


def test_two_phases_are_drawn_by_seed(rows: list[dict]) -> None:
    assert two_phases(rows, seed=1) == two_phases(rows, seed=1) != two_phases(rows, seed=2)


def test_two_phases_refuse_what_they_cannot_part(rows: list[dict]) -> None:
    with pytest.raises(DataError, match="above 0 and up to 1; got 0"):
        two_phases(rows, think_first=0)
    with pytest.raises(DataError, match="row 0 of a hybrid corpus needs a mode"):
        two_phases([{"id": "a"}])
    with pytest.raises(DataError, match="leave one phase empty"):
        two_phases([row for row in rows if row["mode"] == "no_think"])


def test_condensed_targets_take_the_place_of_direct_ones() -> None:
    targets = read_targets([{"question": "q", "answer": "3*2 = 6\n#### 6"}], "gsm8k", direct="line")
    think, short = condense(targets, bare_answer)
    assert think == targets[0]
    assert (short.id, short.mode, short.reply, short.thought) == ("gsm8k-0/think/condensed", "no_think", "#### 6", "")
    assert short.key == think.key
    rewritten = condense(targets, lambda target: f" {len(target.thought)} ")[1]
    assert rewritten.reply == "7"
    assert [message["role"] for message in condensing_prompt(think)] == ["system", "user"]
    assert "3*2 = 6" in condensing_prompt(think)[1]["content"]


def test_nothing_to_condense_to_is_named() -> None:
    targets = read_targets([{"question": "q", "think": "I add", "answer": "6"}], "columns")
    with pytest.raises(DataError, match="'columns-0/think' has no gold answer"):
        condense(targets, bare_answer)


def test_files_are_read_back_and_do_not_vary(tmp_path: Path) -> None:
    targets = read_targets(MiniWorld().arithmetic("train", 40, steps=2), "mini-arithmetic")
    corpus = build_hybrid(targets, HybridConfig(validation=0.3))
    paths = write_corpus(corpus, tmp_path / "a")
    assert [path.name for path in paths] == ["train.jsonl.gz", "validation.jsonl.gz", "report.json"]
    assert load_rows(paths[0]) == corpus.splits["train"]
    again = write_corpus(corpus, tmp_path / "b")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(path.name for path in paths)
