"""Sinks against eager attention; a routing patch that nothing before its layer can feel; flat memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

import routelab
from routelab.errors import EvaluationError, LayerError
from routelab.study.acf import window_acf
from routelab.study.sinks import compare_sinks, first_token_weight, patch_sinks, sinks
from routelab.study.texts import StudyText
from tests.study.texts import random_texts

MakeHost = Callable[..., PreTrainedModel]


class LargestTensor(TorchDispatchMode):
    """Notes the most numbers that any operation returned in one tensor."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        for each in output if isinstance(output, tuple | list) else [output]:
            if isinstance(each, torch.Tensor):
                self.largest = max(self.largest, each.numel())
        return output


def live_numbers() -> int:
    """How many numbers all tensors that are alive hold; those of a compiler's symbolic shapes hold none."""
    gc.collect()
    sizes = (each.numel() for each in gc.get_objects() if issubclass(type(each), torch.Tensor))
    return sum(size for size in sizes if isinstance(size, int))


def eager_sinks(model: PreTrainedModel, text: StudyText) -> list[float]:
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(input_ids=torch.tensor([text.ids]), output_attentions=True)
    model.set_attn_implementation("sdpa")
    return [float(each[0].mean(0)[1:, 0].mean()) for each in output.attentions if each is not None]


def test_sinks_are_those_of_eager_attention(make_host: MakeHost, family: str) -> None:
    model = make_host(family)
    texts = list(random_texts(2))
    found = sinks(model, texts)
    assert found.layers == ([1, 3] if family == "qwen3_5_moe_text" else [0, 1, 2, 3])
    assert found.routed is None
    assert model.config._attn_implementation == "sdpa"
    for text in texts:
        assert found.texts[text.id] == pytest.approx(eager_sinks(model, text), abs=1e-6)


def test_weights_of_the_first_key_in_tiles_and_under_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, heads, 11, 8, generator=generator, dtype=torch.float64) for heads in (4, 2))
    mask = torch.ones(11, 11, dtype=torch.bool).tril() & torch.ones(11, 11, dtype=torch.bool).triu(-4)
    whole = query @ key.repeat_interleave(2, 1).transpose(-1, -2) * 0.3
    for given in (None, mask[None, None]):
        barred = ~(mask if given is not None else torch.ones(11, 11, dtype=torch.bool).tril())
        wanted = whole.masked_fill(barred, -torch.inf).softmax(-1)[0].mean(0)[:, 0]
        for tile in (2**20, 100):
            monkeypatch.setattr("routelab.study.sinks._TILE", tile)
            torch.testing.assert_close(first_token_weight(query, key, given, 0.3), wanted)
    assert wanted[5:].eq(0).all()


def test_comparison_marks_the_layer_after_the_first_routed_one(make_host: MakeHost) -> None:
    model, control = make_host("olmoe"), make_host("olmoe")
    routelab.attach(model, routelab.AARConfig(layers=[1, 2], window=4, init_std=1.0))
    texts = list(random_texts(6))
    found = compare_sinks(sinks(model, texts), sinks(control, texts))
    assert (found["routed"], found["marked"]) == (1, 2)
    differences = [layer["difference"] for layer in found["layers"]]
    assert [each["mean"] for each in differences[:2]] == [0.0, 0.0]
    assert abs(differences[2]["mean"]) > 1e-5
    for layer in found["layers"]:
        assert layer["difference"]["mean"] == pytest.approx(layer["model"] - layer["control"], abs=1e-12)
        assert layer["difference"]["low"] <= layer["difference"]["mean"] <= layer["difference"]["high"]


def test_a_patch_is_the_donors_routing_and_changes_nothing_before(make_host: MakeHost, family: str) -> None:
    model, donor = make_host(family), make_host(family)
    with torch.no_grad():
        for layer in donor.base_model.layers:
            layer.mlp.gate.weight += torch.randn_like(layer.mlp.gate.weight)
    texts = list(random_texts(3))
    found = patch_sinks(model, donor, texts)
    assert found["before"] == 0.0
    assert [patch["patched"] for patch in found["patches"]] == [[0], [1], [2], [3], [0, 1, 2, 3]]
    assert all(patch["moved"] > 0.1 for patch in found["patches"])
    # With all of its routing the host is the donor, since they differ in nothing else.
    theirs, own = sinks(donor, texts), sinks(model, texts)
    for place, each in enumerate(found["patches"][-1]["differences"]):
        wanted = [theirs.texts[text.id][place] - own.texts[text.id][place] for text in texts]
        assert each["mean"] == pytest.approx(sum(wanted) / 3, abs=1e-6)
    last = found["layers"][-1]
    for patch in found["patches"][:-1]:
        (layer,) = patch["patched"]
        changed = {each["layer"] for each in patch["differences"] if each["mean"]}
        assert changed == {seen for seen in found["layers"] if seen > layer} or layer >= last


def test_a_donor_may_be_attention_aware(make_host: MakeHost) -> None:
    model, donor = make_host("olmoe"), make_host("olmoe")
    routelab.attach(donor, routelab.AARConfig(layers=[2], window=4, init_std=1.0))
    found = patch_sinks(model, donor, random_texts(3), layers=[1, 2])
    none, some, both = found["patches"]
    assert (none["moved"], [each["mean"] for each in none["differences"]]) == (0.0, [0.0] * 4)
    assert some["moved"] > 0
    assert some["differences"][3]["mean"] == both["differences"][3]["mean"] != 0


def test_what_does_not_belong_together_is_refused(make_host: MakeHost) -> None:
    model = make_host("olmoe")
    with pytest.raises(EvaluationError, match="equal hosts"):
        patch_sinks(model, make_host("qwen2_moe"), random_texts(2))
    with pytest.raises(LayerError, match=r"layers \[9\] have no router"):
        patch_sinks(model, make_host("olmoe"), random_texts(2), layers=[9])
    with pytest.raises(EvaluationError, match="no text"):
        sinks(model, [])
    with pytest.raises(EvaluationError, match="has 1 token"):
        sinks(model, [StudyText("one", "t", [5])])
    with pytest.raises(EvaluationError, match="two texts are called"):
        sinks(model, [*random_texts(1), *random_texts(1)])


@pytest.mark.parametrize(
    "study",
    [
        lambda model, texts: sinks(model, texts),
        lambda model, texts: window_acf(model, texts, windows=[4, 16]),
    ],
    ids=["sinks", "acf"],
)
def test_memory_does_not_grow_with_the_number_of_texts(
    make_host: MakeHost, study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("routelab.study.sinks._TILE", 2**12)
    model = make_host("olmoe")
    largest, alive = [], []
    for number in (3, 7):
        living = []

        def texts(number: int = number, living: list[int] = living) -> Any:
            for place, text in enumerate(random_texts(number, length=100)):
                yield text
                if place in (1, number - 1):
                    living.append(live_numbers())

        with LargestTensor() as noted:
            study(model, texts())
        largest.append(noted.largest)
        alive += living
    assert largest[0] == largest[1] < 4 * 100 * 100  # never heads × n × n
    assert len(alive) == 4
    assert len(set(alive)) == 1
