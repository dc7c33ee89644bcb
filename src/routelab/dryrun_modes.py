"""Check a recipe on hybrid thinking without weights and without training: parameters, corpus, trainings."""

from __future__ import annotations

from routelab.dryrun import activation_bytes, host_config, human_bytes, meta_model, time_text, tokens_at_most
from routelab.dryrun_costs import active_parameters, flops_per_token
from routelab.hosts.dense import locate_dense
from routelab.modes import hybrid_corpus
from routelab.recipe.modes import ModesRecipe


def check_modes(recipe: ModesRecipe) -> list[tuple[str, str]]:
    """Return what could be checked as names and texts.

    Raises ``RecipeError``, ``HostError``, ``ConfigError`` or ``DataError`` for what would stop the run.
    """
    config, origin = host_config(recipe.host)
    model = meta_model(config, recipe.host)
    dense = sum(parameter.numel() for parameter in model.parameters())
    locked = dense + sum(
        parameter.numel()
        for layer in locate_dense(model).layers
        for parameter in getattr(layer.module, str(layer.mlp)).parameters()
    )
    dtype = next(model.parameters()).dtype
    size = dtype.itemsize
    # AdamW keeps two float32 moments, the gradient, and a float32 copy of what is trained in fewer bits.
    state = {count: count * (8 + 2 * size + (4 if size < 4 else 0)) for count in (dense, locked)}
    train, corpus, rows = recipe.train, *_corpus(recipe)
    flops = flops_per_token(
        model, trained=active_parameters(model), length=train.max_length, recomputed=train.gradient_checkpointing
    )
    most = tokens_at_most(train, rows)
    for arm in recipe.arms:
        host_config(recipe.host_of(arm))
    trained = [arm for arm in recipe.arms if recipe.trains(arm).method != "average"]
    return [
        ("host", f"{recipe.host.name} ({config.model_type}, {dense:,} parameters), from {origin}"),
        ("path-lock", f"{locked:,} parameters, {locked / dense:.2f} × the host; {dense:,} active per token"),
        ("weights and optimizer", f"{human_bytes(state[dense])} dense, {human_bytes(state[locked])} path-locked"),
        ("activations", f"{human_bytes(activation_bytes(config, train, dtype))}, roughly"),
        ("trainings", f"{len(trained) * len(recipe.seeds)}: {', '.join(trained)}; {len(recipe.seeds)} seeds"),
        ("time each", time_text(most, flops)),
        ("corpus", corpus),
    ]


def _corpus(recipe: ModesRecipe) -> tuple[str, int]:
    """Return what is known of the corpus, and the most rows that it trains on: two modes of every question."""
    spec = recipe.data
    if spec.expected_rows is not None:
        return f"not read: a run reads {spec.source}, {spec.expected_rows:,} rows expected", 2 * spec.expected_rows
    report = hybrid_corpus(recipe, None).report
    kept = ", ".join(f"{split} {count}" for split, count in report["kept"].items() if count)
    dropped = report["dropped"].items()
    reasons = [f"{mode} {why}: {each['count']}" for mode, found in dropped for why, each in found.items()]
    text = f"kept {kept}; dropped {', '.join(reasons) or 'none'} (lengths in characters)"
    return text, sum(report["kept"]["train"].values())
