"""Packed documents do not see each other: not through attention, not through a method's window, not in the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

import routelab
from routelab.errors import TrainingError
from routelab.train import TrainConfig, encode_rows, train
from routelab.train.checks import check_packing, packing_leak
from routelab.train.collate import collate

MakeHost = Callable[..., PreTrainedModel]
METHODS = {
    "routing_only": routelab.RoutingOnlyConfig,
    "aar": lambda: routelab.AARConfig(layers="all", window=5),
}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["olmoe", "qwen2_moe", "qwen3_moe", "mixtral"])
def test_packed_equals_separate(
    family: str,
    method: str,
    attention: str,
    make_host: MakeHost,
    tokenizer: PreTrainedTokenizerFast,
    rows: list[dict[str, Any]],
) -> None:
    model = make_host(family, vocab_size=len(tokenizer), attn_implementation=attention)
    routelab.attach(model, METHODS[method]())
    assert packing_leak(model) == 0.0
    documents = encode_rows(tokenizer, rows[:5], TrainConfig(steps=1)).documents
    packed = collate(documents, [(2, 0, 4), (1, 3)], packed=True, pad_token=0)
    packed.pop("labels")
    with torch.no_grad():
        logits = model(**packed, use_cache=False).logits
        for row, order in enumerate([(2, 0, 4), (1, 3)]):
            at = 0
            for index in order:
                alone = collate(documents, [(index,)], packed=False, pad_token=0)["input_ids"]
                end = at + alone.shape[1]
                torch.testing.assert_close(logits[row, at:end], model(alone).logits[0], atol=1e-5, rtol=1e-5)
                at = end


def test_linear_attention_is_refused_by_name(
    make_host: MakeHost, tokenizer: PreTrainedTokenizerFast, rows: list[dict[str, Any]], tmp_path: Any
) -> None:
    model = make_host("qwen3_5_moe_text", vocab_size=len(tokenizer))
    routelab.attach(model, routelab.RoutingOnlyConfig())
    with pytest.raises(TrainingError, match=r"packing is refused on 'qwen3_5_moe_text': its linear-attention"):
        train(model, tokenizer, rows, TrainConfig(steps=1, packing=True), seed=0, output_dir=tmp_path)


def test_a_model_that_leaks_is_found_out(make_host: MakeHost) -> None:
    model = make_host("olmoe")

    def all_ones(module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "attention_mask": torch.ones_like(kwargs["input_ids"])}

    handle = model.register_forward_pre_hook(all_ones, with_kwargs=True)
    assert packing_leak(model) > 1e-6
    with pytest.raises(TrainingError, match="packed documents see each other"):
        check_packing(model)
    handle.remove()
    check_packing(model)
    assert not model.get_input_embeddings()._forward_hooks
