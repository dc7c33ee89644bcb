from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerFast

import routelab
from routelab.errors import LaunchError, TrainingError
from routelab.hosts.locate import locate
from routelab.train import TrainConfig, encode_rows, make_plan, train
from routelab.train.collate import collate
from routelab.train.encode import IGNORED
from routelab.train.freeze import trainable_parameters
from routelab.train.optimizer import MasterAdamW, linear_schedule
from routelab.train.trainer import RoutingTrainer

Rows = list[dict[str, Any]]
Attach = Callable[..., PreTrainedModel]
CONFIG = TrainConfig(steps=6, batch_size=4, learning_rate=1e-2, max_length=128, log_every=2)


@pytest.fixture
def attached_host(make_host: Callable[..., PreTrainedModel], tokenizer: PreTrainedTokenizerFast) -> Attach:
    def make(family: str = "olmoe", method: str = "routing_only", **config: Any) -> PreTrainedModel:
        model = make_host(family, vocab_size=len(tokenizer), **config)
        attending = [i for i, layer in enumerate(locate(model).layers) if layer.attention is not None]
        chosen = {"routing_only": routelab.RoutingOnlyConfig(), "aar": routelab.AARConfig(layers=attending, window=5)}
        torch.manual_seed(1)
        return routelab.attach(model, chosen[method])

    return make


def variant(**changes: Any) -> TrainConfig:
    return TrainConfig(**{**asdict(CONFIG), **changes})


def weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in trainable_parameters(model).items()}


@pytest.mark.parametrize("method", ["routing_only", "aar"])
def test_training_equals_a_hand_written_loop(
    method: str, attached_host: Attach, tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path: Path
) -> None:
    config = variant(grad_accum=2, max_grad_norm=0.05, weight_decay=0.1)
    model, reference = attached_host(method=method), attached_host(method=method)
    result = train(model, tokenizer, rows, config, seed=3, output_dir=tmp_path)

    plan = make_plan(encode_rows(tokenizer, rows, config), config, 3)
    trained = trainable_parameters(reference)
    optimizer = torch.optim.AdamW(trained.values(), lr=1e-2, weight_decay=0.1)
    schedule = linear_schedule(optimizer, config, plan.steps)
    losses = []
    for step in range(plan.steps):
        batches = [
            collate(plan.documents, rows, packed=False, pad_token=0) for rows in plan.batches[2 * step : 2 * step + 2]
        ]
        labelled = sum(int((batch["labels"][:, 1:] != IGNORED).sum()) for batch in batches)
        losses.append(0.0)
        for batch in batches:
            labels = batch.pop("labels")[:, 1:]
            logits = reference(**batch, use_cache=False).logits[:, :-1]
            loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
            (loss / labelled).backward()
            losses[-1] += loss.item() / labelled
        torch.nn.utils.clip_grad_norm_(trained.values(), 0.05)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    for name, parameter in trainable_parameters(model).items():
        torch.testing.assert_close(parameter, trained[name], atol=1e-5, rtol=1e-4)
    assert result.loss_first == pytest.approx(losses[0], rel=1e-5)
    assert [line["step"] for line in result.history] == [1, 2, 4, 6]
    assert result.history[2]["loss"] == pytest.approx((losses[2] + losses[3]) / 2, rel=1e-4)


def test_result_and_metrics_tell_the_truth(
    attached_host: Attach, tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path: Path
) -> None:
    model = attached_host()
    before = weights(model)
    lines: list[Any] = []
    result = train(model, tokenizer, rows, variant(steps=20), seed=0, output_dir=tmp_path, on_log=lines.append)
    plan = make_plan(encode_rows(tokenizer, rows, CONFIG), variant(steps=20), 0)
    assert (result.steps, result.tokens, result.labelled_tokens) == (20, plan.tokens, plan.labelled)
    assert result.trained == sum(tensor.numel() for tensor in before.values()) == 4 * 8 * 32
    assert result.trained_tensors == 4
    assert result.frozen_identical
    assert result.frozen_tensors == len(model.state_dict()) - 4
    assert result.loss_last < result.loss_first
    assert result.data_sha256 == plan.fingerprint
    assert all(not torch.equal(tensor, before[name]) for name, tensor in weights(model).items())
    on_disk = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert on_disk == lines == list(result.history)
    assert on_disk[-1]["tokens"] == plan.tokens
    assert {"loss", "learning_rate", "grad_norm", "tokens_per_second", "seconds", "peak_memory_mb"} <= on_disk[
        -1
    ].keys()
    json.dumps(asdict(result))


def test_model_comes_back_as_it_went_in(
    attached_host: Attach,
    tokenizer: PreTrainedTokenizerFast,
    rows: Rows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_telemetry(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("TRL reported usage")

    monkeypatch.setattr("trl.trainer.base_trainer.send_telemetry", no_telemetry)
    monkeypatch.delenv("CI", raising=False)
    model = attached_host("qwen3_moe", method="aar")
    model.config.output_router_logits = True
    model.generation_config.pad_token_id = 7
    model.lm_head.weight.requires_grad_(True)
    configs = deepcopy(model.config.to_dict()), deepcopy(model.generation_config.to_dict())
    flags = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    attributes, modes = set(vars(model)), [module.training for module in model.modules()]
    template = tokenizer.chat_template
    random_state = torch.get_rng_state()
    config = variant(gradient_checkpointing=True, dtype="bfloat16", aux_loss_coef=0.01)
    train(model, tokenizer, rows, config, seed=0, output_dir=tmp_path)

    assert model.forward.__func__ is type(model).forward
    assert set(vars(model)) - attributes <= {"_require_grads_hooks"}
    assert (model.config.to_dict(), model.generation_config.to_dict()) == configs
    assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == flags
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [module.training for module in model.modules()] == modes
    assert not any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    assert not model.get_input_embeddings()._forward_hooks
    assert not model.lm_head._forward_pre_hooks
    assert torch.equal(torch.get_rng_state(), random_state)
    assert tokenizer.chat_template == template


def test_the_auxiliary_loss_is_off_unless_the_recipe_sets_it(
    attached_host: Attach, tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path: Path
) -> None:
    losses = []
    for i, coefficient in enumerate([None, 0.5]):
        model = attached_host("mixtral", output_router_logits=True, router_aux_loss_coef=9.0)
        config = variant(steps=1, aux_loss_coef=coefficient, grad_accum=2)
        losses.append(train(model, tokenizer, rows, config, seed=0, output_dir=tmp_path / str(i)).loss_first)
    # A balanced host's auxiliary loss is top_k = 3; a random one's is a little more.
    assert 0.5 * 3 <= losses[1] - losses[0] < 0.5 * 4


def first_gradients(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, rows: Rows, config: TrainConfig, directory: Path
) -> dict[str, torch.Tensor]:
    """Gradients of the first step, as the optimiser gets them except for clipping."""
    found: dict[str, torch.Tensor] = {}
    for name, parameter in trainable_parameters(model).items():
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: found.__setitem__(name, p.grad.clone()))
    train(model, tokenizer, rows, config, seed=0, output_dir=directory)
    assert found.keys() == trainable_parameters(model).keys()
    return found


@pytest.mark.parametrize("aux", [None, 0.1])
def test_both_ways_to_the_loss_agree(
    aux: float | None,
    attached_host: Attach,
    tokenizer: PreTrainedTokenizerFast,
    rows: Rows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = variant(steps=1, aux_loss_coef=aux, grad_accum=2)
    host_head = first_gradients(attached_host("mixtral", method="aar"), tokenizer, rows, config, tmp_path / "host")
    monkeypatch.setattr(RoutingTrainer, "uses_fused_loss", staticmethod(lambda device: True))
    trl_head = first_gradients(attached_host("mixtral", method="aar"), tokenizer, rows, config, tmp_path / "trl")
    for name, gradient in host_head.items():
        torch.testing.assert_close(gradient, trl_head[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("method", ["routing_only", "aar"])
def test_gradients_with_and_without_checkpointing_agree(
    method: str, attached_host: Attach, tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path: Path, family: str
) -> None:
    kept, recomputed = (
        first_gradients(
            attached_host(family, method=method),
            tokenizer,
            rows,
            variant(steps=1, gradient_checkpointing=checkpointing),
            tmp_path / str(checkpointing),
        )
        for checkpointing in (False, True)
    )
    for name, gradient in kept.items():
        torch.testing.assert_close(gradient, recomputed[name], atol=1e-5, rtol=1e-5)
        assert gradient.any()


def test_arms_with_one_seed_see_the_same_batches(
    attached_host: Attach, tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path: Path
) -> None:
    encoded = encode_rows(tokenizer, rows, CONFIG)
    prints = {}
    for method in ("routing_only", "aar"):
        for seed in (0, 1):
            model = attached_host(method=method)
            directory = tmp_path / f"{method}-{seed}"
            result = train(model, tokenizer, encoded, variant(steps=2), seed=seed, output_dir=directory)
            prints[method, seed] = result.data_sha256
    assert prints["routing_only", 0] == prints["aar", 0] != prints["aar", 1] == prints["routing_only", 1]


def test_rows_encoded_for_another_configuration_are_refused(
    attached_host: Attach, tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path: Path
) -> None:
    encoded = encode_rows(tokenizer, rows, variant(max_length=64))
    with pytest.raises(TrainingError, match=r"encoded with .*64.*the run wants .*128"):
        train(attached_host(), tokenizer, encoded, CONFIG, seed=0, output_dir=tmp_path)


def test_bfloat16_hosts_learn_from_small_steps(
    attached_host: Attach, tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path: Path
) -> None:
    """Thirty steps of 1e-5 on bfloat16 weights of size 0.5 (spacing 2e-3) change the float32 masters, so that the
    weights follow as soon as a whole spacing has gathered; plain AdamW would leave them where they are for ever."""
    parameter = torch.nn.Parameter(torch.full((4,), 0.5, dtype=torch.bfloat16))
    plain = torch.nn.Parameter(parameter.detach().clone())
    for optimizer, p in (
        (MasterAdamW({"w": parameter}, lr=2e-4, weight_decay=0.0), parameter),
        (torch.optim.AdamW([plain], lr=2e-4, weight_decay=0.0), plain),
    ):
        for _ in range(30):
            p.grad = torch.ones_like(p)
            optimizer.step()
    assert torch.equal(plain, torch.full_like(plain, 0.5))
    assert parameter.dtype == torch.bfloat16
    torch.testing.assert_close(parameter.float(), torch.full((4,), 0.5 - 30 * 2e-4), atol=1e-3, rtol=0)

    model = attached_host().to(torch.bfloat16)
    result = train(model, tokenizer, rows, CONFIG, seed=0, output_dir=tmp_path)
    assert result.frozen_identical
    with pytest.raises(TrainingError, match="this host is not float32: use 'host'"):
        train(model, tokenizer, rows, variant(dtype="bfloat16"), seed=0, output_dir=tmp_path / "autocast")


def test_refusals(
    attached_host: Attach,
    make_host: Callable[..., PreTrainedModel],
    tokenizer: PreTrainedTokenizerFast,
    rows: Rows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = make_host("olmoe", vocab_size=len(tokenizer))
    with pytest.raises(TrainingError, match="no method is attached"):
        train(bare, tokenizer, rows, CONFIG, seed=0, output_dir=tmp_path)

    unlearnable = attached_host("olmoe", norm_topk_prob=False, num_experts_per_tok=1)
    for layer in unlearnable.model.layers:
        layer.mlp.gate.norm_topk_prob = True
    with pytest.raises(TrainingError, match="get no gradient: with top-1 routing and renormalised"):
        train(unlearnable, tokenizer, rows, CONFIG, seed=0, output_dir=tmp_path)
    with torch.device("meta"):
        weightless = attached_host()
    with pytest.raises(TrainingError, match="on the meta device"):
        train(weightless, tokenizer, rows, CONFIG, seed=0, output_dir=tmp_path)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setenv("MASTER_PORT", "29500")  # and no WORLD_SIZE
    with pytest.raises(LaunchError, match="started this one alone; on CPUs use torchrun"):
        train(attached_host(), tokenizer, rows, CONFIG, seed=0, output_dir=tmp_path)
    monkeypatch.delenv("ACCELERATE_USE_CPU")
    assert not list(tmp_path.iterdir())

    model = attached_host()
    with torch.no_grad():
        model.lm_head.weight[0] = float("nan")
    with pytest.raises(TrainingError, match="the loss is nan at step 1"):
        train(model, tokenizer, rows, CONFIG, seed=0, output_dir=tmp_path / "nan")
    assert model.forward.__func__ is type(model).forward
    assert not model.training


def test_loss_that_ignores_a_tensor_is_refused(
    attached_host: Attach, tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path: Path
) -> None:
    model = attached_host()
    gate = model.model.layers[1].mlp.gate
    gate.register_forward_hook(lambda module, args, output: tuple(o.detach() for o in output))
    with pytest.raises(TrainingError, match=r"does not depend on 1 trainable tensors: model\.layers\.1\.mlp\.gate"):
        train(model, tokenizer, rows, CONFIG, seed=0, output_dir=tmp_path)


def test_a_frozen_tensor_that_moves_is_named(
    attached_host: Attach, tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path: Path
) -> None:
    model = attached_host()

    def meddle(line: Any) -> None:
        with torch.no_grad():
            model.model.layers[2].self_attn.q_proj.weight[0, 0] += 1e-7

    with pytest.raises(TrainingError, match=r"1 frozen tensors .* model\.layers\.2\.self_attn\.q_proj\.weight"):
        train(model, tokenizer, rows, CONFIG, seed=0, output_dir=tmp_path, on_log=meddle)
