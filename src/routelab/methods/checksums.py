"""Whether a host's own tensors are still what they were, for methods that train them without keeping a copy."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from routelab.errors import HostError

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def checksums(state: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the sum of every tensor's bits as integers: exact, in one pass, the same on every device."""
    return {name: _checksum(tensor) for name, tensor in state.items()}


def changed_since(before: Mapping[str, int], state: Mapping[str, Tensor], method: str, advice: str) -> None:
    """Raise ``HostError`` where a tensor of ``state`` has another checksum than ``before``."""
    changed = [name for name, value in before.items() if _checksum(state[name]) != value]
    if changed:
        raise HostError(
            f"cannot detach {method!r}: training changed {len(changed)} of the host's own tensors "
            f"({', '.join(changed[:3])}{' ...' if len(changed) > 3 else ''}), and there is no copy to restore. {advice}"
        )


def _checksum(tensor: Tensor) -> int:
    if tensor.device.type == "meta":
        return 0
    bits = tensor.detach().contiguous().view(_BITS[tensor.element_size()])
    return int(bits.sum(dtype=torch.int64))
