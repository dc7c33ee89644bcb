"""The pages of studies of routing: where tokens go, and what the gates of attention-aware routing do."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from routelab.report.numbers import csv_text
from routelab.report.panel import Panel, canvas, grid, legend
from routelab.report.studies_parts import Found, Shown, percent, some_of, ticks_between, tint, title, whole_numbers
from routelab.report.tables import Table
from routelab.report.theme import ARMS, CONTROL, MUTED

#: Layers whose co-activation is drawn: the first, the last, and some between.
_MAPS = 6


def routing_shown(found: Found) -> Shown:
    """Load, entropy, agreement, co-activation, tasks and kinds of token."""
    layers: list[dict[str, Any]] = found["layers"]
    classes = fmean(each["classes"]["nmi"] for each in layers)
    several = len(found["tasks"]) > 1
    claim = f"The experts tell a token's kind by {percent(classes)} of the most they could"
    claim += f", and its task by {percent(fmean(e['tasks']['nmi'] for e in layers))}" if several else ""
    claim += (
        f"; {percent(fmean(found['agreement'].values()))} of the experts are those that {found['names']['control']} "
        "chooses."
        if found["agreement"]
        else "."
    )
    note = (
        "Shares are of mutual information between expert and kind (or task) over its largest possible value, mean over "
        "layers; kinds and tasks weigh the same, however many tokens they have."
    )
    panels = [_loads(found), _entropies(found)]
    if found["agreement"]:
        panels.append(_agreement(found))
    panels += [_strips(found, "classes", "classes", "kind of token"), _together(found)]
    if several:
        panels.append(_strips(found, "tasks", "tasks", "task"))
    return Shown(claim, note, panels, [_layer_table(found), _pair_table(found)])


def _loads(found: Found) -> Panel:
    figure, axes = canvas(0.9 + 0.22 * len(found["layers"]))
    even = 1 / found["experts"]
    full = tint(axes, [[share - even for share in each["load"]] for each in found["layers"]])
    ticks_between(axes, [each["layer"] for each in found["layers"]], range(found["experts"]))
    axes.set_xlabel("expert")
    axes.set_ylabel("layer", color=MUTED)
    rows = ([e["layer"], expert, share] for e in found["layers"] for expert, share in enumerate(e["load"]))
    caption = (
        f"Load of each expert against an even one ({percent(even)}). Blue: more, orange: less; full colour is "
        f"{100 * full:.1f} points."
    )
    return Panel("load", caption, figure, csv_text(["layer", "expert", "share"], rows))


def _entropies(found: Found) -> Panel:
    figure, axes = canvas(2.6)
    x = [each["layer"] for each in found["layers"]]
    for key, label, colour in (("load_entropy", "load", ARMS[0]), ("router_entropy", "router, per token", ARMS[1])):
        axes.plot(x, [each[key] for each in found["layers"]], "o-", color=colour, lw=1.8, ms=3.5, label=label)
        if found["control"]:
            values = [each[key] for each in found["control"]["layers"]]
            axes.plot(x, values, "o:", color=colour, lw=1.4, ms=2.5)
    legend(axes)
    axes.set_ylim(0, 1.02)
    whole_numbers(axes)
    axes.set_xlabel("layer")
    axes.set_ylabel("entropy / ln E", color=MUTED)
    caption = "Entropy of the load and of the router's distribution; 1: all experts alike."
    caption += f" Dotted: {found['names']['control']}." if found["control"] else ""
    models = {
        found["names"]["model"]: found,
        **({found["names"]["control"]: found["control"]} if found["control"] else {}),
    }
    rows = (
        [name, each["layer"], each["load_entropy"], each["router_entropy"]]
        for name, model in models.items()
        for each in model["layers"]
    )
    return Panel("entropy", caption, figure, csv_text(["model", "layer", "load", "router"], rows))


def _agreement(found: Found) -> Panel:
    figure, axes = canvas(2.6)
    layers = [int(layer) for layer in found["agreement"]]
    axes.plot(layers, [100 * value for value in found["agreement"].values()], "o-", color=ARMS[0], lw=1.8, ms=3.5)
    chance = 100 * found["top_k"] / found["experts"]
    axes.axhline(chance, color=CONTROL, lw=0.9, ls=(0, (4, 3)))
    axes.set_ylim(0, 102)
    whole_numbers(axes)
    axes.set_xlabel("layer")
    axes.set_ylabel("same experts chosen (%)", color=MUTED)
    caption = f"Chosen experts in common with {found['names']['control']}. Dashed: by chance."
    return Panel("agreement", caption, figure, csv_text(["layer", "share"], found["agreement"].items()))


def _strips(found: Found, key: str, stem: str, what: str) -> Panel:
    """A row per kind or task, a column per expert of every layer."""
    names = found["tasks"] if key == "tasks" else _class_names(found)
    strip = [[value for each in found["layers"] for value in _share(found, each, key, name)] for name in names]
    experts = found["experts"]
    figure, axes = canvas(0.8 + 0.24 * len(names))
    full = tint(axes, strip)
    for layer in range(1, len(found["layers"])):
        axes.axvline(layer * experts, color=MUTED, lw=0.5)
    axes.set_yticks([i + 0.5 for i in range(len(names))], names)
    named = some_of(len(found["layers"]))
    axes.set_xticks([(i + 0.5) * experts for i in named], [str(found["layers"][i]["layer"]) for i in named])
    axes.set_xlabel("layer, and within it its experts")
    rows = (
        [each["layer"], name, expert, share]
        for each in found["layers"]
        for name in names
        for expert, share in enumerate(_share(found, each, key, name))
    )
    caption = (
        f"Where each {what} goes: the share of its choices that each expert gets; full colour is {percent(full, 0)}."
    )
    return Panel(stem, caption, figure, csv_text(["layer", what, "expert", "share"], rows))


def _class_names(found: Found) -> list[str]:
    return list(dict.fromkeys(name for each in found["layers"] for name in each["classes"]["names"]))


def _share(found: Found, layer: Found, key: str, name: str) -> Sequence[float]:
    names = found["tasks"] if key == "tasks" else layer["classes"]["names"]
    shares: Sequence[Sequence[float]] = layer[key]["share"]
    return shares[names.index(name)] if name in names else [0.0] * found["experts"]


def _together(found: Found) -> Panel:
    count = len(found["layers"])
    kept = sorted({round(i * (count - 1) / max(1, min(_MAPS, count) - 1)) for i in range(min(_MAPS, count))})
    chosen = [found["layers"][i] for i in kept]
    figure, small = grid(len(chosen), 3, 1.75)
    for axes, each in zip(small, chosen, strict=True):
        single = [each["together"][i][i] for i in range(found["experts"])]
        excess = [
            [0.0 if a == b else value - single[a] * single[b] for b, value in enumerate(row)]
            for a, row in enumerate(each["together"])
        ]
        full = tint(axes, excess)
        ticks_between(axes, range(found["experts"]), range(found["experts"]), most=4)
        axes.set_aspect("equal")
        axes.tick_params(labelsize=6)
        title(axes, f"layer {each['layer']}, ±{100 * full:.1f}%")
    rows = (
        [each["layer"], a, b, value]
        for each in chosen
        for a, row in enumerate(each["together"])
        for b, value in enumerate(row)
        if b >= a
    )
    caption = (
        "Experts chosen together, against what their loads alone would give. Blue: more often, orange: less; full "
        "colour is the share of tokens above each map."
    )
    return Panel("together", caption, figure, csv_text(["layer", "expert", "other", "share of tokens"], rows))


def _layer_table(found: Found) -> Table:
    rows = []
    for each in found["layers"]:
        agreed = found["agreement"]
        rows.append(
            [
                str(each["layer"]),
                f"{each['largest']:.2f}×",
                str(each["unused"]),
                f"{each['load_entropy']:.3f}",
                f"{each['router_entropy']:.3f}",
                f"{each['classes']['nmi']:.3f}",
                f"{each['tasks']['nmi']:.3f}",
                percent(agreed[str(each["layer"])]) if agreed else "–",
            ]
        )
    columns = [
        "layer",
        "largest load",
        "unused",
        "load entropy",
        "router entropy",
        "NMI of kind",
        "NMI of task",
        "agreement",
    ]
    return Table("routing by layer", columns, rows, f"{found['texts']} texts, {found['tokens']:,} tokens.")


def _pair_table(found: Found) -> Table:
    rows = [
        [str(each["layer"]), *(f"{p['experts'][0]} & {p['experts'][1]}, {p['lift']:.1f}×" for p in each["pairs"][:3])]
        for each in found["layers"]
    ]
    rows = [[*row, *["–"] * (4 - len(row))] for row in rows]
    columns = ["layer", "first", "second", "third"]
    note = "Pairs of experts chosen together the most, over how often their loads alone would give it."
    return Table("experts chosen together", columns, rows, note, frozenset(columns[1:]))


def gates_shown(found: Found) -> Shown:
    """What the gates are, and how many tokens they send elsewhere."""
    layers: list[dict[str, Any]] = found["layers"]
    moved = fmean(each["moved"]["all views"] for each in layers)
    mean = fmean(view["mean"] for each in layers for view in each["views"])
    claim = f"The attention views change the experts of {percent(moved)} of the tokens; their mean gate is {mean:.2f}."
    note = "Compared is the top-k set of the gated logits with that of the standard logits of the same trained router."
    rows = [
        [
            str(each["layer"]),
            *(f"{view['mean']:.3f} ± {fmean(view['sd']):.3f}" for view in each["views"]),
            *(percent(value) for value in each["moved"].values()),
            percent(each["replaced"]["all views"]),
        ]
        for each in layers
    ]
    views = [view["view"] for view in layers[0]["views"]]
    columns = [
        "layer",
        *(f"gate, {view}" for view in views),
        "tokens moved",
        *(f"by {v} alone" for v in views),
        "experts replaced",
    ]
    table = Table("gates by layer", columns, rows, f"{found['texts']} texts; a gate as mean ± sd over tokens.")
    return Shown(claim, note, [_histograms(found, views), _gate_map(found, views), _moved(found)], [table])


def _histograms(found: Found, views: Sequence[str]) -> Panel:
    layers = found["layers"]
    figure, small = grid(len(layers), min(3, len(layers)), 1.5)
    edges = [i / found["bins"] for i in range(found["bins"] + 1)]
    for axes, each in zip(small, layers, strict=True):
        for view, colour in zip(each["views"], ARMS, strict=False):
            axes.stairs([100 * share for share in view["histogram"]], edges, color=colour, lw=1.5, label=view["view"])
        title(axes, f"layer {each['layer']}")
    legend(small[0])
    small[0].set_ylabel("gates (%)", color=MUTED, fontsize=8.5)
    rows = (
        [each["layer"], view["view"], edges[i], share]
        for each in layers
        for view in each["views"]
        for i, share in enumerate(view["histogram"])
    )
    caption = (
        "Distribution of the gates α over tokens and experts: 0 leaves the router as it was, 1 is attention alone."
    )
    return Panel("gates", caption, figure, csv_text(["layer", "view", "from", "share"], rows))


def _gate_map(found: Found, views: Sequence[str]) -> Panel:
    figure, small = grid(len(views), 1, 0.5 + 0.2 * len(found["layers"]))
    for number, (axes, view) in enumerate(zip(small, views, strict=True)):
        tint(axes, [each["views"][number]["experts"] for each in found["layers"]], 1.0)
        experts = range(len(found["layers"][0]["views"][0]["experts"]))
        ticks_between(axes, [each["layer"] for each in found["layers"]], experts)
        title(axes, f"{view} view")
        axes.set_ylabel("layer", color=MUTED, fontsize=8.5)
    small[-1].set_xlabel("expert", color=MUTED, fontsize=8.5)
    rows = (
        [each["layer"], view["view"], expert, mean, sd]
        for each in found["layers"]
        for view in each["views"]
        for expert, (mean, sd) in enumerate(zip(view["experts"], view["sd"], strict=True))
    )
    data = csv_text(["layer", "view", "expert", "mean", "sd"], rows)
    return Panel("gate-map", "Mean gate of every expert; full colour is 1.", figure, data)


def _moved(found: Found) -> Panel:
    figure, axes = canvas(2.6)
    x = [each["layer"] for each in found["layers"]]
    for name, colour in zip(found["layers"][0]["moved"], (ARMS[2], *ARMS), strict=False):
        label = name if name == "all views" else f"{name} alone"
        axes.plot(x, [100 * e["moved"][name] for e in found["layers"]], "o-", color=colour, lw=1.8, ms=3.5, label=label)
    legend(axes)
    axes.set_ylim(0, 102)
    whole_numbers(axes)
    axes.set_xlabel("layer")
    axes.set_ylabel("tokens with other experts (%)", color=MUTED)
    rows = ([each["layer"], name, share] for each in found["layers"] for name, share in each["moved"].items())
    data = csv_text(["layer", "views", "share of tokens"], rows)
    return Panel("moved", "Tokens whose chosen experts the attention views change.", figure, data)
