"""Refuse packed rows whose documents would see each other.

transformers keeps packed documents apart (``position_ids`` that restart inside a row) only where there is neither an
attention mask nor a cache, and says nothing otherwise; layers without a softmax never keep them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from routelab.errors import HostError
from routelab.hosts.calls import call_arguments
from routelab.hosts.locate import Host

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def guard_packing(host: Host) -> Callable[[], None]:
    """Install the guard on a host's backbone and return a function that removes it."""
    check = partial(_check, host.model_type, host.family.packing)
    return host.backbone.register_forward_pre_hook(check, with_kwargs=True).remove


def _check(
    model_type: str, packing: bool, backbone: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    given = call_arguments(backbone, args, kwargs)
    positions, mask = given.get("position_ids"), given.get("attention_mask")
    # The backbone makes a cache by itself where the call leaves use_cache to the configuration.
    use_cache = given.get("use_cache")
    use_cache = getattr(backbone.config, "use_cache", False) if use_cache is None else use_cache
    cached = use_cache or given.get("cache", given.get("past_key_values")) is not None
    isolated = packing and mask is None and not cached
    # A mask that generate made in advance, 4-D or a dict by layer type, leaves nothing to check.
    prepared = mask is not None and (isinstance(mask, dict) or mask.ndim != 2)
    if positions is None or positions.shape[-1] < 2 or isolated or prepared:
        return
    # The composite position ids of some families carry the text positions first.
    positions = positions[0] if positions.ndim == 3 else positions
    restarts = positions[:, 1:] <= positions[:, :-1]
    if mask is not None:
        # Padding repeats a position without starting a document.
        visible = mask[:, -positions.shape[1] :].bool()
        restarts = restarts & visible[:, 1:] & visible[:, :-1]
    if not bool(restarts.any()):
        return
    if not packing:
        raise HostError(
            f"{model_type!r} hosts cannot take packed documents: their linear-attention layers would carry "
            "one document's state into the next. Give each document a row of its own"
        )
    raise HostError(
        "position_ids restart inside a row, as in packed documents, but an attention_mask or a cache is given too: "
        "the documents would attend to each other. Pass packed rows with use_cache=False and without attention_mask"
    )
