"""Check a recipe without weights and without training: parameters, memory, data, steps.

The host is built on the meta device, from its own configuration where that is at hand and else from ``host.config``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import routelab
from routelab.afterwards import check_afterwards, planned
from routelab.corpus import is_hub_name, training_rows
from routelab.dryrun_costs import UTILISATION, active_parameters, flops_per_token, hours
from routelab.errors import RecipeError
from routelab.hosts.minis import available, mini_path
from routelab.recipe import DataSpec, HostSpec, Recipe, host_config_path
from routelab.report.tables import Table
from routelab.rundir import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    from routelab.train import TrainConfig

GIB = 2**30


@dataclass(frozen=True)
class ArmCheck:
    """One arm: what its methods matched, and the bytes that its training holds and the operations it takes, roughly."""

    name: str
    methods: list[str]
    new_parameters: int
    trainable_parameters: int
    gradient_bytes: int
    optimizer_bytes: int
    flops_per_token: float


@dataclass(frozen=True)
class DataCheck:
    """One source: the rows that are trained on (None: unknown), and what was found or has to be fetched."""

    source: str
    rows: int | None
    found: str


@dataclass(frozen=True)
class DryRun:
    """Everything that could be checked. ``steps`` per arm and seed, and ``tokens``, at most, are None where they
    depend on data not at hand. ``afterwards`` says what is run on the trained arms, beside the run's evaluations."""

    name: str
    host: str
    host_from: str
    family: str
    parameters: int
    weight_bytes: int
    activation_bytes: int
    arms: list[ArmCheck]
    data: list[DataCheck]
    steps: int | None
    steps_from: str
    tokens: int | None
    runs: int
    afterwards: list[tuple[str, str]]


def dry_run(recipe: Recipe) -> DryRun:
    """Check a recipe.

    Raises ``RecipeError``, ``HostError``, ``LayerError``, ``ConfigError``, ``EvaluationError`` or ``DataError`` for
    what would stop the run, and ``MissingPackageError`` where it needs the evaluation harness and has not got it.
    """
    check_afterwards(recipe)
    data = [_check_data(spec) for spec in recipe.data]
    config, origin = host_config(recipe.host)
    model = meta_model(config, recipe.host)
    dtype = next(model.parameters()).dtype
    parameters = sum(parameter.numel() for parameter in model.parameters())
    arms = [_check_arm(model, recipe, arm, dtype) for arm in recipe.arms]
    steps, steps_from = _steps(recipe, data)
    return DryRun(
        name=recipe.name,
        host=recipe.host.name,
        host_from=origin,
        family=str(config.model_type),
        parameters=parameters,
        weight_bytes=parameters * dtype.itemsize,
        activation_bytes=activation_bytes(config, recipe.train, dtype),
        arms=arms,
        data=data,
        steps=steps,
        steps_from=steps_from,
        tokens=tokens_at_most(recipe.train, _rows(data)),
        runs=len(recipe.arms) * len(recipe.seeds),
        afterwards=planned(recipe),
    )


def host_config(host: HostSpec) -> tuple[PreTrainedConfig, str]:
    """Return the configuration of a host, and where it was found; raises ``RecipeError`` where it is not at hand."""
    from transformers import AutoConfig

    import routelab.hosts.recurrent  # noqa: F401 (makes its classes known to the Auto classes)

    name, trust = host.name, host.trust_remote_code
    if name in available():
        return AutoConfig.from_pretrained(mini_path(name)), "the shipped mini"
    if Path(name).is_dir():
        return AutoConfig.from_pretrained(name, trust_remote_code=trust), f"the directory {name}"
    if host.config is not None:
        path = host_config_path(host.config)
        values = read_json(path)
        return AutoConfig.for_model(
            values.pop("model_type"), **values
        ), f"host.config {path.name}; weights not looked for"
    try:
        config = AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=trust)
    except OSError as error:
        raise RecipeError(
            f"host.name: {name!r} is no shipped mini ({', '.join(available()) or 'none'}), no directory, and no "
            "hub model that was fetched before; name its directory, or give host.config for --dry-run"
        ) from error
    return config, "the hub's local cache"


def meta_model(config: PreTrainedConfig, host: HostSpec) -> PreTrainedModel:
    """Return a model of the configuration without weights."""
    from transformers import AutoModelForCausalLM

    dtype = getattr(torch, host.dtype) if host.dtype else config.dtype or torch.float32
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def _check_arm(model: PreTrainedModel, recipe: Recipe, arm: str, dtype: torch.dtype) -> ArmCheck:
    for spec in recipe.arms[arm]:
        routelab.attach(model, spec.config)
    summaries = [method.summary() for method in routelab.attached(model)]
    # AdamW keeps two float32 moments, and a float32 copy of what is trained in fewer bits.
    seen = {id(p): p for method in routelab.attached(model) for p in method.parameters()}
    train = recipe.train
    flops = flops_per_token(
        model,
        trained=active_parameters(model, seen),
        length=train.max_length,
        recomputed=train.gradient_checkpointing,
    )
    check = ArmCheck(
        name=arm,
        methods=[str(summary) for summary in summaries],
        new_parameters=sum(summary.new_parameters for summary in summaries),
        trainable_parameters=sum(parameter.numel() for parameter in seen.values()),
        gradient_bytes=sum(p.numel() * p.itemsize for p in seen.values()),
        optimizer_bytes=sum(p.numel() * (8 + (4 if p.itemsize < 4 else 0)) for p in seen.values()),
        flops_per_token=flops,
    )
    if recipe.arms[arm]:
        routelab.detach(model)
    return check


def activation_bytes(config: PreTrainedConfig, train: TrainConfig, dtype: torch.dtype) -> int:
    """Estimate what one forward and backward pass keeps: a rough figure, within a factor of two or so.

    Per token and layer about ten vectors of the hidden size and three of the MLP's size per chosen expert; with
    checkpointing one hidden vector per layer and one layer's worth; plus the logits and their gradient in float32.
    """
    tokens = train.batch_size * train.max_length
    hidden, layers = config.hidden_size, config.num_hidden_layers
    inner = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    layer = 10 * hidden + 3 * getattr(config, "num_experts_per_tok", 1) * inner
    kept = layers * hidden + layer if train.gradient_checkpointing else layers * layer
    return tokens * (kept * dtype.itemsize + 2 * 4 * int(config.vocab_size))


def _check_data(spec: DataSpec) -> DataCheck:
    if is_hub_name(spec):
        rows = None if spec.expected_rows is None else spec.kept(spec.expected_rows)
        return DataCheck(spec.source, rows, f"not read: a run fetches {spec.source} from the hub")
    rows = len(training_rows(spec))
    return DataCheck(spec.source, rows, "found")


def _steps(recipe: Recipe, data: list[DataCheck]) -> tuple[int | None, str]:
    train = recipe.train
    if train.steps is not None:
        return train.steps, "train.steps"
    if train.tokens is not None:
        fewest = math.ceil(train.tokens / (train.batch_size * train.grad_accum * train.max_length))
        return fewest, f"at least: {train.tokens:,} tokens in rows of up to {train.max_length}"
    rows = _rows(data)
    if rows is None:
        return None, "unknown until the data is fetched; expected_rows would say"
    epochs = train.epochs or 1
    per_step = train.batch_size * train.grad_accum
    rough = ", fewer if rows are packed" if train.packing else ""
    return math.ceil(rows * epochs / per_step), f"{rows:,} rows × {epochs} epochs, {per_step:,} rows a step{rough}"


def _rows(data: list[DataCheck]) -> int | None:
    known = [check.rows for check in data if check.rows is not None]
    return sum(known) if len(known) == len(data) else None


def tokens_at_most(train: TrainConfig, rows: int | None) -> int | None:
    """Return the tokens of one training over ``rows`` rows, all of them full; None where there is no telling."""
    if train.tokens is not None:
        return train.tokens
    if train.steps is not None:
        return train.steps * train.batch_size * train.grad_accum * train.max_length
    return None if rows is None else rows * int(train.epochs or 1) * train.max_length


def human_bytes(count: int) -> str:
    """Return a number of bytes in GiB or MiB."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.1f} MiB"


def arm_table(check: DryRun) -> Table:
    """Return what each arm matched and trains."""
    rows = [
        [
            arm.name,
            f"{arm.new_parameters:,}",
            f"{arm.trainable_parameters:,}",
            human_bytes(arm.gradient_bytes),
            human_bytes(arm.optimizer_bytes),
            "unknown" if check.tokens is None else hours(check.tokens * arm.flops_per_token),
            "; ".join(arm.methods),
        ]
        for arm in check.arms
    ]
    columns = ["arm", "new parameters", "trained parameters", "gradients", "optimizer state", "GPU time", "matched"]
    return Table("Arms", columns, rows, text=frozenset({"matched"}))


def facts(check: DryRun) -> list[tuple[str, str]]:
    """Return the rest of the check as names and texts."""
    largest = max(arm.gradient_bytes + arm.optimizer_bytes for arm in check.arms)
    flops = max(arm.flops_per_token for arm in check.arms)
    total = check.weight_bytes + check.activation_bytes + largest
    return [
        ("host", f"{check.host} ({check.family}, {check.parameters:,} parameters), from {check.host_from}"),
        ("weights", human_bytes(check.weight_bytes)),
        ("gradients and optimizer", f"{human_bytes(largest)} for the largest arm"),
        ("activations", f"{human_bytes(check.activation_bytes)}, roughly"),
        ("memory in all", f"{human_bytes(total)}, roughly"),
        ("trainings", str(check.runs)),
        ("steps each", f"{'unknown' if check.steps is None else f'{check.steps:,}'} ({check.steps_from})"),
        ("time each", time_text(check.tokens, flops)),
        *((f"data {item.source}", f"{_rows_text(item.rows)}; {item.found}") for item in check.data),
        *check.afterwards,
    ]


def time_text(tokens: int | None, flops: float) -> str:
    """Return the time of a training of so many tokens at most, each of ``flops`` operations, in words."""
    if tokens is None:
        return f"unknown; {flops:.2g} operations a token"
    return (
        f"{hours(tokens * flops)}, on one GPU at {UTILISATION:.0%} of its peak; at most {tokens:,} tokens, {flops:.2g} "
        "operations each"
    )


def _rows_text(rows: int | None) -> str:
    return "rows unknown" if rows is None else f"{rows:,} rows"
