"""Commands on a model: generate, trace, evaluate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from routelab.cli import construct
from routelab.cli.common import (
    Dtype,
    Host,
    Method,
    NumSteps,
    Raw,
    Routing,
    Seed,
    Settings,
    Trust,
    attach_untrained,
    console,
    load_model,
    method_config,
    progress,
    read_prompt,
    writable_folder,
)
from routelab.cli.harness import evaluate_harness
from routelab.errors import ConfigError

Mode = Annotated[
    Literal["think", "no_think"] | None, typer.Option(help="The mode of path-locked experts: appends its control word.")
]


def generate(
    prompt: Annotated[str, typer.Argument(help="What to say to the model; - reads standard input.")],
    host: Host = "mini-moe",
    routing: Routing = None,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 256,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    num_samples: Annotated[int, typer.Option(min=1, help="Answers to draw; needs a temperature.")] = 1,
    seed: Seed = 0,
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    raw: Raw = False,
    mode: Mode = None,
    method: Method = None,
    settings: Settings = None,
    num_steps: NumSteps = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole records as JSON lines.")] = False,
) -> None:
    """Answer one prompt, with the host alone or with saved or untrained routing on it."""
    text = read_prompt(prompt)
    if construct.constructed(host):
        construct.complete(host, text, as_json=as_json)
        return
    model, tokenizer = load_model(host, routing, dtype, trust_remote_code)
    from routelab.evaluate import generate_answers
    from routelab.evaluate.gold_loss import calling_with

    attach_untrained(model, method, settings)
    with calling_with(model, **_depth(num_steps)):
        records = generate_answers(
            model,
            tokenizer,
            [_prompt(model, text, mode, raw=raw)],
            max_new_tokens=max_new_tokens,
            batch_size=1,
            num_samples=num_samples,
            temperature=temperature,
            seed=seed,
        )
    for record in records:
        typer.echo(json.dumps(record, ensure_ascii=False) if as_json else record["output"])


def trace(
    prompt: Annotated[str, typer.Argument(help="What to say to the model; - reads standard input.")],
    host: Host = "mini-moe",
    routing: Routing = None,
    layer: Annotated[list[int] | None, typer.Option(help="Show this layer only. Repeatable.")] = None,
    raw: Raw = False,
    settings: Settings = None,
    num_steps: NumSteps = None,
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Show what routing does with a prompt: experts, gates and sinks per token and layer, the mode, or, in a recurrent
    host, where it looks at every step (--num-steps, and --set for the working set)."""
    text = read_prompt(prompt)
    if construct.constructed(host):
        construct.explain(host, text, as_json=as_json)
        return
    model, tokenizer = load_model(host, routing, dtype, trust_remote_code)
    import routelab
    from routelab.evaluate.prompts import render
    from routelab.report.terminal import print_trace
    from routelab.study.trace import trace as traced

    rendered = text if raw else render(tokenizer, [{"role": "user", "content": text}])
    if any(method.name == "pathlock" for method in routelab.attached(model)):
        from routelab.report.terminal import print_mode
        from routelab.study.modes import trace_mode

        decided = trace_mode(model, rendered)
        typer.echo(json.dumps(decided, ensure_ascii=False)) if as_json else print_mode(console(), decided)
        return
    if model.config.model_type == "huginn_raven":
        from routelab.report.terminal import print_recurrence
        from routelab.study.recurrence import trace_recurrence

        config = method_config("wise", settings or [])
        seen = trace_recurrence(model, tokenizer, rendered, config, num_steps=num_steps or 32).to_dict()
        typer.echo(json.dumps(seen, ensure_ascii=False)) if as_json else print_recurrence(console(), seen)
        return
    found = traced(model, tokenizer, rendered).only(layer)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        print_trace(console(), found.to_dict())


def evaluate(
    task: Annotated[str | None, typer.Option(help="mini-arithmetic, mini-facts, gsm8k or text-loss.")] = None,
    harness: Annotated[
        str | None,
        typer.Option(help="Tasks of the lm-evaluation-harness instead: routelab_gsm8k,routelab_bbh."),
    ] = None,
    host: Host = "mini-moe",
    routing: Routing = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use the first so many examples.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write summary.json and records.jsonl into this directory; with --harness, "
            "results_<date>.json and samples_<task>_<date>.jsonl.",
            callback=writable_folder,
        ),
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of the task: shots=4. Repeatable.")] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 16,
    max_new_tokens: Annotated[int | None, typer.Option(min=1, help="The task's own by default.")] = None,
    num_samples: Annotated[int, typer.Option(min=1, help="Answers per example; needs a temperature.")] = 1,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    seed: Seed = 0,
    method: Method = None,
    settings: Settings = None,
    num_steps: NumSteps = None,
    run_code: Annotated[
        bool,
        typer.Option(
            "--confirm-run-unsafe-code",
            "--confirm_run_unsafe_code",
            help="Let tasks of the harness run code that the model wrote, as this user.",
        ),
    ] = False,
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Evaluate a host, or saved routing on it, on one task; report the number truthfully, with every record."""
    from routelab.recipe import assignments

    options = assignments(option or [], "--option")
    if (task is None) == (harness is None):
        raise ConfigError("name one: --task, or --harness with tasks of the lm-evaluation-harness")
    if harness is not None:
        if options or max_new_tokens or num_samples > 1 or temperature:
            raise ConfigError("--harness takes its tasks' own settings; routelab lm-eval passes others through")
        named: dict[str, Any] = {"host": host, "dtype": dtype, "batch_size": batch_size, **_depth(num_steps)}
        named |= {
            "routing": routing and str(routing),
            "method": method,
            "settings": assignments(settings or [], "--set") or None,
        }
        given = {key: value for key, value in named.items() if value is not None}
        evaluate_harness(
            harness,
            model_args={**given, "trust_remote_code": trust_remote_code},
            limit=limit,
            seed=seed,
            out=out,
            run_code=run_code,
            as_json=as_json,
        )
        return
    assert task is not None
    if run_code:
        raise ConfigError("--confirm-run-unsafe-code is for tasks of --harness; --task runs no code")
    from routelab import processes

    processes.join()
    model, tokenizer = load_model(host, routing, dtype, trust_remote_code)
    from routelab.evaluate import evaluate as evaluated
    from routelab.evaluate.gold_loss import calling_with
    from routelab.report.terminal import print_summary

    attach_untrained(model, method, settings)
    with calling_with(model, **_depth(num_steps)):
        summary = evaluated(
            model,
            tokenizer,
            task,
            limit=limit,
            batch_size=batch_size,
            max_new_tokens=max_new_tokens,
            num_samples=num_samples,
            temperature=temperature,
            seed=seed,
            records_path=None if out is None else out / "records.jsonl",
            options=options,
            on_progress=progress(task),
        )
    if out is not None:
        from routelab.hosts.files import host_files
        from routelab.rundir import write_json

        asked = {"host": host, "routing": routing and str(routing), **_asked(model, tokenizer, num_steps)}
        write_json(out / "summary.json", {**asked, **summary, "host_files": host_files(host)})
    if not processes.is_first():
        return
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=False))
    else:
        print_summary(console(), host if routing is None else f"{host} with {routing}", summary)


def chat(
    routing: Annotated[Path, typer.Option(help="Path-locked experts, a directory written by routelab.save.")],
    host: Host = "mini-dense",
    mode: Annotated[Literal["think", "no_think"], typer.Option(help="The mode to begin with.")] = "no_think",
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 256,
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
) -> None:
    """Talk to a path-locked model; a line that is /think or /no_think switches the mode, an empty one ends."""
    model, tokenizer = load_model(host, routing, dtype, trust_remote_code)
    from routelab.evaluate import generate_answers

    turns: list[dict[str, str]] = []
    while said := typer.prompt(f"[{mode}]", default="", show_default=False).strip():
        if said in ("/think", "/no_think"):
            mode = "think" if said == "/think" else "no_think"
            continue
        turns.append(_prompt(model, said, mode, raw=False)[0])
        (record,) = generate_answers(model, tokenizer, [turns], max_new_tokens=max_new_tokens, batch_size=1)
        typer.echo(record["output"])
        turns.append({"role": "assistant", "content": record["output"]})


def export(
    routing: Annotated[Path, typer.Option(help="Path-locked experts, a directory written by routelab.save.")],
    out: Annotated[Path, typer.Option(help="A new directory for the checkpoint, or for one of each mode.")],
    host: Host = "mini-dense",
    mode: Annotated[Literal["think", "no_think", "both"], typer.Option()] = "both",
    max_shard_size: Annotated[str, typer.Option(help="As transformers reads it, such as 5GB.")] = "5GB",
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
) -> None:
    """Write a path-locked model as plain checkpoints of its host's own class, for any engine."""
    model, _ = load_model(host, routing, dtype, trust_remote_code)
    from routelab.methods.pathlock.export import export as exported

    for name, folder in exported(model, out, mode=mode, max_shard_size=max_shard_size).items():
        typer.echo(f"{name}: {folder}")


def _depth(num_steps: int | None) -> dict[str, int]:
    """Return what a forward is given for ``--num-steps``."""
    return {} if num_steps is None else {"num_steps": num_steps}


def _asked(model: Any, tokenizer: Any, num_steps: int | None) -> dict[str, Any]:
    """Return what else decides a number: the methods, the depth, and the hash of the chat template."""
    import dataclasses
    import hashlib

    import routelab

    methods = [{"name": each.name, "config": dataclasses.asdict(each.config)} for each in routelab.attached(model)]
    template = tokenizer.chat_template
    digest = None if template is None else hashlib.sha256(str(template).encode()).hexdigest()
    return {"methods": methods, "call": _depth(num_steps), "chat_template_sha256": digest}


def _prompt(model: Any, text: str, mode: str | None, *, raw: bool) -> Any:
    """Return the text, or a chat of one turn; with the control word of ``mode``, which needs path-locked experts."""
    if mode is None:
        return text if raw else [{"role": "user", "content": text}]
    from routelab.methods.pathlock.export import path_lock
    from routelab.methods.pathlock.template import with_mode

    messages = with_mode([{"role": "user", "content": text}], mode, path_lock(model).config)
    return messages[0]["content"] if raw else messages
