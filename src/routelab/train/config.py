"""How an attached method is trained: budget, batches, optimiser, and what the loss sees."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, Field, StrictInt, ValidationError
from pydantic.dataclasses import dataclass

from routelab.errors import ConfigError

T = TypeVar("T")


def _named_errors(cls: type[T]) -> type[T]:
    """Let a checked dataclass raise ``ConfigError`` with one clause per wrong field."""
    checked: Callable[..., None] = cls.__init__

    @wraps(checked)
    def init(self: T, *args: Any, **kwargs: Any) -> None:
        try:
            checked(self, *args, **kwargs)
        except ValidationError as error:
            raise ConfigError("; ".join(_clause(item) for item in error.errors(include_url=False))) from None

    cls.__init__ = init  # type: ignore[assignment]
    return cls


def _clause(item: Any) -> str:
    field = ".".join(str(part) for part in item["loc"])
    message = item["msg"].removeprefix("Value error, ")
    return f"{field}: {message} (given: {item['input']!r})" if field else message


@_named_errors
@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TrainConfig:
    """AdamW on the trainable tensors of the attached methods; linear decay to zero after a linear warm-up.

    Exactly one of ``steps`` (optimiser steps), ``tokens`` (training stops after the first step that reaches them) and
    ``epochs`` sets the budget. A token is an input token that is not padding, labelled or not.

    Attributes:
        batch_size: rows of one forward pass; with ``packing`` a row holds several documents.
        grad_accum: forward passes of one optimiser step; the loss is normalised over the whole step.
        max_length: tokens of one row.
        overlong: what happens to a document longer than that: ``"drop"`` it, ``"cut"`` its end off, or ``"refuse"``
            to train. Dropped and cut documents are counted in the result.
        packing: fill rows with whole documents. No document is ever cut to fit, none sees another.
        assistant_only: the loss sees the assistant's turns only; otherwise every token.
        warmup_ratio: share of the steps that warm up.
        loss_normalisation: ``"token"``, the mean over the labelled tokens of the step, so that long answers weigh more;
            or ``"example"``, the mean over its documents of each one's mean.
        max_grad_norm: gradients are scaled down to this norm.
        aux_loss_coef: weight of the host's load-balancing loss; None leaves it off, whatever the host's config says.
        dtype: ``"host"`` computes in the dtype the host was loaded in (trainable tensors of less than 32 bits are
            updated through float32 copies); ``"bfloat16"`` runs a float32 host under autocast.
        gradient_checkpointing: recompute each decoder layer in the backward pass (non-reentrant).
        log_every: steps between two lines of ``metrics.jsonl``; the first and the last step are always there.
        save_every: steps between two checkpoints; None writes one, at the end.

    Raises:
        ConfigError: a field is unknown or out of its domain, or there is not exactly one budget.
    """

    steps: StrictInt | None = Field(default=None, ge=1)
    tokens: StrictInt | None = Field(default=None, ge=1)
    epochs: StrictInt | None = Field(default=None, ge=1)

    batch_size: StrictInt = Field(default=8, ge=1)
    grad_accum: StrictInt = Field(default=1, ge=1)
    max_length: StrictInt = Field(default=512, ge=2)
    overlong: Literal["drop", "cut", "refuse"] = "drop"
    packing: bool = False
    assistant_only: bool = True

    learning_rate: float = Field(default=1e-4, gt=0, allow_inf_nan=False)
    warmup_ratio: float = Field(default=0.03, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    loss_normalisation: Literal["token", "example"] = "token"
    max_grad_norm: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    aux_loss_coef: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    dtype: Literal["host", "bfloat16"] = "host"
    gradient_checkpointing: bool = False
    log_every: StrictInt = Field(default=10, ge=1)
    save_every: StrictInt | None = Field(default=None, ge=1)

    def __post_init__(self) -> None:
        given = [name for name in ("steps", "tokens", "epochs") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ConfigError(
                f"the budget needs exactly one of steps, tokens and epochs; given: {', '.join(given) or 'none'}"
            )
        if self.packing and self.aux_loss_coef is not None and self.batch_size > 1:
            raise ConfigError(
                "aux_loss_coef with packing needs batch_size 1: the load-balancing loss would count the padding of "
                "packed rows as tokens; raise grad_accum instead"
            )
