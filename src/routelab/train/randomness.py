"""The random states of torch, its GPUs, numpy and Python, as tensors."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor


def random_states() -> dict[str, Tensor]:
    """Return all global random states by name."""
    version, words, gauss = random.getstate()
    _, key, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002 - the global one is the point
    states = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor([version, *words, math.nan if gauss is None else gauss], dtype=torch.float64),
        "numpy": torch.tensor([*np.asarray(key).tolist(), position, has_gauss, cached], dtype=torch.float64),
    }
    if torch.cuda.is_available():
        states.update({f"cuda-{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())})
    return states


def restore_random_states(states: Mapping[str, Tensor]) -> None:
    """Put back what :func:`random_states` returned; the states of GPUs only where there are as many as then."""
    torch.set_rng_state(states["torch"])
    version, *words, gauss = states["python"].tolist()
    random.setstate((int(version), tuple(map(int, words)), None if math.isnan(gauss) else gauss))
    *key, position, has_gauss, cached = states["numpy"].tolist()
    words32 = np.array(key, dtype=np.uint32)
    np.random.set_state(("MT19937", words32, int(position), int(has_gauss), cached))  # noqa: NPY002
    gpus = [states[f"cuda-{i}"] for i in range(len(states)) if f"cuda-{i}" in states]
    if gpus and torch.cuda.device_count() == len(gpus):
        torch.cuda.set_rng_state_all(gpus)
