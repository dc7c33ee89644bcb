"""A character-level tokenizer with a ChatML template, with and without generation marks, and rows to train on."""

from __future__ import annotations

import os
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

MARKED = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}<|end|>{% endgeneration %}{% else %}{{ m.content }}<|end|>{% endif %}"
    "{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
UNMARKED = MARKED.replace("{% generation %}", "").replace("{% endgeneration %}", "")


def build_tokenizer(template: str = MARKED) -> PreTrainedTokenizerFast:
    special = ["<pad>", "<|start|>", "<|end|>", "<unk>"]
    vocab = {token: i for i, token in enumerate([*special, *string.printable])}
    core = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    core.add_special_tokens(special)
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<|end|>", unk_token="<unk>", chat_template=template
    )
    tokenizer.name_or_path = "tiny-chars"
    return tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer()


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[[str], PreTrainedTokenizerFast]:
    return build_tokenizer


def chat(question: str, answer: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def sums() -> list[dict[str, object]]:
    """Sums as chats of different lengths: 24 rows of 40 to 60 tokens."""
    return [chat(f"{a} + {b} = ?" + " please" * (a % 3), f"{a + b}") for a in range(6) for b in range(4)]


@pytest.fixture(scope="session")
def rows() -> list[dict[str, object]]:
    return sums()


@pytest.fixture(scope="session")
def by_two() -> Callable[[str, Path], None]:
    """Run a script with a folder as its argument in two processes."""

    def launch(script: str, folder: Path) -> None:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [*launcher, script, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment, check=False)
        assert done.returncode == 0, done.stderr[-3000:]

    return launch
