"""Routing-only training: gradients for an attached method, everything else provably untouched.

``TrainConfig`` is light; everything that needs torch is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from routelab.train.config import TrainConfig

if TYPE_CHECKING:
    from routelab.train.encode import EncodedRows, encode_rows
    from routelab.train.plan import Plan, make_plan
    from routelab.train.sft import TrainResult, train

__all__ = ["EncodedRows", "Plan", "TrainConfig", "TrainResult", "encode_rows", "make_plan", "train"]


def __getattr__(name: str) -> Any:
    homes = {
        "EncodedRows": "encode",
        "encode_rows": "encode",
        "Plan": "plan",
        "make_plan": "plan",
        "TrainResult": "sft",
        "train": "sft",
    }
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
