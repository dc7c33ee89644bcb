"""Studies of depth-recurrent hosts, and of the interference of think and no_think."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from routelab.cli.common import Dtype, Seed, Settings, Trust, load_model, method_config, quiet
from routelab.cli.study import Out, command_line, finish
from routelab.errors import RecipeError

RecurrentHost = Annotated[
    str, typer.Option("--host", help="A depth-recurrent host: a mini, a directory or a hub name.")
]
Source = Annotated[str, typer.Option(help="mini-paragraphs, or a file or hub name of HotpotQA or 2Wiki rows.")]
Context = Annotated[int, typer.Option(min=32, help="Tokens of a context.")]
Limit = Annotated[int, typer.Option(min=1, help="Questions that are read.")]
Hops = Annotated[int, typer.Option(min=1, max=2, help="Of mini-paragraphs: facts that an answer needs.")]
Steps = Annotated[int, typer.Option(min=2, help="Recurrent steps T.")]
Form = Annotated[Literal["chat", "plain"], typer.Option("--prompt", help="The host's chat template, or completion.")]


def convergence(
    host: RecurrentHost = "mini-recurrent",
    source: Source = "mini-paragraphs",
    context: Context = 256,
    limit: Limit = 30,
    hops: Hops = 1,
    num_steps: Steps = 32,
    prompt: Form = "chat",
    seed: Seed = 0,
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    out: Out = None,
) -> None:
    """When supports, attention, states and outputs of a recurrent host come to rest."""
    from routelab.studies import claim_folder

    folder = claim_folder(out or Path("runs/study-convergence"), "convergence")
    model, tokenizer, questions, notes = _recurrent(
        host, dtype, trust_remote_code, source, context, limit, hops, prompt, seed
    )
    from routelab.working_sets.inside import converge

    settings = converge(model, tokenizer, questions, num_steps=num_steps, seed=seed)
    finish(folder, "convergence", "Convergence along the recurrence", {"settings": settings}, notes)


def working_set(
    host: RecurrentHost = "mini-recurrent",
    source: Source = "mini-paragraphs",
    context: Context = 256,
    limit: Limit = 30,
    hops: Hops = 1,
    num_steps: Steps = 32,
    prompt: Form = "chat",
    settings: Settings = None,
    seed: Seed = 0,
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    out: Out = None,
) -> None:
    """What a working set keeps of the blocks and of the attention to come, and how stable it is."""
    from routelab.studies import claim_folder

    folder = claim_folder(out or Path("runs/study-working-set"), "working-set")
    base = method_config("wise", settings or [])
    model, tokenizer, questions, notes = _recurrent(
        host, dtype, trust_remote_code, source, context, limit, hops, prompt, seed
    )
    from dataclasses import replace

    from routelab.methods.wise.config import CONDITIONS
    from routelab.working_sets.inside import look_inside

    variants = {name: replace(base, condition=name) for name in CONDITIONS}
    found = look_inside(model, tokenizer, questions, variants, base, num_steps=num_steps, seed=seed)
    found |= {"num_steps": num_steps, "discovery_steps": base.discovery_steps}
    finish(folder, "working-set", "Working sets of a recurrent host", found, notes)


def margins(
    host: RecurrentHost = "mini-recurrent",
    source: Source = "mini-paragraphs",
    context: Context = 256,
    limit: Limit = 10,
    hops: Hops = 1,
    num_steps: Steps = 32,
    prompt: Form = "chat",
    settings: Settings = None,
    seed: Seed = 0,
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    out: Out = None,
) -> None:
    """Margins, contraction and the bound of WISE's Theorem 6.1 on real trajectories."""
    from routelab.studies import claim_folder, margins_of_prompts

    folder = claim_folder(out or Path("runs/study-margins"), "margins")
    config = method_config("wise", settings or [])
    model, tokenizer, questions, notes = _recurrent(
        host, dtype, trust_remote_code, source, context, limit, hops, prompt, seed
    )
    prompts = [each.prompt for each in questions]
    found = margins_of_prompts(model, tokenizer, prompts, config, num_steps=num_steps, seed=seed)
    finish(folder, "margins", "Margins of working sets", found, notes)


def interference(
    recipe: Annotated[str, typer.Option(help="A recipe of kind modes: its host, its data.")] = "mini/pathlock",
    set_: Annotated[list[str] | None, typer.Option("--set", help="Change one key of the recipe. Repeatable.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Examples of each mode.")] = 16,
    layer: Annotated[list[int] | None, typer.Option(help="Look at this layer only. Repeatable.")] = None,
    penalty: Annotated[bool, typer.Option(help="Also estimate what one shared set of MLPs costs.")] = True,
    out: Out = None,
) -> None:
    """Gradients of think and no_think against each other in the MLPs of a dense host, before any training."""
    import dataclasses

    from routelab.recipe import ModesRecipe, load_recipe
    from routelab.studies import Notes, claim_folder

    loaded = load_recipe(recipe, set_ or [])
    if not isinstance(loaded, ModesRecipe):
        raise RecipeError(f"{recipe} is no recipe of kind modes, whose two modes are compared")
    folder = claim_folder(out or Path("runs/study-interference"), "interference")
    quiet()
    from routelab.manifest import rows_hash
    from routelab.modes import hybrid_corpus
    from routelab.run import load
    from routelab.study.interference import probe_interference
    from routelab.study.mode_gradients import MODES
    from routelab.train import encode_rows

    notes = Notes(command_line(), loaded.host)
    model, tokenizer = load(loaded.host)
    rows = hybrid_corpus(loaded, tokenizer).splits["train"]
    chosen = {mode: [row for row in rows if row["mode"] == mode][:limit] for mode in MODES}
    notes.data = {mode: {"rows": len(own), "sha256": rows_hash(own)} for mode, own in chosen.items()}
    examples = {mode: encode_rows(tokenizer, own, loaded.train).documents for mode, own in chosen.items()}
    found = dataclasses.asdict(probe_interference(model, examples, layers=layer, penalty=penalty))
    finish(folder, "interference", "Interference of think and no_think", found, notes)


def _recurrent(
    host: str,
    dtype: Any,
    trust_remote_code: bool,
    source: str,
    context: int,
    limit: int,
    hops: Any,
    prompt: Any,
    seed: int,
) -> tuple[Any, Any, Any, Any]:
    """Return model, tokenizer, questions and notes."""
    from routelab.manifest import rows_hash
    from routelab.recipe import HostSpec
    from routelab.recipe.working_sets import QuestionSpec
    from routelab.studies import Notes
    from routelab.working_sets.questions import ask, rows_of

    notes = Notes(command_line(), HostSpec(host, dtype=dtype, trust_remote_code=trust_remote_code), [seed])
    model, tokenizer = load_model(host, None, dtype, trust_remote_code)
    questions = ask(
        QuestionSpec(source, limit=limit, hops=hops, contexts=(context,), prompt=prompt), tokenizer, context
    )
    notes.data[source] = {"rows": len(questions), "sha256": rows_hash(rows_of(questions))}
    return model, tokenizer, questions, notes
