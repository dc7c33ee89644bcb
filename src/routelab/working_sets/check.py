"""Check a recipe on working sets without weights: the host's parameters, the questions, what there is to run."""

from __future__ import annotations

from routelab.data.multihop import read_multihop
from routelab.dryrun import host_config, meta_model
from routelab.errors import DataError
from routelab.methods.wise.method import WISE
from routelab.recipe.working_sets import MINI, QuestionSpec, WorkingSetsRecipe


def check_working_sets(recipe: WorkingSetsRecipe) -> list[tuple[str, str]]:
    """Return what could be checked as names and texts.

    Raises ``RecipeError``, ``HostError`` or ``DataError`` for what would stop the run.
    """
    config, origin = host_config(recipe.host)
    model = meta_model(config, recipe.host)
    WISE.locate(model)
    longest = max(recipe.questions.contexts) + recipe.questions.max_new_tokens
    positions = config.max_position_embeddings
    if longest > positions:
        raise DataError(f"questions.contexts: {longest} tokens with the answer; {recipe.host.name} has {positions}")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    names = [variant.name for variant in (*recipe.variants, *recipe.swept)]
    return [
        ("host", f"{recipe.host.name} ({config.model_type}, {parameters:,} parameters), from {origin}"),
        ("steps", f"{recipe.num_steps}, working set after step {recipe.base.discovery_steps}"),
        ("conditions", ", ".join(names)),
        ("contexts", f"{', '.join(map(str, recipe.questions.contexts))} tokens; seeds {list(recipe.seeds)}"),
        ("questions", _questions(recipe.questions)),
    ]


def _questions(spec: QuestionSpec) -> str:
    if spec.source == MINI:
        return f"{spec.limit} of {spec.source}, {spec.hops} hop{'s' if spec.hops > 1 else ''}"
    if spec.expected_rows is not None:
        return f"not read: a run asks {spec.limit} of {spec.source}, {spec.expected_rows:,} rows expected"
    there = len(read_multihop(spec.source, spec.split, spec.pool))
    if there < spec.limit:
        raise DataError(f"questions.limit: {spec.limit} questions are asked and {spec.source} has {there}")
    return f"{spec.limit} of {there} of {spec.source}"
