"""The FAQ quotes real errors: each is raised here, and its text fits the quotation."""

from __future__ import annotations

import builtins
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel

import routelab
from routelab.dryrun import dry_run
from routelab.errors import RoutelabError
from routelab.evaluate.comparing import compare_results
from routelab.hosts.minis import mini_path
from routelab.recipe import load_recipe
from routelab.report.inputs import read_run
from routelab.rundir import RunDirectory

FAQ = (Path(__file__).parents[1] / "docs" / "faq.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"```text\n(.*?)\n```", FAQ, re.DOTALL)


def again(folder: Path, *, resume: bool) -> None:
    RunDirectory.open(folder / "run", load_recipe("mini/aar"), resume=False)
    RunDirectory.open(folder / "run", load_recipe("mini/aar", ["seeds=[7]"] if resume else []), resume=resume)


def newer(folder: Path) -> None:
    (folder / "results.json").write_text('{"schema": 2}', encoding="utf-8")
    read_run(folder)


def dense() -> LlamaForCausalLM:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=9))


def undecided() -> None:
    routelab.resolve_modes(["hello"], AutoTokenizer.from_pretrained(mini_path("mini-dense")))


def twice(model: PreTrainedModel) -> None:
    routelab.attach(model, routelab.AARConfig(layers="all", window=4))
    routelab.attach(model, routelab.AARConfig(layers="all", window=4))


def two_hosts(folder: Path) -> None:
    for name in ("a", "b"):
        place = folder / name
        place.mkdir()
        summary = {"task": "t", "metric": "accuracy", "host": name, "arguments": {}}
        (place / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
        (place / "records.jsonl").write_text('{"id": "0", "score": 1.0, "answer": "x"}\n', encoding="utf-8")
    compare_results(str(folder / "a"), str(folder / "b"))


def without_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    from routelab.evaluate import harness

    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "lm_eval":
            raise ModuleNotFoundError("No module named 'lm_eval'", name="lm_eval")
        return real(name, *args, **kwargs)

    for module in [name for name in sys.modules if name.startswith("routelab.evaluate.harness.")]:
        monkeypatch.delitem(sys.modules, module)  # another test may have imported it
    monkeypatch.setattr(builtins, "__import__", refuse)
    harness.run_command(["--help"])


@pytest.fixture
def raised(
    tmp_path: Path, make_host: Callable[..., PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> Mapping[str, Callable[[], Any]]:
    """What raises each quoted error, by words of it."""
    monkeypatch.delenv("ROUTELAB_DATA", raising=False)
    return {
        "mini/arr": lambda: load_recipe("mini/arr"),
        "'trian'": lambda: load_recipe("mini/aar", ["trian.steps=1"]),
        "already holds a run": lambda: again(tmp_path, resume=False),
        "a run of another recipe": lambda: again(tmp_path, resume=True),
        "no results.json": lambda: read_run(tmp_path),
        "newer version": lambda: newer(tmp_path),
        "unknown host": lambda: routelab.load_host("mini-mo"),
        "has no router": lambda: routelab.attach(dense(), routelab.AARConfig()),
        "no shipped mini": lambda: dry_run(load_recipe("mini/aar", ["host.name=nobody/nothing"])),
        "layers 99": lambda: routelab.attach(make_host("olmoe"), routelab.AARConfig(layers=(99,))),
        "cannot join": lambda: twice(make_host("olmoe")),
        "text of prompts": lambda: routelab.attach(dense(), routelab.PathLockConfig()),
        "call routelab.attach first": lambda: routelab.detach(make_host("olmoe")),
        "names no mode": undecided,
        "ROUTELAB_DATA": lambda: dry_run(load_recipe("real/aar-smollm2")),
        "one host": lambda: two_hosts(tmp_path),
        "harness is not installed": lambda: without_harness(monkeypatch),
    }


@pytest.mark.parametrize("quoted", QUOTED, ids=lambda text: re.sub(r"\W+", "-", text)[:40])
def test_every_quoted_error_is_real(quoted: str, raised: Mapping[str, Callable[[], Any]]) -> None:
    (words,) = [words for words in raised if words in quoted] or [""]
    assert words, f"nothing here raises: {quoted}"
    with pytest.raises(RoutelabError) as caught:
        raised[words]()
    pattern = ".*".join(map(re.escape, quoted.split("…")))
    assert re.search(pattern, str(caught.value), re.DOTALL), str(caught.value)


def test_links_of_the_index_and_the_faq_lead_somewhere() -> None:
    docs = Path(__file__).parents[1] / "docs"
    for name in ("index.md", "faq.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", (docs / name).read_text(encoding="utf-8")):
            assert (docs / link).is_file(), f"{name}: {link}"
    listed = (docs / "index.md").read_text(encoding="utf-8")
    assert [page.name for page in docs.glob("*.md") if page.name != "index.md" and f"({page.name})" not in listed] == []
