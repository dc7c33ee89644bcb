"""Per-head measures: what a head's own blocks say."""

from __future__ import annotations

import json

import pytest
import torch

from routelab.errors import EvaluationError
from routelab.methods.wise.config import WISEConfig
from routelab.study.working_set import audit_size_matched, coverage, settled_at
from routelab.study.working_set_heads import Heads, heads, summarise_heads
from routelab.study.working_set_masses import Masses

STEPS = 8
CONFIG = WISEConfig(discovery_steps=4, window=2, block_size=8, mass=0.7)


@pytest.fixture(scope="module")
def masses() -> Masses:
    """One core block, one example, two heads, one query block of three key blocks.

    Head 0 looks at block 0 all along; head 1 at block 0 in its first two steps and at block 2 from then on.
    """
    still, moved = torch.tensor([0.8, 0.1, 0.1]), torch.tensor([0.1, 0.1, 0.8])
    steps = [torch.stack([still, still if t < 2 else moved]) for t in range(STEPS)]
    return Masses(
        mass=torch.stack(steps)[:, None, None, :, None],
        allowed=torch.ones(1, 1, 1, 3, dtype=torch.bool),
        query_blocks=torch.tensor([[2]]),
        queries=torch.tensor([[8]]),
    )


def test_a_head_that_moves_early_gains_from_discovery(masses: Masses) -> None:
    (found,) = heads(masses, CONFIG)
    assert found.early_late == [[1.0, 0.0]]
    assert found.size_matched == [pytest.approx([0.8, 0.1])]
    assert found.gain == [pytest.approx([0.0, 0.7])]
    # Head 1's sets of two steps: {0} {0} {0,2} {2} {2} …: transitions 1, ½, ½, 1, 1, 1, so known at step 7.
    assert found.settled == [[4, 7]]
    assert settled_at([1.0, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0], 0.9) == 7
    assert audit_size_matched(masses, CONFIG).exact


def test_heads_average_to_the_example(masses: Masses) -> None:
    (found,) = heads(masses, CONFIG)
    (wise,) = coverage(masses, CONFIG)
    mean = torch.tensor(found.size_matched) + torch.tensor(found.gain)
    assert float(mean.mean()) == pytest.approx(wise.future_mass)


def test_the_summary_correlates_over_heads() -> None:
    examples = [
        Heads([[0.9, 0.5], [0.4, 0.1]], [[0.0, 0.1], [0.2, 0.4]], [[0.9] * 2] * 2, [[4, 6], [8, 10]]),
        Heads([[0.7, 0.5], [0.2, 0.1]], [[0.0, 0.1], [0.2, 0.2]], [[0.7] * 2] * 2, [[4, 6], [6, 8]]),
    ]
    found = summarise_heads(examples)
    assert found["settled"] == [[4.0, 6.0], [7.0, 9.0]]
    assert found["gain"][1] == pytest.approx([0.2, 0.3])
    assert found["correlation"] == {"settled": pytest.approx(1.0), "early_late": pytest.approx(-1.0)}
    assert json.loads(json.dumps(found)) == found
    constant = Heads([[0.5, 0.4]], [[0.1, 0.1]], [[0.9, 0.9]], [[4, 5]])
    assert summarise_heads([constant])["correlation"] == {"settled": None, "early_late": None}
    with pytest.raises(EvaluationError, match="no example"):
        summarise_heads([])
