"""FSDP2: which modules of a host are sharded, and what attached methods need under it.

FSDP replaces every parameter by its shard and gathers a module's parameters around its forward and backward pass. A
decoder layer is the unit. Two things of Routelab's need care, and :func:`shard` takes it:

- One unit has parameters of one dtype. AAR's new parameters are float32, also in a bfloat16 host: they get a unit of
  their own inside the layer's.
- All processes reduce the same gradients. A path-locked expert that no token of *this* process visited has none, so the
  processes would reduce different sets. Every pass therefore touches all of them with a zero; :meth:`Sharded.settle`
  takes the gradients away again from experts that no process visited, which must rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from routelab import processes
from routelab.errors import TrainingError
from routelab.hosts.locate import backbone_of
from routelab.methods.attachment import attached

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass
class Sharded:
    """A sharded model.

    Attributes:
        units: modules that are gathered as one, innermost first; the whole model is the last.
        visited: the modules of conditional parameters that this process has run since the last :meth:`settle`.
    """

    model: PreTrainedModel
    units: list[nn.Module]
    conditional: list[nn.Module]
    visited: set[nn.Module] = field(default_factory=set)

    def settle(self) -> None:
        """Take the gradients from conditional parameters that no process visited. Call it before every optimiser step,
        on every process."""
        flags = torch.tensor([float(module in self.visited) for module in self.conditional])
        for module, visits in zip(self.conditional, processes.add_up(flags).tolist(), strict=True):
            if not visits:
                for parameter in module.parameters(recurse=False):
                    parameter.grad = None
        self.visited.clear()


def layer_classes(model: PreTrainedModel) -> list[str]:
    """Return the class names of a model's decoder layers: ``fsdp_transformer_layer_cls_to_wrap`` of accelerate.

    An attached method may have changed them: a path-locked ``Qwen3DecoderLayer`` is a
    ``PlannedLayerQwen3DecoderLayer``.
    """
    return sorted({type(layer).__name__ for layer in backbone_of(model).layers})


def shard(model: PreTrainedModel, **options: Any) -> Sharded:
    """Shard a model with its attached methods in place, by ``torch.distributed.fsdp.fully_shard``.

    Attach first, shard then, make the optimiser last: it must hold the shards. ``routelab.save``, called on every
    process, gathers and writes what one process would have written.

    Args:
        options: of ``fully_shard``: ``mesh``, ``mp_policy``, ``offload_policy``, ``reshard_after_forward``.

    Raises:
        TrainingError: the processes have not joined, or the model has no weights or is sharded already.
        HostError: the model is no causal language model over decoder layers.
    """
    from torch.distributed.fsdp import FSDPModule, fully_shard

    if not torch.distributed.is_initialized():
        raise TrainingError("there are no processes to shard over: start with torchrun, call routelab.processes.join()")
    if isinstance(model, FSDPModule):
        raise TrainingError("the model is sharded already")
    layers = list(backbone_of(model).layers)
    if any(parameter.device.type == "meta" for parameter in model.parameters()):
        raise TrainingError("the model has no weights: some parameters are on the meta device")
    sharded = Sharded(model, [], _conditional_modules(model))
    for layer in layers:
        _touch_all(layer, sharded)  # before fully_shard: a hook must run while the layer is gathered
        for unit in [*_of_another_dtype(layer), layer]:
            fully_shard(unit, **options)
            sharded.units.append(unit)
    fully_shard(model, **options)
    sharded.units.append(model)
    return sharded


def _conditional_modules(model: PreTrainedModel) -> list[nn.Module]:
    wanted = {id(p) for method in attached(model) for p in method.conditional_parameters() if p.requires_grad}
    return [m for m in model.modules() if any(id(p) in wanted for p in m.parameters(recurse=False))]


def _of_another_dtype(layer: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost modules of a layer whose trained parameters are of another dtype than most of the layer's."""
    usual = Counter(parameter.dtype for parameter in layer.parameters()).most_common(1)[0][0]
    waiting = list(layer.children())
    while waiting:
        module = waiting.pop()
        found = {parameter.dtype for parameter in module.parameters() if parameter.requires_grad}
        if found and usual not in found:
            yield module
        else:
            waiting += module.children()


def _touch_all(layer: nn.Module, sharded: Sharded) -> None:
    own = set(layer.modules())
    modules = [module for module in sharded.conditional if module in own]
    for module in modules:
        module.register_forward_pre_hook(partial(_visit, sharded.visited))
    if modules:
        layer.register_forward_hook(partial(_touch, modules))


def _visit(visited: set[nn.Module], module: nn.Module, args: Any) -> None:
    if torch.is_grad_enabled():
        visited.add(module)


def _touch(modules: list[nn.Module], layer: nn.Module, args: Any, output: Any) -> Any:
    """Add zero times every conditional parameter of a layer to its output, the hidden states."""
    if not torch.is_grad_enabled():
        return output
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    parameters = [parameter for module in modules for parameter in module.parameters(recurse=False)]
    zero = torch.stack([parameter.flatten()[0] for parameter in parameters]).sum() * 0
    hidden = hidden + zero.to(hidden.dtype)
    return (hidden, *output[1:]) if isinstance(output, tuple) else hidden
