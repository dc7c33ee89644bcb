"""The selection of experts is the host's own, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

import routelab
from routelab.errors import HostError
from routelab.hosts.locate import locate
from routelab.hosts.routing import select_experts

MakeHost = Callable[..., PreTrainedModel]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_selection_equals_the_host_router(make_host: MakeHost, family: str, dtype: torch.dtype) -> None:
    host = locate(make_host(family).to(dtype))
    router = host.routed[0].router
    assert router is not None
    hidden = torch.randn(50, 32).to(dtype)
    expected = router(hidden)
    weights_dtype = torch.float32 if host.family.float32_weights else dtype
    own = select_experts(
        F.linear(hidden, router.weight), top_k=host.top_k, renormalise=host.renormalises, dtype=weights_dtype
    )
    for mine, theirs in zip(own, expected, strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("config", [routelab.RoutingOnlyConfig(), routelab.AARConfig(layers="all")])
def test_routers_without_gradient_are_refused(make_host: MakeHost, config: object) -> None:
    with pytest.raises(HostError, match="get no gradient: with top-1"):
        routelab.attach(make_host("mixtral", num_experts_per_tok=1), config)
    model = routelab.attach(make_host("olmoe", num_experts_per_tok=1, norm_topk_prob=False), config)
    ids = torch.arange(3, 11)[None]
    model(ids, labels=ids).loss.backward()
    assert model.model.layers[0].mlp.gate.weight.grad.abs().max() > 0
