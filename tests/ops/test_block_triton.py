"""The Triton kernels against the references, in Triton's interpreter; its switch is read at import, so in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

CHECK = """
import torch
from routelab.ops.attention_lse import attention_lse
from routelab.ops.block_grid import BlockGrid
from routelab.ops.block_mass import block_mass
from routelab.ops.block_sparse import block_sparse, prepare

torch.use_deterministic_algorithms(True)  # uninitialised memory is NaN
for batch, heads, groups, q, k, d, size, rows, lengths in [
    (2, 4, 2, 70, 70, 64, 32, None, (70, 49)),
    (1, 2, 1, 37, 70, 96, 32, None, None),
    (1, 2, 1, 37, 70, 96, 16, 1, None),
    (2, 2, 2, 1, 41, 128, 32, None, None),
]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, q, heads, d), (batch, k, groups, d), (batch, k, groups, d)]
    tensors = [torch.randn(shape, generator=generator).transpose(1, 2) for shape in shapes]
    exact = [x.double() for x in tensors]
    grid = BlockGrid(q, k, size, rows or size)
    layout = torch.rand(batch, heads, grid.query_blocks, grid.key_blocks, generator=generator) < 0.5
    options = {"block_size": size, "query_block": rows, "lengths": lengths and torch.tensor(lengths)}
    schedule = prepare(layout, *tensors[:2], **options, backend="triton")
    assert schedule.backend == "triton"
    error = block_sparse(*tensors, schedule) - block_sparse(*exact, layout, **options, backend="reference")
    assert error.abs().max() <= 4e-6, error.abs().max()
    assert torch.equal(schedule.layout(), prepare(layout, *tensors[:2], **options, backend="reference").layout())
    lse = attention_lse(*exact, backend="reference")[1]
    own = block_mass(*tensors[:2], lse.float(), **options, backend="triton")
    error = own - block_mass(*exact[:2], lse, **options, backend="reference")
    assert error.abs().max() <= 3e-6, error.abs().max()
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed: pip install triton (Linux)")
def test_kernels_equal_references():
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", CHECK], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
