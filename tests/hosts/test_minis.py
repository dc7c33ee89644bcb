"""The shipped minis: ordinary checkpoints, one tokenizer, and a host that really can do what its page says."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from routelab.data import MiniWorld, to_messages
from routelab.errors import HostError
from routelab.hosts.minis import available, load_mini, mini_path
from routelab.hosts.minis.loader import TOKENIZER


@cache
def loaded(name: str = "mini-moe"):
    model, tokenizer = load_mini(name, dtype=torch.float32)
    return model.eval(), tokenizer


def test_minis_are_shipped_and_small() -> None:
    assert {"mini-moe", "mini-dense"} <= set(available())
    for name in available():
        assert sum(f.stat().st_size for f in mini_path(name).iterdir()) < 10 * 2**20


def test_unknown_minis_are_refused_with_the_nearest() -> None:
    with pytest.raises(HostError, match="did you mean 'mini-moe'"):
        load_mini("mini-mo")


@pytest.mark.parametrize(
    ("name", "architecture"), [("mini-moe", "OlmoeForCausalLM"), ("mini-dense", "Qwen3ForCausalLM")]
)
def test_they_are_ordinary_checkpoints_in_bfloat16(name: str, architecture: str) -> None:
    model, _ = load_mini(name)
    assert type(model).__name__ == architecture
    assert model.dtype == torch.bfloat16
    assert sum(p.numel() for p in model.parameters()) <= 5_000_000
    assert model.config.num_hidden_layers >= 6
    assert not getattr(model.config, "output_router_logits", False)


def test_every_mini_carries_the_shared_tokenizer_unchanged() -> None:
    for name in available():
        for file in TOKENIZER.iterdir():
            assert (mini_path(name) / file.name).read_bytes() == file.read_bytes()


def test_tokenizer_round_trips_and_splits_digits() -> None:
    _, tokenizer = loaded()
    text = "Zoë has 1234 apples.\n日本 </think> /no_think\t#### 7"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    digits = [t for t in tokenizer.convert_ids_to_tokens(ids) if any(c.isdigit() for c in t)]
    assert digits == list("12347")
    assert (tokenizer.padding_side, tokenizer.eos_token, tokenizer.pad_token) == ("left", "<|im_end|>", "<|endoftext|>")


def test_template_marks_the_reply_and_its_end_and_nothing_else() -> None:
    _, tokenizer = loaded()
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "4"},
    ]
    out = tokenizer.apply_chat_template(chat, return_dict=True, return_assistant_tokens_mask=True)
    marked = [i for i, m in zip(out["input_ids"], out["assistant_masks"], strict=True) if m]
    assert tokenizer.decode(marked) == "2<|im_end|>4<|im_end|>"
    prompt = tokenizer.apply_chat_template(chat[:2], add_generation_prompt=True, tokenize=False)
    whole = tokenizer.apply_chat_template(chat[:3], tokenize=False)
    assert whole == prompt + "2<|im_end|>\n"
    assert "think" not in whole


def test_batched_left_padded_replies_equal_single_ones() -> None:
    model, tokenizer = loaded()
    rows = MiniWorld().arithmetic("test", 4, steps=(1, 3))
    chats = [c["messages"][:1] for c in to_messages(rows, "arithmetic")]

    def reply(batch: list) -> list[str]:
        inputs = tokenizer.apply_chat_template(
            batch, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )
        out = model.generate(**inputs, max_new_tokens=40)
        return tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)

    assert reply(chats) == [reply([c])[0] for c in chats]


@pytest.mark.parametrize("name", ["mini-moe", "mini-dense"])
def test_they_solve_two_step_problems_they_have_never_seen(name: str) -> None:
    """docs/minis.md has the measured figures; half is a floor that a sample of 40 does not miss by chance."""
    model, tokenizer = loaded(name)
    rows = MiniWorld().arithmetic("test", 40, steps=2)
    chats = [c["messages"][:1] for c in to_messages(rows, "arithmetic")]
    inputs = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    )
    out = model.generate(**inputs, max_new_tokens=40)
    said = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert sum(s.endswith(f"#### {r['gold']}") for s, r in zip(said, rows, strict=True)) >= 20
