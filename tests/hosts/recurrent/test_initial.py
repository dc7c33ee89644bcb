"""The drawn initial state: its distribution, and what it depends on."""

from __future__ import annotations

import math

import torch

from routelab.hosts.recurrent import RecurrentForCausalLM
from routelab.hosts.recurrent.initial import draw_state


def test_truncated_normal() -> None:
    drawn = draw_state(0, torch.arange(200)[None], 5000, std=0.5)[0].double() / 0.5
    assert drawn.abs().max() <= 3
    density = math.exp(-4.5) / math.sqrt(2 * math.pi)
    variance = 1 - 6 * density / math.erf(3 / math.sqrt(2))
    assert abs(drawn.mean()) < 5e-3
    assert abs(drawn.var() - variance) < 5e-3
    for point in (-2.0, -0.5, 1.0, 2.5):
        below = (math.erf(point / math.sqrt(2)) + math.erf(3 / math.sqrt(2))) / (2 * math.erf(3 / math.sqrt(2)))
        assert abs((drawn < point).double().mean() - below) < 3e-3


def test_numbers_do_not_repeat_or_correlate() -> None:
    drawn = draw_state(torch.arange(8), torch.arange(16)[None], 64, std=1.0)
    assert drawn.shape == (8, 16, 64)
    assert drawn.unique().numel() > 0.995 * drawn.numel()
    for other in (drawn.roll(1, 0), drawn.roll(1, 1), drawn.roll(1, 2)):
        assert abs((drawn * other).mean()) < 0.05


def test_neighbouring_seeds_and_positions_are_not_shifts_of_each_other() -> None:
    one, two = draw_state(0, torch.arange(1, 9)[None], 32, 1.0), draw_state(1, torch.arange(8)[None], 32, 1.0)
    assert not torch.isclose(one, two).any(-1).all()
    assert (one - two).abs().mean() > 0.5


def test_depends_on_seed_and_position_alone() -> None:
    everywhere = draw_state(7, torch.arange(10)[None], 16, 1.0)
    somewhere = draw_state(torch.tensor([3, 7]), torch.tensor([[1, 2], [9, 4]]), 16, 1.0)
    assert torch.equal(somewhere[1], everywhere[0, [9, 4]])
    assert not torch.equal(somewhere[0], everywhere[0, [1, 2]])


def test_hash_in_whole_numbers() -> None:
    """The draw is part of every published number, so it must never change: SplitMix64, chained."""

    def mix(word: int) -> int:
        word = (word + 0x9E3779B97F4A7C15) % 2**64
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
        return word ^ word >> 31

    seed, positions, width = 42, (0, 5, 8191), 7
    drawn = draw_state(seed, torch.tensor([positions]), width, 1.0)[0].double()
    covered = math.erf(3 / math.sqrt(2))
    for row, position in zip(drawn, positions, strict=True):
        for channel, number in enumerate(row.tolist()):
            uniform = ((mix(mix((mix(seed) + position) % 2**64) + channel) >> 41) + 0.5) / 2**23
            assert abs(math.erf(number / math.sqrt(2)) - (2 * uniform - 1) * covered) < 1e-6


def test_deviation_of_the_models(make) -> None:
    huginn, llama = make("huginn", n_embd=64), make("llama", n_embd=64)
    positions = torch.arange(60)[None]
    for model, scale in ((huginn, math.sqrt(64)), (llama, 1.0)):
        std = model.transformer.initial_state(positions).std()
        assert abs(std / (0.986 * scale * math.sqrt(2 / (5 * 64))) - 1) < 0.03


def test_seeds(model: RecurrentForCausalLM) -> None:
    ids = torch.randint(61, (2, 5))
    assert torch.equal(model(ids).logits, model(ids, seed=0).logits)
    assert not torch.allclose(model(ids, num_steps=1).logits, model(ids, num_steps=1, seed=1).logits)
    mixed = model(ids, seed=torch.tensor([0, 1])).logits
    assert torch.allclose(mixed[0], model(ids).logits[0])
    assert torch.allclose(mixed[1], model(ids, seed=1).logits[1])
