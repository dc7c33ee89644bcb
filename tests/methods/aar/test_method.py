"""AAR in real model classes: against a model whose routers are written from the equations, for every family."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, StaticCache

import routelab
from routelab.errors import ConfigError, HostError, LayerError
from routelab.methods.aar.method import AAR

MakeHost = Callable[..., PreTrainedModel]
VIEWS = [("time",), ("frequency",), ("time", "frequency")]


def scaled(model: PreTrainedModel) -> PreTrainedModel:
    """Make the attention view matter: the default start is near the host."""
    method = routelab.attached(model)[0]
    with torch.no_grad():
        for name, parameter in method.named_parameters():
            if "attention_router.A" in name:
                parameter.mul_(60)
            if "attention_router.G" in name:
                parameter.mul_(20)
    return model


class EquationRouter(nn.Module):
    """A router written from equations 1 to 5, fed by the eager attention weights of its layer."""

    def __init__(self, host_router: nn.Module, aar: AAR, state: dict[str, Tensor], index: int) -> None:
        super().__init__()
        self.top_k, self.weight = host_router.top_k, host_router.weight
        self.aar, self.index = aar, index
        self.state = {
            name.removeprefix(f"layers.{index}.attention_router."): tensor
            for name, tensor in state.items()
            if name.startswith(f"layers.{index}.attention_router.")
        }
        self.attention: Tensor | None = None
        self.visible: Tensor | None = None

    def windows(self) -> Tensor:
        config, weights = self.aar.config, self.attention
        assert weights is not None
        batch, _, queries, keys = weights.shape
        result = torch.zeros(batch, queries, config.window)
        for b in range(batch):
            for i in range(queries):
                slot = keys - queries + i
                if self.visible is not None and not self.visible[b, slot]:
                    continue
                for m in range(config.window):
                    j = slot - config.window + m + int(config.include_self)
                    if 0 <= j < keys:
                        result[b, i, m] = sum(float(head) for head in weights[b, :, i, j]) / weights.shape[1]
        return result

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = hidden_states.reshape(-1, hidden_states.shape[-1])
        w = self.windows().reshape(h.shape[0], -1)
        alphas, parts = [], []
        for view in self.aar.config.views:
            features = w if view == "time" else torch.log(1 + torch.fft.fft(w)[:, : w.shape[1] // 2 + 1].abs())
            alpha = torch.sigmoid(torch.cat([h, features], dim=1) @ self.state[f"G.{view}"].T)
            alphas.append(alpha)
            parts.append(alpha * (features @ self.state[f"A.{view}"]))
        g = (1 - torch.stack(alphas).mean(0)) * (h @ self.weight.T) + torch.stack(parts).mean(0)
        p = g.softmax(-1)
        top, chosen = p.topk(self.top_k)
        if self.aar.host.renormalises:
            top = top / top.sum(-1, keepdim=True)
        return g, top, chosen


def equation_model(host: PreTrainedModel, attached: PreTrainedModel) -> PreTrainedModel:
    """A copy of ``host`` with eager attention whose chosen routers follow the equations."""
    model = copy.deepcopy(host)
    model.set_attn_implementation("eager")
    aar = routelab.attached(attached)[0]
    assert isinstance(aar, AAR)
    for index in aar.layers:
        layer = model.model.layers[index]
        router = EquationRouter(layer.mlp.gate, aar, aar.state_dict(), index)
        layer.mlp.gate = router

        def keep(module: nn.Module, args: Any, output: Any, router: EquationRouter = router) -> None:
            router.attention = output[1].detach()

        layer.self_attn.register_forward_hook(keep)
    return model


def tokens(batch: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(3, 61, (batch, length), generator=torch.Generator().manual_seed(seed))


def pair(make_host: MakeHost, family: str, **config: Any) -> tuple[PreTrainedModel, PreTrainedModel]:
    """(model from the equations, attached model) with equal weights."""
    host = make_host(family)
    config = {"layers": "all", "window": 5, **config}
    attached = scaled(routelab.attach(copy.deepcopy(host), routelab.AARConfig(**config)))
    return equation_model(host, attached), attached


@torch.no_grad()
@pytest.mark.parametrize("views", VIEWS)
def test_logits_equal_the_equations(make_host: MakeHost, family: str, views: tuple[str, ...]) -> None:
    expected, model = pair(make_host, family, views=views)
    ids = tokens(2, 11)
    torch.testing.assert_close(model(ids).logits, expected(ids).logits, atol=1e-5, rtol=1e-5)
    host = make_host(family)
    assert (model(ids).logits - host(ids).logits).abs().max() > 1e-2, "AAR changed nothing: the test would be blind"


@torch.no_grad()
@pytest.mark.parametrize("include_self", [True, False])
def test_window_end_and_window_beyond_sequence(make_host: MakeHost, include_self: bool) -> None:
    expected, model = pair(make_host, "olmoe", include_self=include_self, window=30)
    ids = tokens(1, 9)
    torch.testing.assert_close(model(ids).logits, expected(ids).logits, atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(make_host: MakeHost, family: str, side: str) -> None:
    """A padded row gives the logits of the row alone, and the equations agree on the batch."""
    expected, model = pair(make_host, family)
    ids, pad = tokens(2, 10), 4
    mask = torch.ones_like(ids)
    inside = slice(pad, None) if side == "left" else slice(None, -pad)
    outside = slice(None, pad) if side == "left" else slice(-pad, None)
    mask[1, outside] = 0
    for layer in expected.model.layers:
        if isinstance(layer.mlp.gate, EquationRouter):
            layer.mlp.gate.visible = mask.bool()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    batch = model(ids, attention_mask=mask, position_ids=positions).logits
    reference = expected(ids, attention_mask=mask, position_ids=positions).logits
    # Two float32 sides, each off by up to 1e-5.
    torch.testing.assert_close(batch[0], reference[0], atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(batch[1, inside], reference[1, inside], atol=2e-5, rtol=1e-5)
    alone = model(ids[1:, inside]).logits
    torch.testing.assert_close(batch[1, inside], alone[0], atol=1e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("placebo", ["attention", "shuffled", "constant", "layer:1"])
def test_cached_decoding_equals_prefill(make_host: MakeHost, family: str, placebo: str) -> None:
    layers = [1, 3] if placebo == "layer:1" else "all"
    model = scaled(
        routelab.attach(make_host(family), routelab.AARConfig(layers=layers, window=5, window_source=placebo))
    )
    ids = tokens(2, 9)
    whole = model(ids).logits
    output = model(ids[:, :4], use_cache=True)
    steps = [output.logits]
    for position in range(4, ids.shape[1]):
        output = model(ids[:, position : position + 1], cache=output.cache, use_cache=True)
        steps.append(output.logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_chunked_prefill_and_static_cache(make_host: MakeHost) -> None:
    _, model = pair(make_host, "olmoe")
    ids = tokens(1, 9)
    whole = model(ids).logits
    for cache in (None, StaticCache(config=model.config, max_cache_len=12)):
        first = model(ids[:, :5], cache=cache, use_cache=True)
        second = model(ids[:, 5:8], cache=first.cache, use_cache=True)
        third = model(ids[:, 8:], cache=second.cache, use_cache=True)
        chunks = torch.cat([first.logits, second.logits, third.logits], dim=1)
        torch.testing.assert_close(chunks, whole, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_packed_documents_equal_separate_ones(make_host: MakeHost, family: str) -> None:
    _, model = pair(make_host, family)
    first, second = tokens(1, 6), tokens(1, 7, seed=1)
    positions = torch.cat([torch.arange(6), torch.arange(7)])[None]
    packed_ids = torch.cat([first, second], dim=1)
    if family == "qwen3_5_moe_text":
        with pytest.raises(HostError, match=r"qwen3_5_moe_text.*packed"):
            model(packed_ids, position_ids=positions)
        return
    packed = model(packed_ids, position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(packed[:, :6], model(first).logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(packed[:, 6:], model(second).logits, atol=1e-5, rtol=1e-5)
    with pytest.raises(HostError, match="attend to each other"):
        model(packed_ids, position_ids=positions, attention_mask=torch.ones_like(packed_ids))
    with pytest.raises(HostError, match="attend to each other"):
        model(packed_ids, position_ids=positions, use_cache=True)
    with pytest.raises(HostError, match="attend to each other"):
        model.model(packed_ids, torch.ones_like(packed_ids), positions)


@torch.no_grad()
def test_generate_left_padded_batch_equals_each_alone(make_host: MakeHost, family: str) -> None:
    _, model = pair(make_host, family)
    ids = tokens(2, 8)
    mask = torch.ones_like(ids)
    mask[1, :3], ids[1, :3] = 0, 0
    settings = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    batch = model.generate(ids, attention_mask=mask, **settings)
    assert torch.equal(batch[0], model.generate(ids[:1], **settings)[0])
    assert torch.equal(batch[1, 3:], model.generate(ids[1:, 3:], **settings)[0])


@torch.no_grad()
def test_noop_start_is_bit_identical(make_host: MakeHost, family: str) -> None:
    host = make_host(family)
    ids = tokens(2, 40)
    expected = host(ids, output_router_logits=True)
    model = routelab.attach(host, routelab.AARConfig(layers="all", window=5, gate_scale_init=0.0))
    result = model(ids, output_router_logits=True)
    torch.testing.assert_close(result.logits, expected.logits, atol=0, rtol=0)
    for own, before in zip(result.router_logits, expected.router_logits, strict=True):
        assert torch.equal(own, before)


@torch.no_grad()
def test_noop_start_keeps_the_experts_of_a_bf16_host(make_host: MakeHost) -> None:
    host = make_host("olmoe").bfloat16()
    ids = tokens(2, 40)
    expected = host(ids).logits
    model = routelab.attach(host, routelab.AARConfig(layers="all", window=5, gate_scale_init=0.0))
    assert torch.equal(model(ids).logits, expected)


@torch.no_grad()
def test_router_logits_are_the_final_raw_logits(make_host: MakeHost, family: str) -> None:
    """output_router_logits gives g of equation 5 of every layer, also when recording began before attach."""
    expected, _ = pair(make_host, family)
    host = make_host(family)
    ids = tokens(1, 9)
    host(ids, output_router_logits=True)
    model = scaled(routelab.attach(host, routelab.AARConfig(layers="all", window=5)))
    recorded = model(ids, output_router_logits=True).router_logits
    seen: list[Tensor] = []
    for layer in expected.model.layers:
        layer.mlp.gate.register_forward_hook(lambda _m, _a, output: seen.append(output[0]))
    expected(ids)
    assert len(recorded) == len(seen) == 4
    for own, reference in zip(recorded, seen, strict=True):
        torch.testing.assert_close(own, reference, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_aux_loss_beside_a_cache(make_host: MakeHost, family: str) -> None:
    """The balance loss is computed from raw logits of this call's tokens and does not crash beside a cache."""
    _, model = pair(make_host, family)
    ids = tokens(2, 10)
    mask = torch.ones_like(ids)
    first = model(ids[:, :6], attention_mask=mask[:, :6], use_cache=True, output_router_logits=True)
    second = model(
        ids[:, 6:], attention_mask=mask, cache=first.cache, use_cache=True, output_router_logits=True, labels=ids[:, 6:]
    )
    k, experts = 3, 8
    logits = torch.cat(second.router_logits)
    p = logits.softmax(-1)
    share = torch.zeros(experts).index_add_(0, p.topk(k).indices.flatten(), torch.ones(p.shape[0] * k)) / p.shape[0]
    torch.testing.assert_close(second.aux_loss, experts * (share * p.mean(0)).sum(), atol=1e-5, rtol=1e-5)
    plain = model(ids[:, 6:], attention_mask=mask, cache=model(ids[:, :6], use_cache=True).cache, labels=ids[:, 6:])
    torch.testing.assert_close(second.loss, plain.loss + model.router_aux_loss_coef * second.aux_loss)


def test_gradients_with_and_without_checkpointing(make_host: MakeHost, family: str) -> None:
    _, model = pair(make_host, family)
    ids = tokens(2, 12)
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
        model.zero_grad()
        model(ids, labels=ids, use_cache=False).loss.backward()
        method = routelab.attached(model)[0]
        gradients.append({name: parameter.grad for name, parameter in method.named_parameters()})
    for name, gradient in gradients[0].items():
        assert gradient is not None, name
        assert gradient.abs().max() > 0, name
        torch.testing.assert_close(gradients[1][name], gradient, atol=1e-5, rtol=1e-5)


def test_gradients_flow_through_the_window(make_host: MakeHost) -> None:
    """A router before the routed layer feels the loss through that layer's attention weights too."""
    _, model = pair(make_host, "olmoe", layers=[3])
    ids = tokens(1, 12)
    router, source = model.model.layers[0].mlp.gate, model.model.layers[3].mlp.gate.window_source

    def first_router_gradient() -> Tensor:
        model.zero_grad()
        model(ids, labels=ids, use_cache=False).loss.backward()
        return router.weight.grad.clone()

    through_window, read = first_router_gradient(), source.read
    source.read = lambda count: read(count).detach()
    assert (through_window - first_router_gradient()).abs().max() > 1e-7


def test_deepcopy_detaches_on_its_own(make_host: MakeHost) -> None:
    host = make_host("olmoe")
    ids = tokens(1, 8)
    before = host(ids).logits
    model = scaled(routelab.attach(host, routelab.AARConfig(layers="all", window=5)))
    attached_logits = model(ids).logits
    twin = routelab.detach(copy.deepcopy(model))
    assert torch.equal(twin(ids).logits, before)
    assert torch.equal(model(ids).logits, attached_logits)


def test_detaching_a_deepcopy_leaves_the_original_its_guards(make_host: MakeHost) -> None:
    def hooks(model: PreTrainedModel) -> int:
        modules = list(model.modules())
        return sum(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in modules)

    model = routelab.attach(make_host("olmoe"), routelab.AARConfig(layers="all", window=5))
    before = hooks(model)
    twin = routelab.detach(copy.deepcopy(model))
    assert (hooks(twin), hooks(model)) == (0, before)


def test_another_attention_after_attach_is_refused(make_host: MakeHost) -> None:
    """The routers would silently read the windows of an earlier call."""
    model = routelab.attach(make_host("olmoe"), routelab.AARConfig(layers="all", window=5))
    model(tokens(1, 8))
    model.set_attn_implementation("sdpa")
    with pytest.raises(HostError, match=r"left nothing\. If the attention implementation was changed"):
        model(tokens(1, 8))


def test_layer_source_reads_the_other_layer(make_host: MakeHost) -> None:
    model = routelab.attach(make_host("olmoe"), routelab.AARConfig(layers=[2, 3], window=5, window_source="layer:1"))
    model(tokens(1, 8))
    records = {index: model.model.layers[index].mlp.gate.window_source.record for index in (2, 3)}
    assert records[2] is records[3] is model.model.layers[1].self_attn.routelab_window_record


def test_dropout_is_refused(make_host: MakeHost) -> None:
    model = routelab.attach(make_host("olmoe", attention_dropout=0.1), routelab.AARConfig(layers="all")).train()
    with pytest.raises(HostError, match="dropout"):
        model(tokens(1, 5))


@pytest.mark.parametrize(
    ("layers", "error", "text"),
    [
        ([9], LayerError, "layers 9 do not exist: the host has layers 0 to 3"),
        ("2-7", LayerError, "do not exist"),
        ("100%-120%", ConfigError, "usable layers of this host: 0, 1, 2, 3"),
    ],
)
def test_bad_layers(make_host: MakeHost, layers: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        routelab.attach(make_host("olmoe"), routelab.AARConfig(layers=layers))


def test_linear_attention_layers_are_refused_with_the_allowed_ones(make_host: MakeHost) -> None:
    with pytest.raises(LayerError, match=r"layers 2 cannot be used.*allowed: 1, 3"):
        routelab.attach(make_host("qwen3_5_moe_text"), routelab.AARConfig(layers=[1, 2]))
    model = routelab.attach(make_host("qwen3_5_moe_text"), routelab.AARConfig(layers="all"))
    assert routelab.attached(model)[0].summary().layers == (1, 3)


def test_layer_source_must_run_before(make_host: MakeHost) -> None:
    with pytest.raises(LayerError, match="allowed: 0, 1"):
        routelab.attach(make_host("olmoe"), routelab.AARConfig(layers=[1, 2], window_source="layer:2"))
