"""Placement: the untouched host at the start, one expert per token after, removal, and refusals."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache, OPTConfig, OPTForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

import routelab
from routelab.errors import ConfigError, ConflictError, HostError, ModeError
from routelab.methods.pathlock.method import PathLock

DENSE = [
    "cohere",
    "gemma",
    "gemma2",
    "gemma3_text",
    "glm4",
    "gpt_neox",
    "llama",
    "mistral",
    "olmo2",
    "phi",
    "phi3",
    "qwen2",
    "qwen3",
    "starcoder2",
]
IDS = torch.arange(3, 23).reshape(2, 10)
Make = Callable[..., PreTrainedModel]
Chat = Callable[..., str]


def method(model: PreTrainedModel) -> PathLock:
    (found,) = routelab.attached(model)
    assert isinstance(found, PathLock)
    return found


@pytest.mark.parametrize("name", DENSE)
@torch.no_grad()
def test_every_family(name: str, make_dense: Make, tokenizer: PreTrainedTokenizerBase, tell_apart: Any) -> None:
    """Equal copies and bit-identical logits at the start; rows of a mixed batch equal rows alone; detach restores."""
    model = make_dense(name)
    before, names = model(IDS).logits, list(model.state_dict())
    classes = {name: type(module) for name, module in model.named_modules()}
    routelab.attach(model, routelab.PathLockConfig(), tokenizer=tokenizer)
    for _, mlp in method(model).mlps():
        pairs = list(zip(mlp.no_think.state_dict().values(), mlp.think.state_dict().values(), strict=True))
        assert pairs
        assert all(torch.equal(a, b) and a.data_ptr() != b.data_ptr() for a, b in pairs)
    for mode in (0, 1):
        assert torch.equal(model(IDS, routing_index=[mode, mode]).logits, before)
    tell_apart(model)
    no_think, think = (model(IDS, routing_index=[mode, mode]).logits for mode in (0, 1))
    assert torch.equal(no_think, before)
    assert not torch.allclose(think, before, atol=1e-2)
    mixed = model(IDS, routing_index=torch.tensor([1, 0])).logits
    torch.testing.assert_close(mixed[0], think[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(mixed[1], no_think[1], atol=1e-5, rtol=1e-5)
    routelab.detach(model)
    assert torch.equal(model(IDS).logits, before)
    assert list(model.state_dict()) == names
    assert {name: type(module) for name, module in model.named_modules()} == classes
    assert not {"generate", "prepare_inputs_for_generation"} & vars(model).keys()


@torch.no_grad()
def test_a_mode_per_token(locked: PreTrainedModel) -> None:
    """Tokens of the second half change nothing before them, and equal the halves' own modes where nothing mixes."""
    index = torch.zeros(2, 10, dtype=torch.long)
    index[:, 5:] = 1
    half = locked(IDS, routing_index=index).logits
    torch.testing.assert_close(half[:, :5], locked(IDS, routing_index=[0, 0]).logits[:, :5], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(half[:, 5:], locked(IDS, routing_index=[0, 0]).logits[:, 5:], atol=1e-2)
    torch.testing.assert_close(
        locked(IDS, routing_index=torch.ones(2, 10, dtype=torch.long)).logits, locked(IDS, routing_index=[1, 1]).logits
    )


@torch.no_grad()
def test_words_decide_in_one_left_padded_batch(
    locked: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, chat: Chat, encode: Any
) -> None:
    texts = [
        chat(tokenizer, "What does /think mean? /no_think"),
        chat(tokenizer, "/no_think hi /think"),
        chat(tokenizer, "`</think>` text /no_think"),
        chat(tokenizer, "/think_hard or a long prompt about nothing at all /no_think"),
        chat(tokenizer, "a /think", "b", "c /no_think"),
        chat(tokenizer, "a /think", "I quote /no_think", "c"),
        chat(tokenizer, "请直接回答/no_think"),
    ]
    modes = [0, 1, 0, 0, 0, 1, 0]
    assert routelab.resolve_modes(texts, tokenizer, method(locked).config).tolist() == modes
    batch = encode(tokenizer, *texts)
    assert routelab.resolve_modes(batch["input_ids"], tokenizer).tolist() == modes
    assert routelab.resolve_modes(**{"prompts": batch["input_ids"]}, tokenizer=tokenizer).tolist() == modes
    together = locked(**batch).logits
    torch.testing.assert_close(together, locked(**batch, routing_index=modes).logits)
    for row, text in enumerate(texts):
        alone = locked(**encode(tokenizer, text)).logits[0]
        torch.testing.assert_close(together[row, -len(alone) :], alone, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_the_backbone_decides(
    locked: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, chat: Chat, encode: Any
) -> None:
    """TRL calls the backbone, not the model."""
    batch = encode(tokenizer, chat(tokenizer, "a /think"))
    hidden = locked.model(**batch).last_hidden_state
    assert torch.equal(locked.lm_head(hidden), locked(**batch, routing_index=[1]).logits)


@torch.no_grad()
def test_packed_rows_have_a_mode_per_document(
    locked: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, chat: Chat, encode: Any
) -> None:
    texts = [chat(tokenizer, "one /think", "x", answer=True), chat(tokenizer, "two or so /no_think", "y", answer=True)]
    alone = [encode(tokenizer, text)["input_ids"] for text in texts]
    padding = torch.full((1, 5), tokenizer.pad_token_id)
    packed = torch.cat([*alone, padding], dim=1)
    positions = torch.cat([torch.arange(part.shape[1]) for part in (*alone, padding)])[None]
    logits = locked(packed, position_ids=positions, use_cache=False).logits
    expected = torch.cat([locked(ids, use_cache=False).logits for ids in alone], dim=1)
    torch.testing.assert_close(logits[:, : expected.shape[1]], expected, atol=1e-4, rtol=1e-4)


def test_strict_and_default(make_dense: Make, tokenizer: PreTrainedTokenizerBase, caplog: Any) -> None:
    model = routelab.attach(make_dense("llama"), routelab.PathLockConfig(), tokenizer=tokenizer)
    ids = tokenizer("Open src/no_think/a.py", return_tensors="pt")["input_ids"]
    with pytest.raises(ModeError, match=r"row 0 of 1 names no mode.*routing_index"):
        model(ids)
    lenient = routelab.PathLockConfig(strict=False, default_mode="think")
    assert routelab.resolve_modes(ids, tokenizer, lenient).tolist() == [1]
    routelab.attach(routelab.detach(model), lenient, tokenizer=tokenizer)
    caplog.clear()
    with caplog.at_level("WARNING", logger="routelab"):
        model(ids)
        model(ids)
    assert [record.message for record in caplog.records if "control word" in record.message] == [
        "prompts without a control word run as 'think' (PathLockConfig(strict=False)); said once"
    ]


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ([0, 2], r"the modes are 0 \(no_think\) and 1 \(think\)"),
        ([0, -1], "the modes are 0"),
        ([0], r"has shape \(1,\)"),
        ([[0, 1], [0, 1]], r"has shape \(2, 2\)"),
        ([0.0, 1.0], "integers"),
        (["think", "think"], "must hold the modes"),
        (1, r"has shape \(\)"),
    ],
)
def test_bad_indices(locked: PreTrainedModel, index: Any, said: str) -> None:
    with pytest.raises(ModeError, match=said):
        locked(IDS, routing_index=index)
    with pytest.raises(ModeError, match=said):
        locked.generate(IDS, routing_index=index, max_new_tokens=1)


@torch.no_grad()
def test_embeddings_need_an_index(locked: PreTrainedModel) -> None:
    embeds = locked.get_input_embeddings()(IDS)
    with pytest.raises(ModeError, match="inputs_embeds hold no text"):
        locked(inputs_embeds=embeds)
    assert torch.equal(
        locked(inputs_embeds=embeds, routing_index=[0, 1]).logits, locked(IDS, routing_index=[0, 1]).logits
    )
    out = locked.generate(inputs_embeds=embeds, routing_index=[0, 1], max_new_tokens=4, do_sample=False)
    full = locked.generate(IDS, routing_index=[0, 1], max_new_tokens=4, do_sample=False)
    assert torch.equal(out, full[:, IDS.shape[1] :])


def test_refused_hosts(make_host: Make, tokenizer: PreTrainedTokenizerBase, make_dense: Make) -> None:
    config = routelab.PathLockConfig()
    with pytest.raises(HostError, match="'olmoe' is a mixture of experts"):
        routelab.attach(make_host("olmoe"), config, tokenizer=tokenizer)
    with pytest.raises(ConfigError, match="tokenizer=tokenizer"):
        routelab.attach(make_dense("llama"), config)
    with pytest.raises(HostError, match="no language-model head over decoder layers"):
        routelab.attach(
            OPTForCausalLM(OPTConfig(hidden_size=16, ffn_dim=16, num_hidden_layers=1, num_attention_heads=2)),
            config,
            tokenizer=tokenizer,
        )
    odd = make_dense("llama")
    odd.model.layers[1].mlp.proj = odd.model.layers[1].mlp.down_proj
    del odd.model.layers[1].mlp.down_proj
    with pytest.raises(HostError, match=r"layer 1 .* has no MLP of a known role"):
        routelab.attach(odd, config, tokenizer=tokenizer)
    twice = routelab.attach(make_dense("llama"), config, tokenizer=tokenizer)
    with pytest.raises((ConflictError, HostError)):
        routelab.attach(twice, config, tokenizer=tokenizer)
    assert len(routelab.attached(twice)) == 1


def test_parameters(make_dense: Make, tokenizer: PreTrainedTokenizerBase) -> None:
    model = make_dense("qwen3")
    dense = sum(parameter.numel() for parameter in model.parameters())
    mlps = 3 * 3 * 32 * 48
    routelab.attach(model, routelab.PathLockConfig(train="experts"), tokenizer=tokenizer)
    assert method(model).parameter_counts() == {"dense": dense, "total": dense + mlps, "active": dense}
    assert method(model).summary().trainable_parameters == 2 * mlps
    assert all(parameter.requires_grad == (".mlp." in name) for name, parameter in model.named_parameters())
    routelab.detach(model)
    assert all(parameter.requires_grad for parameter in model.parameters())
    routelab.attach(model, routelab.PathLockConfig(), tokenizer=tokenizer)
    assert method(model).summary().trainable_parameters == dense + mlps


@torch.no_grad()
@pytest.mark.parametrize("train", ["all", "experts"])
def test_save_and_load(
    make_dense: Make,
    tokenizer: PreTrainedTokenizerBase,
    tmp_path: Path,
    train: str,
    tell_apart: Any,
    chat: Chat,
    encode: Any,
) -> None:
    config = routelab.PathLockConfig(train=train, think="/deep", no_think="/fast")
    model = routelab.attach(make_dense("qwen3"), config, tokenizer=tokenizer)
    tell_apart(model)
    for parameter in method(model).parameters():
        parameter.mul_(1.01)
    batch = encode(tokenizer, chat(tokenizer, "a /deep"), chat(tokenizer, "b /fast"))
    expected = model(**batch).logits
    routelab.save(model, tmp_path)
    loaded = routelab.load(tmp_path, make_dense("qwen3", seed=0 if train == "experts" else 1))
    assert torch.equal(loaded(**batch).logits, expected)
    kept = method(loaded).tokenizer
    text = kept.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False, enable_thinking=True)
    assert "a /deep<" in text
    assert kept.chat_template == method(model).tokenizer.chat_template


@torch.no_grad()
def test_detach_refuses_after_training(locked: PreTrainedModel) -> None:
    """Changed think experts are dropped; changed tensors of the host cannot be restored."""
    copied = copy.deepcopy(locked)
    routelab.detach(copied)
    locked.model.layers[1].mlp.no_think.up_proj.weight.data[0, 0] += 1e-3
    with pytest.raises(HostError, match=r"layers\.1\.mlp\.up_proj\.weight.*export --mode"):
        routelab.detach(locked)
    assert routelab.attached(locked)


@torch.no_grad()
def test_a_copy_is_its_own(locked: PreTrainedModel) -> None:
    locked(IDS, routing_index=[0, 1], use_cache=True)
    copied = copy.deepcopy(locked)
    before = locked(IDS, routing_index=[1, 1]).logits
    for _, mlp in method(copied).mlps():
        for parameter in mlp.parameters():
            parameter.zero_()
    assert torch.equal(locked(IDS, routing_index=[1, 1]).logits, before)
    assert not torch.equal(copied(IDS, routing_index=[1, 1]).logits, before)
    assert torch.equal(copied.generate(IDS, routing_index=[1, 1], max_new_tokens=2, do_sample=False)[:, :10], IDS)
    assert method(copied).host.model is copied


@torch.no_grad()
def test_half_precision_and_compiled_experts(locked: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = locked(IDS, routing_index=[0, 1]).logits
    for _, mlp in method(locked).mlps():
        for expert in mlp.experts:
            expert.compile(backend="eager", dynamic=True)
    torch.testing.assert_close(locked(IDS, routing_index=[0, 1]).logits, expected, atol=1e-5, rtol=1e-5)
    half = locked.to(torch.bfloat16)(IDS, routing_index=[0, 1]).logits
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, atol=0.5, rtol=0.1)


def test_a_cache_of_another_kind_is_refused(locked: PreTrainedModel) -> None:
    with pytest.raises(HostError, match="continuous batching"):
        locked(IDS, routing_index=[0, 1], cache=object())
    filled = DynamicCache()
    filled.update(torch.zeros(2, 2, 3, 8), torch.zeros(2, 2, 3, 8), 0)
    with pytest.raises(ModeError, match="filled without a mode"):
        locked(IDS, cache=filled)
