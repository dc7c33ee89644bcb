"""The page of a run on working sets: what each condition keeps of full attention's answers, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from routelab.report.numbers import csv_text, interval, spread
from routelab.report.page import Page, Verdict, facts, started
from routelab.report.panel import Panel, canvas, legend, row_labels
from routelab.report.tables import Table
from routelab.report.theme import ARMS, MUTED, VARIABLES, arm_colours
from routelab.report.working_set_maps import maps_panel

Results = Mapping[str, Any]
#: The four quantities whose rest is timed, and their names.
QUANTITIES = {
    "support": "attention support",
    "attention": "attention weights",
    "state": "hidden state",
    "output": "attention output",
}


def working_sets_page(results: Results, manifest: Mapping[str, Any]) -> Page:
    """Return the page of the results and manifest of a run on working sets."""
    colours = arm_colours(list(results["conditions"]), "full")
    seeds = len(results["seeds"])
    return Page(
        title=results["title"] or results["name"],
        eyebrow=[f"host {results['host']}", f"{seeds} seed{'s' if seeds != 1 else ''}", *started(manifest)],
        claim=claim(results),
        verdict=_verdict(results, colours),
        note=results["note"],
        draw=lambda: panels(results, colours),
        tables=tables(results),
        commands=results["commands"],
        facts=facts(manifest),
        colours={name: f"var(--{VARIABLES[colour][0]})" for name, colour in colours.items()},
    )


def claim(results: Results) -> str:
    """Say what the working set keeps, and of how many blocks, at the first context length."""
    context = _first(results)
    ours, full = (100 * _mean(context["variants"][name], "f1") for name in ("wise", "full"))
    said = f"With {ours:.1f} F1 against {full:.1f} of full attention"
    if context["routing"] is None:
        return f"{said}, WISE answers {results['source']}."
    kept, depth = (context["routing"]["coverage"]["wise"], results["wise"]["discovery_steps"])
    return (
        f"{said}, WISE reads {100 * kept['density']:.0f}% of the blocks after step {depth} of {results['num_steps']}, "
        f"which hold {100 * kept['future_mass']:.1f}% of the attention."
    )


def tables(results: Results) -> list[Table]:
    """Return the table of every context length, the sweeps, stability, and convergence times."""
    found = [condition_table(results, tokens) for tokens in results["contexts"]]
    context = _first(results)
    if context["sweeps"]:
        found.append(_scores("WISE at other settings", context, {"as above": "wise", **_names(context["sweeps"])}))
    if context.get("split_half") is not None:
        found.append(split_table(context["split_half"]))
    if context["routing"] is not None:
        found.append(stability_table(results))
    if context["convergence"] is not None:
        found.append(convergence_table(context["convergence"]))
    return found


def condition_table(results: Results, tokens: str) -> Table:
    """Every condition at one length: answers, loss, what changed against full attention, blocks kept."""
    context = results["contexts"][tokens]
    title = f"{context['n']} questions of {context['tokens']:.0f} tokens, {results['num_steps']} steps"
    return _scores(title, context, _names(context["variants"]))


def split_table(found: Mapping[str, Any]) -> Table:
    """The difference between WISE and SizeMatched in F1, in either half of the questions and in all."""
    parts = ("first_half", "second_half", "pooled")
    rows = [[part.replace("_", " "), str(found[part]["n"]), interval(found[part], 100, 1)] for part in parts]
    held = "holds in both" if found["replicates"] else "does not hold in both"
    title = "WISE minus SizeMatched, looked for again"
    return Table(title, ["questions", "n", "F1"], rows, f"The difference {held}.", frozenset({"questions"}))


def stability_table(results: Results) -> Table:
    """When the working set of the run's own settings comes to rest, at every context length."""
    rows = []
    depth = results["wise"]["discovery_steps"]
    for context in results["contexts"].values():
        if context["routing"] is None:
            continue
        found, audit = context["routing"]["stability"], context["routing"]["audit"]
        rows.append(
            [
                f"{context['tokens']:.0f}",
                f"{found['rolling'][depth - 2]:.3f}" if depth > 1 else "–",
                f"{found['endpoint']:.3f}",
                *(f"{100 * found['stable'][level][depth - 1]:.0f}%" for level in ("0.90", "0.95")),
                f"{audit['equal']:,} of {audit['units']:,}",
            ]
        )
    return Table(
        "the working set at discovery",
        ["tokens", "Jaccard to the step before", "to the last step", "stable at 0.90", "at 0.95", "sizes matched"],
        rows,
        f"Stable: three transitions in a row by step {depth}. Sizes: units where SizeMatched keeps as many blocks.",
        frozenset({"sizes matched"}),
    )


def convergence_table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """Mean convergence times and the gap under every setting of the criteria."""
    rows = []
    for name, each in found.items():
        times = [f"{each[q]['mean']:.2f}" + _censored(each[q]["censored"]) for q in QUANTITIES]
        rows.append([name, *times, f"{each['gap']:+.2f}".replace("-", "−"), f"{each['positive']} of {each['n']}"])
    return Table(
        "mean step of convergence",
        ["criteria", *QUANTITIES.values(), "gap", "gap above 0"],
        rows,
        "Never at rest counts as one step past the last; how many in parentheses.",
        frozenset({"criteria"}),
    )


def panels(results: Results, colours: Mapping[str, str]) -> list[Panel]:
    """Return the drawings that the results allow."""
    context = _first(results)
    drawn = [_differences(results, context, colours)]
    if context["convergence"] is not None:
        drawn.append(convergence_panel(context["convergence"]))
    known = {tokens: each["routing"] for tokens, each in results["contexts"].items() if each["routing"] is not None}
    if known:
        depth = results["wise"]["discovery_steps"]
        curves = {f"{tokens} tokens": routing["stability"]["rolling"] for tokens, routing in known.items()}
        drawn.append(stability_panel(curves, depth))
        if len(results["contexts"]) > 1:
            drawn.append(_scaling(results))
        shown = next((routing["maps"] for routing in known.values() if routing.get("maps")), None)
        if shown is not None:
            drawn.append(maps_panel(shown, depth))
    return drawn


def _differences(results: Results, context: Mapping[str, Any], colours: Mapping[str, str]) -> Panel:
    names = [name for name in context["variants"] if name != "full"]
    figure, axes = canvas(0.95 + 0.42 * len(names))
    axes.axvline(0, color=MUTED, lw=1)
    for y, name in enumerate(names):
        found = context["variants"][name]["from full"]["f1"]
        axes.plot([100 * found["low"], 100 * found["high"]], [y, y], color=colours[name], lw=4, solid_capstyle="butt")
        axes.scatter([100 * found["mean"]], [y], s=48, color=colours[name], zorder=3, linewidths=0)
    row_labels(axes, names, colours)
    axes.set_xlabel("F1 minus that of full attention, points")
    caption = (
        f"Answers against full attention, {context['n']} questions of {context['tokens']:.0f} tokens, 95% intervals."
    )
    rows = (
        [name, *(context["variants"][name]["from full"]["f1"][key] for key in ("mean", "low", "high"))]
        for name in names
    )
    return Panel("differences", caption, figure, csv_text(["condition", "difference", "low", "high"], rows))


def convergence_panel(found: Mapping[str, Mapping[str, Any]]) -> Panel:
    """Draw the share of prompts in which each quantity has come to rest, by step, under the default criteria."""
    figure, axes = canvas(2.6)
    for (name, label), colour in zip(QUANTITIES.items(), ARMS, strict=False):
        share = [100 * value for value in found["D"][name]["converged"]]
        style = "-" if name in ("support", "attention") else "--"
        axes.plot(range(1, len(share) + 1), share, style, color=colour, lw=1.8, label=label)
    legend(axes)
    axes.set_xlabel("recurrent step")
    axes.set_ylabel("prompts at rest (%)", color=MUTED)
    rows = (
        [setting, name, step, share]
        for setting, each in found.items()
        for name in QUANTITIES
        for step, share in enumerate(each[name]["converged"], start=1)
    )
    data = csv_text(["criteria", "quantity", "step", "share at rest"], rows)
    caption = "What has come to rest by each step: where a model looks, and what it makes of it."
    return Panel("convergence", caption, figure, data)


def stability_panel(curves: Mapping[str, Sequence[float]], depth: int) -> Panel:
    """Draw how like the working set of a step is to that of the step before; a curve per name, frozen at ``depth``."""
    figure, axes = canvas(2.6)
    for (name, values), colour in zip(curves.items(), ARMS, strict=False):
        axes.plot(range(2, len(values) + 2), values, color=colour, lw=1.8, label=name or None)
    axes.axvline(depth, color=MUTED, lw=1, ls=(0, (4, 3)))
    if len(curves) > 1:
        legend(axes)
    axes.set_xlabel("recurrent step")
    axes.set_ylabel("Jaccard to the step before", color=MUTED)
    rows = ([name, step, value] for name, values in curves.items() for step, value in enumerate(values, start=2))
    caption = "How much of the working set of one step is that of the next; the dashed line is where it is frozen."
    return Panel("stability", caption, figure, csv_text(["prompts", "step", "jaccard"], rows))


def _scaling(results: Results) -> Panel:
    figure, axes = canvas(2.6)
    known = [each for each in results["contexts"].values() if each["routing"] is not None]
    lengths = [each["tokens"] for each in known]
    for (name, label), colour in zip(
        (("density", "blocks kept"), ("future_mass", "attention kept")), ARMS, strict=False
    ):
        values = [100 * each["routing"]["coverage"]["wise"][name] for each in known]
        axes.plot(lengths, values, "o-", color=colour, lw=1.8, ms=4, label=label)
    legend(axes)
    axes.set_ylim(0, 102)
    axes.set_xlabel("tokens of the prompt")
    axes.set_ylabel("share after discovery (%)", color=MUTED)
    rows = (
        [each["tokens"], *(each["routing"]["coverage"]["wise"][k] for k in ("density", "future_mass"))]
        for each in known
    )
    data = csv_text(["tokens", "blocks kept", "attention kept"], rows)
    caption = "Blocks that WISE reads, and the attention that falls on them, by length of the prompt."
    return Panel("scaling", caption, figure, data)


def _verdict(results: Results, colours: Mapping[str, str]) -> Verdict:
    found = _first(results)["variants"]["wise"]["from full"]["f1"]
    lower, higher = found["high"] < 0, found["low"] > 0
    low, high = 100 * found["low"], 100 * found["high"]
    return Verdict(
        number=f"{100 * found['mean']:+.1f} F1 points".replace("-", "−"),
        interval=f"{low:+.1f} to {high:+.1f}".replace("-", "−"),
        word="less than full attention" if lower else "more than full attention" if higher else "no difference shown",
        colour=f"var(--{VARIABLES[colours['wise']][0]})",
        reading=f"WISE minus full attention on the same {found['n']} questions; the interval covers {found['covers']}.",
        clear=lower or higher,
    )


def _scores(title: str, context: Mapping[str, Any], shown: Mapping[str, str]) -> Table:
    rows = []
    covered = {} if context["routing"] is None else context["routing"]["coverage"]
    for label, name in shown.items():
        found = context["variants"].get(name) or context["sweeps"][name]
        cells = [spread([scale * seed[score] for seed in found["seeds"]], digits) for score, scale, digits in _SHOWN]
        differs = interval(found["from full"]["f1"], 100, 1) if "from full" in found else "–"
        kept = covered.get(name)
        rows.append(
            [
                label,
                *cells,
                differs,
                f"{found['from full']['changed']:.1f}" if "from full" in found else "–",
                *(["–", "–"] if kept is None else [f"{100 * kept['density']:.1f}", f"{100 * kept['future_mass']:.1f}"]),
            ]
        )
    columns = ["condition", "F1", "exact match", "loss", "F1 from full", "answers changed", "blocks (%)", "mass (%)"]
    return Table(title, columns, rows, "Mean ± sd over seeds; 95% intervals.", frozenset({"condition"}))


_SHOWN = (("f1", 100.0, 1), ("em", 100.0, 1), ("loss", 1.0, 4))


def _names(variants: Mapping[str, Any]) -> dict[str, str]:
    return {name.replace("_", " "): name for name in variants}


def _first(results: Results) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(iter(results["contexts"].values()))
    return found


def _mean(variant: Mapping[str, Any], score: str) -> float:
    return fmean(seed[score] for seed in variant["seeds"])


def _censored(count: int) -> str:
    return f" ({count})" if count else ""
