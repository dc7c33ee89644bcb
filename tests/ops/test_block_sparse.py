"""Attention inside a block layout: the definition in loops, every backend against it, schedules; and its errors."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from routelab.errors import BackendError, ConfigError, RoutelabError
from routelab.ops import native
from routelab.ops.block_grid import BlockGrid
from routelab.ops.block_sparse import block_sparse, prepare
from routelab.ops.block_sparse_flex import _compiled

# batch, heads, groups, q, k, d, block size, query block, lengths
CASES = [
    pytest.param(1, 2, 2, 64, 64, 16, 16, None, None, id="whole blocks"),
    pytest.param(2, 4, 2, 70, 70, 16, 16, None, (70, 49), id="partial last block, grouped, padded"),
    pytest.param(2, 4, 1, 37, 70, 96, 16, None, None, id="q shorter than k, off the grid, head size 96"),
    pytest.param(3, 2, 1, 1, 41, 16, 32, None, None, id="one query"),
    pytest.param(2, 2, 2, 5, 21, 16, 16, None, None, id="queries of two blocks"),
    pytest.param(2, 2, 2, 5, 5, 16, 16, None, (5, 2), id="less than a block"),
    pytest.param(2, 4, 2, 70, 70, 16, 16, 1, (70, 49), id="a row per token"),
    pytest.param(1, 2, 1, 37, 70, 16, 32, 1, None, id="a row per token, q shorter than k"),
    pytest.param(2, 2, 1, 1, 41, 16, 32, 1, None, id="a row per token, one query"),
]
# what "native" has besides: several chunks of keys, odd head sizes, blocks of other sizes
NATIVE_CASES = [
    *(case for case in CASES if case.values[7] is None),
    pytest.param(1, 2, 1, 1100, 1100, 20, 16, None, None, id="several chunks, head size 20"),
    pytest.param(2, 2, 1, 300, 700, 8, 48, None, (700, 650), id="blocks of 48, q shorter than k, padded"),
    pytest.param(1, 1, 1, 1300, 1300, 33, 640, None, None, id="blocks longer than a chunk"),
]
FORM = ("batch", "heads", "groups", "q", "k", "d", "size", "rows", "lengths")
needs_compiler = pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler: install g++ or clang++")
BUDGET = {torch.float64: 1e-14, torch.float32: 4e-6, torch.bfloat16: 4 * 2**-7}


def layout_for(grid: BlockGrid, batch: int, heads: int, seed: int = 0) -> Tensor:
    """Half the causal blocks; the first query block reads nothing, and some do not read their own."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(batch, heads, grid.query_blocks, grid.key_blocks, generator=generator) < 0.5
    if grid.query_blocks > 1:
        drawn[:, :, 0] = False
    return drawn & grid.admissible()


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention through dynamo but without a C++ compiler, which takes half a minute a shape."""
    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", lambda run, **options: compiler(run, backend="eager", **options))
    _compiled.cache_clear()
    torch.compiler.reset()


@pytest.mark.parametrize("rows", [4, 1])
def test_reference_is_the_definition(inputs: Callable[..., tuple[Tensor, ...]], rows: int) -> None:
    batch, heads, groups, q, k, size = 2, 2, 1, 6, 10, 4
    query, key, value = inputs(batch, heads, groups, q, k, 3)
    layout = layout_for(BlockGrid(q, k, size, rows), batch, heads)
    options = {"block_size": size, "query_block": rows, "scale": 0.7, "backend": "reference"}
    output = block_sparse(query, key, value, layout, **options)
    for b in range(batch):
        for h in range(heads):
            for i in range(q):
                position = i + k - q
                row = layout[b, h, position // rows - (k - q) // rows]
                seen = [j for j in range(position + 1) if row[j // size]]
                weights = [math.exp(0.7 * float(query[b, h, i] @ key[b, 0, j])) for j in seen]
                expected = sum(
                    (w * value[b, 0, j] for w, j in zip(weights, seen, strict=True)), torch.zeros(3).double()
                )
                torch.testing.assert_close(output[b, h, i], expected / (sum(weights) or 1.0))


@pytest.mark.parametrize(FORM, CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_gather_equals_reference(inputs, batch, heads, groups, q, k, d, size, rows, lengths, dtype):
    tensors = inputs(batch, heads, groups, q, k, d, dtype)
    layout = layout_for(BlockGrid(q, k, size, rows or size), batch, heads)
    options = {"block_size": size, "query_block": rows, "lengths": lengths and torch.tensor(lengths)}
    schedule = prepare(layout, *tensors[:2], **options, backend="gather")
    output = block_sparse(*tensors, schedule)
    expected = block_sparse(*(x.double() for x in tensors), layout, **options, backend="reference")
    assert schedule.backend == "gather"
    assert output.dtype == dtype
    assert (output - expected).abs().max() <= BUDGET[dtype]
    assert torch.equal(block_sparse(*tensors, schedule), output), "a schedule is used again"
    contiguous = [x.contiguous() for x in tensors]
    assert (block_sparse(*contiguous, schedule) - expected).abs().max() <= BUDGET[dtype]


@needs_compiler
@pytest.mark.parametrize(FORM, NATIVE_CASES)
def test_native_equals_reference(inputs, batch, heads, groups, q, k, d, size, rows, lengths):
    tensors = inputs(batch, heads, groups, q, k, d, torch.float32)
    layout = layout_for(BlockGrid(q, k, size, size), batch, heads)
    options = {"block_size": size, "lengths": lengths and torch.tensor(lengths)}
    schedule = prepare(layout, *tensors[:2], **options, backend="native")
    output = block_sparse(*tensors, schedule)
    expected = block_sparse(*(x.double() for x in tensors), layout, **options, backend="reference")
    assert (output - expected).abs().max() <= BUDGET[torch.float32]
    contiguous = [x.contiguous() for x in tensors]
    assert torch.equal(block_sparse(*contiguous, schedule), output), "strides change nothing"
    scattered = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in tensors]
    assert torch.equal(block_sparse(*scattered, schedule), output), "nor does a head size that does not come last"


@needs_compiler
def test_native_on_several_threads_gives_the_same_bits(inputs):
    tensors = inputs(2, 4, 2, 300, 300, 24, torch.float32)
    layout = layout_for(BlockGrid(300, 300, 16, 16), 2, 4)
    threads = torch.get_num_threads()
    outputs = []
    for number in (1, 3):
        torch.set_num_threads(number)
        outputs.append(block_sparse(*tensors, layout, block_size=16, backend="native"))
    torch.set_num_threads(threads)
    assert torch.equal(*outputs)


@needs_compiler
def test_native_hides_no_overflow(inputs):
    """A number that is none stays one for those who read it; large scores stay finite."""
    query, key, value = inputs(1, 1, 1, 64, 64, 16, torch.float32)
    layout = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    layout[..., 1] = False
    key[0, 0, 20] = torch.nan
    run = {"layout": layout, "block_size": 16, "backend": "native"}
    assert block_sparse(query, key, value, **run).isfinite().all(), "nobody reads key 20"
    key[0, 0, 40] = torch.nan
    broken = block_sparse(query, key, value, **run).isnan().all(-1)[0, 0]
    assert broken.tolist() == [False] * 40 + [True] * 24
    strong = query.nan_to_num() * 1e4, key.nan_to_num() * 1e4, value
    expected = block_sparse(*(x.double() for x in strong), layout, block_size=16, backend="reference")
    torch.testing.assert_close(block_sparse(*strong, **run), expected.float(), atol=1e-5, rtol=0)


@needs_compiler
def test_native_rows_that_see_nothing_but_minus_infinity(inputs):
    """A first chunk of keys may be out of reach by overflow; what follows counts all the same."""
    query, key, value = (x[..., :1] for x in inputs(1, 1, 1, 1100, 1100, 8, torch.float32))
    query = torch.full_like(query, 1e20)
    key = torch.where(torch.arange(1100)[:, None] < 600, -1e20, key * 1e-20)
    layout = torch.ones(1, 1, 69, 69, dtype=torch.bool)
    options = {"block_size": 16, "scale": 1.0}
    found = block_sparse(query, key, value, layout, **options, backend="native")[0, 0, 600:]
    expected = block_sparse(query, key, value, layout, **options, backend="gather")[0, 0, 600:]
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected)


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "dtype", "options", "backend"),
    [
        ((1, 2, 40, 8), torch.float32, {}, "native"),
        ((1, 2, 40, 8), torch.float64, {}, "gather"),
        ((1, 2, 40, 8), torch.bfloat16, {}, "gather"),
        ((1, 2, 40, 8), torch.float32, {"query_block": 1}, "gather"),
        ((1, 2, 40, 8), torch.float32, {"block_size": 24}, "gather"),
        ((1, 2, 1, 8), torch.float32, {}, "gather"),
    ],
    ids=["float32", "float64", "bfloat16", "a row per token", "blocks of 24", "decoding"],
)
def test_auto_says_what_it_chose(shape, dtype, options, backend):
    query, key = torch.zeros(shape, dtype=dtype), torch.zeros(1, 2, 40, 8, dtype=dtype)
    options = {"block_size": 16, **options}
    grid = BlockGrid.of(query, key, options["block_size"], options.get("query_block"))
    layout = torch.ones(1, 2, grid.query_blocks, grid.key_blocks, dtype=torch.bool)
    assert prepare(layout, query, key, **options).backend == backend
    assert prepare(layout, query.requires_grad_(), key, **options).backend == "gather", "gradients are wanted"
    with torch.no_grad():
        assert prepare(layout, query, key, **options).backend == backend


def test_auto_gives_the_value_its_gradient(inputs):
    query, key, value = inputs(1, 2, 2, 40, 40, 8, torch.float32)
    layout = torch.ones(1, 2, 3, 3, dtype=torch.bool)
    block_sparse(query, key, value.requires_grad_(), layout, block_size=16).sum().backward()
    assert value.grad is not None


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(FORM, [CASES[1], CASES[2], CASES[7]])
def test_flex_equals_reference(inputs, batch, heads, groups, q, k, d, size, rows, lengths):
    """Without fusion FlexAttention reads nothing but ``mask_mod``, which must hold the whole support."""
    tensors = inputs(batch, heads, groups, q, k, d, torch.float32)
    layout = layout_for(BlockGrid(q, k, size, rows or size), batch, heads)
    options = {"block_size": size, "query_block": rows, "lengths": lengths and torch.tensor(lengths)}
    output = block_sparse(*tensors, layout, **options, backend="flex")
    expected = block_sparse(*(x.double() for x in tensors), layout, **options, backend="reference")
    assert (output - expected).abs().max() <= BUDGET[torch.float32]


@pytest.mark.parametrize("backend", ["gather", "flex", "reference", pytest.param("native", marks=needs_compiler)])
@pytest.mark.parametrize(FORM, CASES)
def test_layouts_round_trip(inputs, batch, heads, groups, q, k, d, size, rows, lengths, backend):
    if backend == "native" and rows == 1:
        backend = "gather"  # the one that "auto" takes there
    tensors = inputs(batch, heads, groups, q, k, d, torch.float32)
    grid = BlockGrid(q, k, size, rows or size)
    layout = layout_for(grid, batch, heads)
    schedule = prepare(layout, *tensors[:2], block_size=size, query_block=rows, backend=backend)
    assert schedule.backend == backend
    assert torch.equal(schedule.layout(), layout)
    ends = torch.tensor(lengths or [k] * batch)
    everything = torch.ones_like(layout)
    shorter = prepare(everything, *tensors[:2], block_size=size, query_block=rows, lengths=ends, backend=backend)
    real = (grid.real(ends) > 0)[:, None, :, None]
    assert torch.equal(shorter.layout(), (everything & grid.admissible() & real)), "neither later blocks nor padding"


def test_all_blocks_are_full_attention(inputs):
    tensors = inputs(2, 4, 2, 70, 70, 16, torch.float32)
    layout = torch.ones(2, 4, 5, 5, dtype=torch.bool)
    full = scaled_dot_product_attention(*tensors, is_causal=True, enable_gqa=True)
    for backend in ("gather", "auto"):
        assert (block_sparse(*tensors, layout, block_size=16, backend=backend) - full).abs().max() <= 2e-6


@pytest.mark.usefixtures("uncompiled")
def test_more_shapes_than_dynamo_recompiles(inputs):
    """Beyond its limit dynamo would run FlexAttention unfused, which ignores block lists; here nothing recompiles."""
    for length in (16, 17, 30, 40, 60, 100):
        tensors = inputs(1, 2, 2, length, length, 8, torch.float32)
        layout = layout_for(BlockGrid(length, length, 16, 16), 1, 2, seed=length)
        schedule = prepare(layout, *tensors[:2], block_size=16, backend="flex")
        with torch._dynamo.config.patch(recompile_limit=2):
            output = block_sparse(*tensors, schedule)
        expected = block_sparse(*(x.double() for x in tensors), layout, block_size=16, backend="reference")
        assert schedule.backend == "flex"
        assert (output - expected).abs().max() <= BUDGET[torch.float32]
    assert _compiled.cache_info().currsize == 4  # 1, 2, 4 and 8 blocks


def test_flex_raises_where_dynamo_gives_up(inputs, monkeypatch):
    """What reports "flex" is the fused kernel or an error, never its unfused stand-in."""
    options = {}
    monkeypatch.setattr(torch, "compile", lambda run, **given: options.update(given) or run)
    _compiled.cache_clear()
    _compiled(("a bucket",))
    _compiled.cache_clear()
    assert options == {"dynamic": False, "fullgraph": True}


@pytest.mark.parametrize("q", [40, 1])
def test_gradients_of_gather(inputs, q):
    tensors = [x.requires_grad_() for x in inputs(1, 4, 2, q, 40, 8)]
    layout = layout_for(BlockGrid(q, 40, 16, 16), 1, 4)
    layout[..., 0] = True
    results = []
    for backend in ("gather", "reference"):
        output = block_sparse(*tensors, layout, block_size=16, backend=backend)
        results.append(torch.autograd.grad(output.square().sum(), tensors))
    torch.testing.assert_close(*results, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("backend", ["flex", pytest.param("native", marks=needs_compiler)])
def test_no_gradient_is_an_error(inputs, backend):
    tensors = [x.requires_grad_() for x in inputs(1, 2, 2, 16, 16, 8, torch.float32)]
    schedule = prepare(torch.ones(1, 2, 1, 1).bool(), *tensors[:2], block_size=16, backend=backend)
    assert not schedule.differentiable
    with pytest.raises(BackendError, match=f"'{backend}' has no gradient"):
        block_sparse(*tensors, schedule)


def test_decoding_reads_its_blocks_only(inputs):
    """What is not in the support is not touched: it could be anything."""
    query, key, value = inputs(1, 2, 2, 1, 70, 8, torch.float32)
    layout = torch.tensor([True, False, False, False, True]).expand(1, 2, 1, 5)
    schedule = prepare(layout, query, key, block_size=16)
    before = block_sparse(query, key, value, schedule)
    for x in (key, value):
        x[:, :, 16:64] = torch.nan
    assert torch.equal(block_sparse(query, key, value, schedule), before)


def test_the_matrix_is_never_there(inputs):
    from routelab.bench.timing import peak_bytes

    tensors = inputs(1, 2, 2, 4096, 4096, 8, torch.float32)
    layout = layout_for(BlockGrid(4096, 4096, 64, 64), 1, 2)
    schedule = prepare(layout, *tensors[:2], block_size=64)
    assert peak_bytes(lambda: block_sparse(*tensors, schedule), "cpu") < 4096 * 4096 * 4 / 8
    build = peak_bytes(lambda: prepare(layout, *tensors[:2], block_size=64), "cpu")
    assert build < 4096 * 4096 * 4 / 8


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"layout": torch.ones(1, 2, 3, 3)}, ConfigError, "layout must be bool"),
        ({"layout": torch.ones(1, 2, 3, 4).bool()}, ConfigError, "on this grid"),
        ({"block_size": None}, ConfigError, "block_size is needed"),
        ({"block_size": True}, ConfigError, "block_size must be an integer"),
        ({"query_block": 2}, ConfigError, "must be 1 or block_size"),
        ({"backend": "gathers"}, BackendError, "did you mean 'gather'"),
        ({"backend": "flex"}, BackendError, "blocks of at least 16"),
        ({"backend": "native"}, BackendError, "a multiple of 16 positions, got 4; try 'gather'"),
        (
            {"backend": "native", "query_block": 1, "layout": torch.ones(1, 2, 10, 3).bool()},
            BackendError,
            "row for every token",
        ),
        ({"backend": "triton"}, RoutelabError, "triton"),
        ({"lengths": torch.tensor([0])}, ConfigError, "between 1 and"),
        ({"value": torch.zeros(1, 2, 9, 8)}, ConfigError, "of one shape"),
    ],
)
def test_bad_input_is_named(change, error, words):
    tensors = {name: torch.zeros(1, 2, 10, 8) for name in ("query", "key", "value")}
    good = {**tensors, "layout": torch.ones(1, 2, 3, 3).bool(), "block_size": 4}
    with pytest.raises(error, match=words):
        block_sparse(**{**good, **change})


def test_schedules_are_for_their_shapes(inputs):
    query, key, value = inputs(1, 2, 2, 20, 20, 8)
    schedule = prepare(torch.ones(1, 2, 2, 2).bool(), query, key, block_size=16)
    with pytest.raises(ConfigError, match="was made for query"):
        block_sparse(query[:, :, 1:], key, value, schedule)
    with pytest.raises(ConfigError, match="give them to prepare"):
        block_sparse(query, key, value, schedule, block_size=16)
