from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelab.errors import TrainingError
from routelab.train import EncodedRows, TrainConfig, make_plan
from routelab.train.collate import collate
from routelab.train.encode import IGNORED, Document
from routelab.train.plan import best_fit_decreasing


def document(length: int, fill: int) -> Document:
    ids = np.full(length, fill, dtype=np.int32)
    labels = ids.copy()
    labels[: max(1, length // 2)] = IGNORED
    return Document(ids, labels)


def encoded(*lengths: int) -> EncodedRows:
    return EncodedRows(tuple(document(n, i) for i, n in enumerate(lengths)), {}, {})


@given(st.lists(st.integers(1, 32), max_size=60))
def test_packing_loses_nothing_and_respects_the_capacity(lengths: list[int]) -> None:
    rows = best_fit_decreasing(lengths, 32)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    sums = [sum(lengths[i] for i in row) for row in rows]
    assert all(total <= 32 for total in sums)
    # A greedy rule never leaves two rows that would fit into one.
    assert sum(total <= 16 for total in sums) <= 1


def test_packing_is_tight_where_a_perfect_packing_is_easy() -> None:
    assert best_fit_decreasing([2, 6, 3, 5, 4, 4], 8) == [[1, 0], [3, 2], [4, 5]]
    with pytest.raises(TrainingError, match="9 tokens does not fit a packed row of 8"):
        best_fit_decreasing([1, 9], 8)


def test_steps_from_each_budget() -> None:
    data = encoded(*[10] * 10)
    config = {"batch_size": 2, "grad_accum": 2}
    by_steps = make_plan(data, TrainConfig(steps=4, **config), 0)
    assert (by_steps.steps, by_steps.tokens, len(by_steps.batches)) == (4, 160, 8)
    assert by_steps.labelled == 80
    by_tokens = make_plan(data, TrainConfig(tokens=81, **config), 0)
    assert (by_tokens.steps, by_tokens.tokens) == (3, 120)
    by_epochs = make_plan(data, TrainConfig(epochs=3, **config), 0)
    assert (by_epochs.steps, by_epochs.tokens) == (8, 300)
    assert [len(batch) for batch in by_epochs.batches] == [2] * 15
    assert make_plan(data, TrainConfig(steps=8, **config), 0).batches[:15] == by_epochs.batches


@pytest.mark.parametrize("packing", [False, True])
def test_each_epoch_sees_each_document_once_in_an_order_of_its_own(packing: bool) -> None:
    data = encoded(*range(3, 23))
    plan = make_plan(data, TrainConfig(epochs=2, batch_size=3, packing=packing, max_length=32), 7)
    order = [i for batch in plan.batches for row in batch for i in row]
    assert Counter(order[:20]) == Counter(order[20:]) == Counter(range(20))
    assert order[:20] != order[20:]


def test_order_depends_on_the_seed_and_on_nothing_else() -> None:
    data, config = encoded(*range(3, 23)), TrainConfig(epochs=1, batch_size=3)
    plan = make_plan(data, config, 1)
    again = make_plan(encoded(*range(3, 23)), TrainConfig(epochs=1, batch_size=3, learning_rate=1.0), 1)
    assert (plan.batches, plan.fingerprint) == (again.batches, again.fingerprint)
    assert plan.batches != make_plan(data, config, 2).batches
    assert plan.fingerprint != make_plan(data, config, 2).fingerprint


def test_fingerprint_sees_tokens_labels_and_boundaries() -> None:
    config = TrainConfig(epochs=1, batch_size=2)
    base = encoded(4, 4, 4)
    relabelled = Document(base.documents[0].input_ids, np.full(4, IGNORED, dtype=np.int32))
    changed = EncodedRows((relabelled, *base.documents[1:]), {}, {})
    prints = {
        make_plan(base, config, 0).fingerprint,
        make_plan(changed, config, 0).fingerprint,
        make_plan(base, TrainConfig(epochs=1, batch_size=3), 0).fingerprint,
        make_plan(base, TrainConfig(epochs=1, batch_size=2, grad_accum=2), 0).fingerprint,
    }
    assert len(prints) == 4


def test_collate_pads_with_a_mask() -> None:
    batch = collate(encoded(2, 3).documents, [(0,), (1,)], packed=False, pad_token=9)
    assert batch["input_ids"].tolist() == [[0, 0, 9], [1, 1, 1]]
    assert batch["labels"].tolist() == [[IGNORED, 0, IGNORED], [IGNORED, 1, 1]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch.keys() == {"input_ids", "labels", "attention_mask"}


def test_collate_packs_with_restarting_positions_and_without_a_mask() -> None:
    batch = collate(encoded(2, 3, 4).documents, [(0, 1), (2,)], packed=True, pad_token=9)
    assert batch["input_ids"].tolist() == [[0, 0, 1, 1, 1], [2, 2, 2, 2, 9]]
    assert batch["position_ids"].tolist() == [[0, 1, 0, 1, 2], [0, 1, 2, 3, 0]]
    assert batch["labels"].tolist() == [[IGNORED, 0, IGNORED, 1, 1], [IGNORED, IGNORED, 2, 2, IGNORED]]
    assert batch.keys() == {"input_ids", "labels", "position_ids"}
