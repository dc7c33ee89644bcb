"""Find and load the shipped minis. Each is an ordinary checkpoint with a copy of the one shared tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from routelab.errors import HostError, closest

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_HERE = Path(__file__).parent
TOKENIZER = _HERE / "tokenizer"
WEIGHTS = _HERE / "weights"


def available() -> list[str]:
    """The names of the shipped minis, sorted."""
    return sorted(p.parent.name for p in WEIGHTS.glob("*/config.json"))


def mini_path(name: str) -> Path:
    """The checkpoint directory of the mini ``name``; raises :class:`HostError` for a name that is not shipped."""
    if name not in available():
        raise HostError(f"no mini host is called {name!r}{closest(name, available())}")
    return WEIGHTS / name


def load_mini(name: str, *, dtype: torch.dtype | str | None = None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a shipped mini and its tokenizer, offline.

    ``dtype=None`` keeps the dtype of the file (bfloat16). CPUs without bfloat16 arithmetic are many times slower in it
    than in ``torch.float32``, and training wants the finer type anyway.
    """
    path = mini_path(name)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import routelab.hosts.recurrent  # noqa: F401 (makes its classes known to the Auto classes)

    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype or "auto", local_files_only=True)
    return model, AutoTokenizer.from_pretrained(path, local_files_only=True)
