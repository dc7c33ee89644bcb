"""Block mass: the definition in loops, the reference, the tiled form; and its errors."""

from __future__ import annotations

import math

import pytest
import torch

from routelab.errors import BackendError, ConfigError, RoutelabError
from routelab.ops import native
from routelab.ops.attention_lse import attention_lse
from routelab.ops.block_grid import BlockGrid
from routelab.ops.block_mass import block_mass
from routelab.ops.block_mass_tiled import TILE_COLUMNS, TILE_ROWS

# batch, heads, groups, q, k, d, block size, query block, lengths
CASES = [
    pytest.param(1, 2, 2, 64, 64, 16, 16, None, None, id="whole blocks"),
    pytest.param(2, 4, 2, 70, 70, 16, 16, None, (70, 49), id="partial last block, grouped, padded"),
    pytest.param(2, 4, 1, 37, 70, 96, 16, None, None, id="q shorter than k, off the grid, head size 96"),
    pytest.param(3, 2, 1, 1, 41, 16, 32, None, (41, 40, 9), id="one query, some padded"),
    pytest.param(2, 2, 2, 5, 21, 16, 16, None, None, id="queries of two blocks"),
    pytest.param(2, 2, 2, 5, 5, 16, 16, None, (5, 2), id="less than a block"),
    pytest.param(2, 4, 2, 70, 70, 16, 16, 1, (70, 49), id="a row per token"),
    pytest.param(1, 2, 1, 37, 70, 16, 32, 1, None, id="a row per token, q shorter than k"),
    pytest.param(1, 1, 1, TILE_ROWS + 40, TILE_COLUMNS + 300, 16, 48, None, None, id="several tiles, odd block"),
]
FORM = ("batch", "heads", "groups", "q", "k", "d", "size", "rows", "lengths")
NATIVE_CASES = [case for case in CASES if case.values[7] is None]
needs_compiler = pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler: install g++ or clang++")


def test_reference_is_the_definition(inputs):
    batch, heads, groups, q, k, size = 2, 2, 1, 5, 9, 4
    query, key, value = inputs(batch, heads, groups, q, k, 3)
    lengths = torch.tensor([9, 7])
    _, lse = attention_lse(query, key, value, scale=0.7, backend="reference")
    mass = block_mass(query, key, lse, block_size=size, lengths=lengths, scale=0.7, backend="reference")
    expected = torch.zeros(batch, heads, 2, 3).double()  # positions 4 … 8 touch the grid's blocks 1 and 2
    for b in range(batch):
        for h in range(heads):
            for row, positions in enumerate([range(4, 8), range(8, 9)]):
                real = [p for p in positions if p < lengths[b]]
                for p in real:
                    scores = [0.7 * float(query[b, h, p - 4] @ key[b, 0, j]) for j in range(p + 1)]
                    total = sum(math.exp(s) for s in scores)
                    for j, score in enumerate(scores):
                        expected[b, h, row, j // size] += math.exp(score) / total / len(real)
    torch.testing.assert_close(mass, expected)


@pytest.mark.parametrize(FORM, CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_tiled_equals_reference(inputs, batch, heads, groups, q, k, d, size, rows, lengths, dtype):
    query, key, value = inputs(batch, heads, groups, q, k, d, dtype)
    options = {"block_size": size, "query_block": rows, "lengths": lengths and torch.tensor(lengths)}
    exact = (query.double(), key.double(), value.double())
    _, lse = attention_lse(*exact, backend="reference")
    expected = block_mass(*exact[:2], lse, **options, backend="reference")
    found = block_mass(query, key, lse.to(torch.promote_types(dtype, torch.float32)), **options, backend="tiled")
    check(found, expected, BlockGrid(q, k, size, rows or size), lengths or [k] * batch, dtype)


@needs_compiler
@pytest.mark.parametrize(FORM, NATIVE_CASES)
def test_native_equals_reference(inputs, batch, heads, groups, q, k, d, size, rows, lengths):
    query, key, value = inputs(batch, heads, groups, q, k, d, torch.float32)
    options = {"block_size": size, "lengths": lengths and torch.tensor(lengths)}
    exact = (query.double(), key.double(), value.double())
    _, lse = attention_lse(*exact, backend="reference")
    expected = block_mass(*exact[:2], lse, **options, backend="reference")
    mass = block_mass(query, key, lse.float(), **options, backend="native")
    check(mass, expected, BlockGrid(q, k, size, size), lengths or [k] * batch, torch.float32)
    assert torch.equal(block_mass(query, key, lse.float(), **options), mass), "auto takes it"
    apart = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in (query, key)]
    assert torch.equal(block_mass(*apart, lse.float(), **options, backend="native"), mass), "strides change nothing"


@needs_compiler
@pytest.mark.parametrize("size", [16, 512, 2048, 2**20])
def test_native_sums_keep_their_digits(size):
    """Equal weights, many to a block; and a block that is longer than all there is."""
    tokens = min(2 * size, 4096)
    query = torch.zeros(1, 1, tokens, 1)
    lse = torch.arange(1, tokens + 1).log()[None, None]
    mass = block_mass(query, query, lse, block_size=size, backend="native")
    assert (mass.sum(-1) - 1).abs().max() <= 2e-6


def check(mass, expected, grid, lengths, dtype):
    """Close to what is expected, zero where nobody can look, and one where somebody does."""
    assert mass.shape == (*expected.shape[:2], grid.query_blocks, grid.key_blocks)
    assert mass.dtype == torch.promote_types(dtype, torch.float32)
    # Rounding of a score, relative to the weight, and of a sum of at most one.
    assert (mass - expected).abs().max() <= (1e-13 if dtype == torch.float64 else 3e-6)
    assert not mass.masked_select(~grid.admissible()).any()
    real = grid.real(torch.tensor(lengths))[:, None] > 0
    torch.testing.assert_close(mass.sum(-1), real.expand(mass.shape[:3]).to(mass.dtype), atol=1e-5, rtol=0.0)


def test_mass_of_a_block_is_the_mean_of_its_tokens(inputs):
    query, key, value = inputs(1, 2, 2, 64, 64, 8)
    _, lse = attention_lse(query, key, value)
    tokens = block_mass(query, key, lse, block_size=16, query_block=1)
    torch.testing.assert_close(block_mass(query, key, lse, block_size=16), tokens.unflatten(2, (4, 16)).mean(3))


def test_large_scores_of_later_keys_do_not_matter(inputs):
    """They would overflow; causality takes them out before anything is summed."""
    query, key, value = inputs(1, 1, 1, 40, 40, 8, torch.float32)
    _, lse = attention_lse(query[:, :, :8], key[:, :, :8], value[:, :, :8])
    key[:, :, 8:] *= 1e4
    mass = block_mass(query[:, :, :8], key[:, :, :8], lse, block_size=16)
    whole = block_mass(query, key, torch.cat([lse, torch.full((1, 1, 32), 1e9)], -1), block_size=16)
    assert mass.isfinite().all()
    assert whole.isfinite().all()


def test_the_matrix_is_never_there(inputs):
    from routelab.bench.timing import peak_bytes

    query, key, value = inputs(1, 2, 2, 4096, 4096, 8, torch.float32)
    _, lse = attention_lse(query, key, value)
    assert peak_bytes(lambda: block_mass(query, key, lse, block_size=64), "cpu") < 4096 * 4096 * 4 / 8
    assert peak_bytes(lambda: attention_lse(query, key, value), "cpu") < 4096 * 4096 * 4 / 8


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"block_size": 0}, ConfigError, "block_size must be"),
        ({"query_block": 3}, ConfigError, "query_block must be 1 or block_size"),
        ({"lse": torch.zeros(1, 2, 3)}, ConfigError, "lse must be"),
        ({"lengths": torch.tensor([11])}, ConfigError, "between 1 and the 10 keys"),
        ({"lengths": torch.tensor([1.0])}, ConfigError, "one integer a row"),
        ({"scale": 0.0}, ConfigError, "scale must be"),
        ({"backend": "native"}, BackendError, "a multiple of 16 positions, got 4; try 'tiled'"),
        ({"backend": "tilde"}, BackendError, "did you mean 'tiled'"),
        ({"key": torch.zeros(1, 3, 10, 8)}, ConfigError, "divide query heads"),
        ({"key": torch.zeros(1, 2, 5, 8)}, ConfigError, "q > k"),
        ({"key": torch.zeros(1, 2, 10, 8).double()}, ConfigError, "one floating dtype"),
    ],
)
def test_bad_input_is_named(change, error, words):
    good = {"query": torch.zeros(1, 2, 10, 8), "key": torch.zeros(1, 2, 10, 8), "lse": torch.zeros(1, 2, 10)}
    with pytest.raises(error, match=words):
        block_mass(**{**good, "block_size": 4, **change})


def test_triton_is_never_replaced(inputs):
    query, key, _ = inputs(1, 2, 2, 10, 10, 8, torch.float32)
    with pytest.raises(RoutelabError, match="triton"):
        block_mass(query, key, torch.zeros(1, 2, 10), block_size=4, backend="triton")
