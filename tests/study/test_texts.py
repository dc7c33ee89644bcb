"""What a study reads."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from transformers import AutoTokenizer

from routelab.errors import EvaluationError
from routelab.evaluate.tasks import get_task
from routelab.hosts.minis.loader import TOKENIZER
from routelab.study.texts import _few_shot, study_texts


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(TOKENIZER)


def test_prompts_choices_and_chats(tokenizer: Any) -> None:
    for task in ("mini-arithmetic", "mini-facts", "mini-paragraphs"):
        texts = list(study_texts(tokenizer, task, limit=2))
        examples = get_task(task, limit=2).examples
        assert [text.id for text in texts] == [example["id"] for example in examples]
        assert {text.task for text in texts} == {task}
        said = tokenizer.decode(texts[0].ids)
        if task == "mini-facts":
            assert said.endswith(examples[0]["choices"][examples[0]["gold"]])
        if task == "mini-paragraphs":
            assert examples[0]["messages"][-1]["content"] in said
        if task == "mini-arithmetic":
            assert examples[0]["prompt"][-1]["content"] in said
            assert "####" not in said


def test_few_shots_are_worked_and_not_the_one_that_is_asked(tokenizer: Any) -> None:
    many, none = (list(study_texts(tokenizer, "mini-few-shot", limit=3, options={"shots": n})) for n in (4, 0))
    assert tokenizer.decode(many[0].ids).count("####") == 4
    assert [text.ids for text in none] == [text.ids for text in study_texts(tokenizer, "mini-arithmetic", limit=3)]
    assert len({text.id for text in many}) == 3
    assert many[0].ids[:60] != many[1].ids[:60]
    (cut,) = study_texts(tokenizer, "mini-few-shot", limit=1, longest=10)
    assert list(cut.ids) == list(many[0].ids[:10])


def test_few_shots_are_made_as_they_are_read() -> None:
    """What is kept of a text is what tells its problems apart from later ones."""

    def peak(limit: int) -> int:
        tracemalloc.start()
        try:
            for _ in _few_shot(limit, {}):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)
    assert peak(120) - peak(20) < 100 * 1500


@pytest.mark.parametrize("options", [{"shot": 3}, {"shots": -1}, {"shots": "3"}])
def test_wrong_options_are_refused(tokenizer: Any, options: dict[str, Any]) -> None:
    with pytest.raises(EvaluationError, match="takes one option, shots"):
        list(study_texts(tokenizer, "mini-few-shot", limit=1, options=options))
    with pytest.raises(EvaluationError, match="did you mean 'mini-facts'"):
        list(study_texts(tokenizer, "mini-fact", limit=1))
