"""A plan dealt out to processes keeps every row of every step, and gives all processes as many passes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelab.errors import TrainingError
from routelab.train import EncodedRows, TrainConfig, make_plan
from routelab.train.encode import Document
from routelab.train.plan import Plan
from routelab.train.shares import shared_plan


def plan(rows: int, batch_size: int, grad_accum: int) -> Plan:
    documents = tuple(Document(np.full(4, i, dtype=np.int32), np.full(4, i, dtype=np.int32)) for i in range(rows))
    config = TrainConfig(epochs=1, batch_size=batch_size, grad_accum=grad_accum)
    return make_plan(EncodedRows(documents, {}, {}), config, 0)


def rows_of_steps(dealt: Plan) -> list[list[tuple[int, ...]]]:
    steps = range(0, len(dealt.batches), dealt.grad_accum)
    return [
        sorted(
            row
            for number in range(first, min(first + dealt.grad_accum, len(dealt.batches)))
            if number not in dealt.fillers
            for row in dealt.batches[number]
        )
        for first in steps
    ]


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 6), st.integers(1, 8))
def test_every_step_keeps_its_rows(rows: int, batch_size: int, grad_accum: int, processes: int) -> None:
    whole = plan(rows, batch_size, grad_accum)
    dealt = shared_plan(whole, processes, whole_batches=False)
    assert rows_of_steps(dealt) == rows_of_steps(whole)
    assert dealt.grad_accum % processes == 0
    assert len(dealt.batches) % processes == 0
    assert all(dealt.batches)
    assert (dealt.step_tokens, dealt.fingerprint) == (whole.step_tokens, whole.fingerprint)
    examples = [dealt.examples_of_step(step * dealt.grad_accum) for step in range(dealt.steps)]
    assert examples == [len(step) for step in rows_of_steps(whole)]
    # A filler is a row of its own step.
    for number in dealt.fillers:
        assert dealt.batches[number][0] in rows_of_steps(whole)[number // dealt.grad_accum]


def test_batches_are_dealt_whole_where_they_can_be() -> None:
    whole = plan(16, 2, 4)
    assert shared_plan(whole, 1, whole_batches=True) is whole
    for processes in (2, 4):
        assert shared_plan(whole, processes, whole_batches=True).batches == whole.batches
    assert [len(batch) for batch in shared_plan(whole, 8, whole_batches=False).batches] == [1] * 16
    assert whole.passes_of_step(0) == 4
    with pytest.raises(TrainingError, match="grad_accum 4 is no multiple of 8 processes"):
        shared_plan(whole, 8, whole_batches=True)
