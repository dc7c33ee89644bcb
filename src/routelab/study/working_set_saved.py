"""Supports on disk, one bit a block, so that any measure can be taken again without the model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor

from routelab.errors import CheckpointError

_SHAPES = "shapes"


def save_supports(path: str | Path, supports: Mapping[str, Tensor]) -> None:
    """Write named bool tensors, such as ``{"wise": support [C, B, H, Qb, Kb]}``, to a safetensors file.

    Each is stored as bytes of eight blocks; its shape is in the file's metadata.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = {name: np.packbits(support.cpu().numpy().ravel()) for name, support in supports.items()}
    shapes = {name: list(support.shape) for name, support in supports.items()}
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    save_file(packed, unfinished, metadata={_SHAPES: json.dumps(shapes)})
    os.replace(unfinished, path)


def load_supports(path: str | Path) -> dict[str, Tensor]:
    """Return what :func:`save_supports` wrote.

    Raises:
        CheckpointError: the file is missing, damaged, or holds something else.
    """
    try:
        with safe_open(path, framework="np") as file:
            shapes: dict[str, list[int]] = json.loads((file.metadata() or {})[_SHAPES])
            return {name: _unpacked(file.get_tensor(name), shape) for name, shape in shapes.items()}
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"{os.fspath(path)!r} holds no saved supports: {error}") from error


def _unpacked(packed: np.ndarray, shape: list[int]) -> Tensor:
    bits = np.unpackbits(packed, count=int(np.prod(shape)))
    return torch.from_numpy(bits.astype(bool).reshape(shape))
