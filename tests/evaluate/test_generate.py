from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import routelab
from routelab.errors import EvaluationError
from routelab.evaluate import decoding
from routelab.evaluate.generate import generate_answers

Make = Callable[..., PreTrainedModel]

QUESTIONS = [
    "Emma has 19 lamps.",
    "Kai has 12 cookies and Leo owns 9 fewer. How many does Leo own?",
    "What is 3 + 4?",
    "Emma has 19 lamps. After that Emma collects another 10 lamps. Jana has 27 fewer. How many lamps does Jana have?",
    "Who?",
]
CHATS = [[{"role": "user", "content": question}] for question in QUESTIONS]
PREFIX = " ".join(QUESTIONS * 2)


def _ends_early(model: PreTrainedModel, end: int) -> None:
    """Make the end token likely, so that sequences finish at different times."""
    with torch.no_grad():
        model.lm_head.weight[end] *= 2.5


def _plain(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: object, new: int) -> tuple[str, bool]:
    """One prompt alone, by transformers' own generate."""
    text = prompt if isinstance(prompt, str) else tokenizer.apply_chat_template(
        prompt, tokenize=False, add_generation_prompt=True
    )  # fmt: skip
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False)
    answer = out[0, ids.shape[1] :].tolist()
    ended = tokenizer.eos_token_id in answer
    return tokenizer.decode(answer[: answer.index(tokenizer.eos_token_id)] if ended else answer), ended


@pytest.mark.parametrize("family", ["llama", "olmoe", "mixtral", "qwen3_5_moe_text"])
def test_equals_generate_one_by_one(family: str, make_model: Make, tokenizer: PreTrainedTokenizerBase) -> None:
    model = make_model(family)
    _ends_early(model, tokenizer.eos_token_id)
    records = generate_answers(model, tokenizer, CHATS, max_new_tokens=24, batch_size=4)
    expected = [_plain(model, tokenizer, chat, 24) for chat in CHATS]
    assert [(record["output"], record["finished"]) for record in records] == expected
    assert len({record["tokens"] for record in records}) > 1, "the test wants sequences that end at different times"
    for record in records:
        assert record["truncated"] != record["finished"]
        assert record["characters"] == len(record["output"])
        assert record["tokens"] == 24 or record["finished"]


@pytest.mark.parametrize("batch_size", [2, 100])
def test_order_and_batch_do_not_matter(batch_size: int, make_model: Make, tokenizer: PreTrainedTokenizerBase) -> None:
    model = make_model()
    _ends_early(model, tokenizer.eos_token_id)
    names = list("abcde")
    settings = {"max_new_tokens": 16, "num_samples": 2, "temperature": 1.0, "seed": 3}
    first = generate_answers(model, tokenizer, CHATS, ids=names, batch_size=5, **settings)
    second = generate_answers(model, tokenizer, CHATS[::-1], ids=names[::-1], batch_size=batch_size, **settings)
    assert [(record["id"], record["sample"]) for record in first] == [(name, i) for name in names for i in (0, 1)]
    key = lambda record: (record["id"], record["sample"])  # noqa: E731
    assert sorted(first, key=key) == sorted(second, key=key)
    assert first[0]["output"] != first[1]["output"]
    other = generate_answers(model, tokenizer, CHATS, ids=names, batch_size=5, **{**settings, "seed": 4})
    assert [record["output"] for record in other] != [record["output"] for record in first]


def test_sampling_follows_the_softmax(make_model: Make, tokenizer: PreTrainedTokenizerBase) -> None:
    model = make_model("llama", initializer_range=0.5)
    records = generate_answers(
        model, tokenizer, ["Who?"], max_new_tokens=1, num_samples=2000, temperature=0.7, batch_size=2000
    )
    ids = tokenizer("Who?", return_tensors="pt").input_ids
    with torch.no_grad():
        probabilities = (model(ids).logits[0, -1] / 0.7).softmax(-1)
    drawn = [record["output"] for record in records]
    for token in probabilities.topk(5).indices.tolist():
        expected = probabilities[token].item()
        share = drawn.count(tokenizer.decode([token])) / 2000
        assert share == pytest.approx(expected, abs=5 * (expected / 2000) ** 0.5 + 1e-3)


@pytest.mark.parametrize(
    ("family", "routed"), [("llama", None), ("olmoe", None), ("olmoe", "all"), ("qwen3_5_moe_text", [1, 3])]
)
def test_shared_prefix_changes_nothing(
    family: str, routed: object, make_model: Make, tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(family)
    if routed:
        routelab.attach(model, routelab.AARConfig(layers=routed, window=8, init_std=0.5))
    expanded = []
    expand = decoding._expand
    monkeypatch.setattr(decoding, "_expand", lambda *given: expanded.append(1) or expand(*given))
    prompts = [f"{PREFIX} {question}" for question in QUESTIONS]
    shared, apart = (
        generate_answers(model, tokenizer, prompts, max_new_tokens=8, batch_size=3, share_prefix=share)
        for share in (True, False)
    )
    assert shared == apart
    # Linear attention keeps a state instead of keys and values: there the prefix cannot be shared.
    assert len(expanded) == (0 if family == "qwen3_5_moe_text" else 2)


def test_prefix_reaches_the_logits_exactly(make_model: Make, tokenizer: PreTrainedTokenizerBase) -> None:
    """Rows much shorter than the widest one, so that most of the prefix of some rows is shifted out."""
    model = make_model("llama")
    prompts = [[*range(5, 60), *range(100, 100 + n)] for n in (1, 40, 90)]
    assert decoding.shared_length(prompts) == 55
    with torch.no_grad():
        prefix = decoding.compute_prefix(model, prompts[0][:55])
        assert prefix is not None
        mask = torch.tensor([[0] * (145 - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        cache = decoding._expand(model, prefix, mask)
        columns = torch.tensor([[0] * (145 - len(prompt)) + prompt for prompt in prompts])[:, 55:]
        inputs = decoding._inputs(model, columns, mask)
        logits = model(**inputs, cache=cache, use_cache=True).logits[:, -1]
        for row, prompt in zip(logits, prompts, strict=True):
            alone = model(torch.tensor([prompt])).logits[0, -1]
            torch.testing.assert_close(row, alone, atol=1e-5, rtol=1e-5)


def test_identical_prompts_keep_a_token_of_their_own() -> None:
    assert decoding.shared_length([[1, 2, 3], [1, 2, 3]]) == 2
    assert decoding.shared_length([[1, 2, 3], [1, 2]]) == 1
    assert decoding.shared_length([[1, 2, 3]]) == 0
    assert decoding.shared_length([[1], [2]]) == 0


def test_stop_strings_end_and_cut(make_model: Make, tokenizer: PreTrainedTokenizerBase) -> None:
    model = make_model("llama")
    free = generate_answers(model, tokenizer, CHATS, max_new_tokens=30)
    text = free[1]["output"]
    stop = text[20:24]
    stopped = generate_answers(model, tokenizer, CHATS, max_new_tokens=30, stop=[stop, "never said"])
    assert stopped[1]["output"] == text[: text.index(stop)]
    assert stopped[1]["finished"]
    assert stopped[1]["tokens"] < 30
    for record, unstopped in zip(stopped, free, strict=True):
        assert record["output"] == unstopped["output"].split(stop)[0]


def test_model_and_tokenizer_are_left_as_they_were(make_model: Make, tokenizer: PreTrainedTokenizerBase) -> None:
    model = make_model().train()
    model.model.layers[1].eval()
    before = [module.training for module in model.modules()], dict(vars(tokenizer))
    generate_answers(model, tokenizer, CHATS, max_new_tokens=2)
    assert ([module.training for module in model.modules()], dict(vars(tokenizer))) == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_progress_counts_sequences(make_model: Make, tokenizer: PreTrainedTokenizerBase) -> None:
    seen: list[tuple[int, int]] = []
    generate_answers(
        make_model(), tokenizer, CHATS, max_new_tokens=1, batch_size=2, on_progress=lambda *done: seen.append(done)
    )
    assert seen == [(2, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompts": []}, "no prompt"),
        ({"prompts": ["a", "b"], "ids": ["x", "x"]}, "different ids"),
        ({"prompts": ["a"], "max_new_tokens": 0}, "max_new_tokens"),
        ({"prompts": ["a"], "batch_size": 0}, "batch_size"),
        ({"prompts": ["a"], "temperature": -1}, "temperature"),
        ({"prompts": ["a"], "num_samples": 2}, "set a temperature"),
        ({"prompts": [""]}, "no tokens"),
        ({"prompts": ["a"], "stop": [""]}, "empty stop string"),
        ({"prompts": [[{"role": "user"}]]}, "chat template cannot render"),
    ],
)
def test_bad_requests(
    arguments: dict[str, object], message: str, make_model: Make, tokenizer: PreTrainedTokenizerBase
) -> None:
    with pytest.raises(EvaluationError, match=message):
        generate_answers(make_model(), tokenizer, **arguments)
