"""The pages of studies of attention: its autocorrelation, its sinks, and what a patch of routing does to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from routelab.report.numbers import csv_text
from routelab.report.panel import Panel, canvas, grid, legend
from routelab.report.studies_parts import (
    Found,
    Shown,
    percent,
    signed,
    spanned,
    ticks_between,
    tint,
    title,
    whole_numbers,
)
from routelab.report.tables import Table
from routelab.report.theme import ARMS, CONTROL, INK, MUTED

#: Of points of attention: a layer's routing moves sinks by little.
_DIGITS = 3


def acf_shown(found: Found) -> Shown:
    """Figure 2 of arXiv 2609.20974: autocorrelation of the attention window, and the lag where it is lost."""
    curves: list[dict[str, Any]] = found["curves"]
    largest = max(curve["window"] for curve in curves)
    lags = [curve["lag"] for curve in curves if curve["window"] == largest]
    reached = [lag for lag in lags if lag is not None]
    held = [curve["lag_uncentred"] for curve in curves if curve["window"] == largest]
    claim = (
        f"At M = {largest} the autocorrelation of the attention window falls below {found['threshold']} at lag "
        f"{spanned(reached)} over {len(lags)} layers."
        if len(reached) == len(lags)
        else f"At M = {largest} the autocorrelation of the attention window stays above {found['threshold']} in "
        f"{len(lags) - len(reached)} of {len(lags)} layers."
    )
    never = sum(lag is None for lag in held)
    note = (
        "The autocorrelation with the window's mean subtracted sums to −½ over all lags, whatever the signal, so it "
        "falls below 0.1 inside every window; how far inside is what a layer says. Without the subtraction "
        + (f"{never} of {len(held)} layers never fall below it." if never else f"the lag is {spanned(held)}.")
    )
    rows = [
        [
            str(curve["layer"]),
            str(curve["window"]),
            _lag(curve["lag"]),
            _lag(curve["lag_uncentred"]),
            f"{curve['tokens']:,}",
        ]
        for curve in curves
    ]
    columns = ["layer", "M", "lag", "lag without the mean", "windows"]
    table = Table(
        f"first lag below {found['threshold']}", columns, rows, f"{found['texts']} texts, {found['tokens']:,} tokens."
    )
    return Shown(claim, note, [_acf_curves(curves, found["threshold"]), _acf_lags(curves), _windows(curves)], [table])


def _acf_curves(curves: Sequence[dict[str, Any]], threshold: float) -> Panel:
    windows = sorted({curve["window"] for curve in curves})
    figure, small = grid(len(windows), min(len(windows), 3), 2.2)
    for axes, window in zip(small, windows, strict=True):
        own = [curve for curve in curves if curve["window"] == window]
        for place, curve in enumerate(own):
            share = (place + 1) / len(own)
            axes.plot(curve["acf"], color=ARMS[0], lw=1.2, alpha=0.25 + 0.75 * share)
        axes.axhline(threshold, color=MUTED, lw=0.9, ls=(0, (4, 3)))
        axes.set_ylim(-0.3, 1.02)
        title(axes, f"M = {window}")
        whole_numbers(axes, 3)
    small[len(small) // 2].set_xlabel("lag (tokens)", color=MUTED, fontsize=8.5)
    small[0].set_ylabel("autocorrelation", color=MUTED, fontsize=8.5)
    data = csv_text(
        ["layer", "window", "lag", "acf", "uncentred"],
        (
            [curve["layer"], curve["window"], lag, value, plain]
            for curve in curves
            for lag, (value, plain) in enumerate(zip(curve["acf"], curve["uncentred"], strict=True))
        ),
    )
    caption = f"Autocorrelation of the attention window; a line is a layer, darker the later. Dashed: {threshold}."
    return Panel("acf", caption, figure, data)


def _acf_lags(curves: Sequence[dict[str, Any]]) -> Panel:
    figure, axes = canvas(2.6)
    for window, colour in zip(sorted({curve["window"] for curve in curves}), ARMS, strict=False):
        for key, style in (("lag", "o-"), ("lag_uncentred", "o:")):
            known = [(c["layer"], c[key]) for c in curves if c["window"] == window and c[key] is not None]
            if known:
                label = f"M = {window}" if key == "lag" else None
                axes.plot(*zip(*known, strict=True), style, color=colour, lw=1.6, ms=3.5, label=label)
    legend(axes)
    axes.set_ylim(bottom=0)
    whole_numbers(axes)
    axes.set_xlabel("layer")
    axes.set_ylabel("first lag below 0.1", color=MUTED)
    caption = "Where the autocorrelation is lost, by layer. Dotted: without subtracting the mean."
    rows = ([c["layer"], c["window"], c["lag"], c["lag_uncentred"]] for c in curves)
    return Panel("acf-lags", caption, figure, csv_text(["layer", "window", "lag", "lag_uncentred"], rows))


def _windows(curves: Sequence[dict[str, Any]]) -> Panel:
    largest = max(curve["window"] for curve in curves)
    own = [curve for curve in curves if curve["window"] == largest]
    figure, axes = canvas(2.6)
    for place, curve in enumerate(own):
        weights = [100 * weight for weight in reversed(curve["weights"])]
        axes.plot(weights, color=ARMS[0], lw=1.2, alpha=0.25 + 0.75 * (place + 1) / len(own))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tokens back")
    axes.set_ylabel("attention weight (%)", color=MUTED)
    caption = f"The mean attention window, M = {largest}; a line is a layer, darker the later."
    rows = ([c["layer"], c["window"], back, x] for c in curves for back, x in enumerate(c["weights"][::-1]))
    return Panel("windows", caption, figure, csv_text(["layer", "window", "tokens back", "weight"], rows))


def sinks_shown(found: Found) -> Shown:
    """Figure 3 of arXiv 2609.20974, and its causal form where it was measured."""
    panels, tables = [_sinks(found), _sink_differences(found)], [_sink_table(found)]
    claim = _sink_claim(found)
    note = "Attention weight on the first token, mean over heads and over the tokens of a text but the first."
    patch = found.get("patch")
    if patch is not None:
        panels.append(_patches(patch))
        tables.append(_patch_table(patch))
        note += (
            " In the patch one layer's experts are chosen by the other model's router logits, all else unchanged: no "
            f"layer up to the patched one moved (largest change {patch['before']:.1g})."
        )
    return Shown(claim, note, panels, tables)


def _sink_claim(found: Found) -> str:
    marked = found["marked"]
    names = f"{found['names']['model']} and {found['names']['control']}"
    if marked is None:
        top = max(found["layers"], key=lambda each: abs(each["difference"]["mean"]))
        return f"The sinks of {names} differ the most in layer {top['layer']}: {_points(top['difference'])}."
    each = next(layer for layer in found["layers"] if layer["layer"] == marked)["difference"]
    clear = each["low"] > 0 or each["high"] < 0
    said = f"{_points(each)} ({signed(100 * each['low'], _DIGITS)} to {signed(100 * each['high'], _DIGITS)})"
    how = "more attention goes to the first token" if each["mean"] > 0 else "less attention goes to the first token"
    where = f"In layer {marked}, the first that routing from layer {found['routed']} on can move"
    return f"{where}, {how if clear else 'no change of the sink shows'}: {said}."


def _points(difference: dict[str, float]) -> str:
    return f"{signed(100 * difference['mean'], _DIGITS)} points"


def _sinks(found: Found) -> Panel:
    figure, axes = canvas(2.6)
    x = [each["layer"] for each in found["layers"]]
    for key, colour in (("control", CONTROL), ("model", ARMS[0])):
        label = found["names"][key]
        axes.plot(x, [100 * each[key] for each in found["layers"]], "o-", color=colour, lw=1.8, ms=3.5, label=label)
    _mark(axes, found)
    legend(axes)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("layer")
    axes.set_ylabel("attention on the first token (%)", color=MUTED)
    data = csv_text(["layer", "model", "control"], ([e["layer"], e["model"], e["control"]] for e in found["layers"]))
    return Panel("sinks", f"Attention sinks by layer, {found['texts']} texts.{_dashed(found)}", figure, data)


def _sink_differences(found: Found) -> Panel:
    figure, axes = canvas(2.6)
    axes.axhline(0, color=MUTED, lw=0.9)
    for each in found["layers"]:
        low, mean, high = (100 * each["difference"][key] for key in ("low", "mean", "high"))
        axes.plot([each["layer"]] * 2, [low, high], color=ARMS[0], lw=3.5, alpha=0.35, solid_capstyle="butt")
        axes.scatter([each["layer"]], [mean], s=24, color=ARMS[0], zorder=3, linewidths=0)
    _mark(axes, found)
    axes.set_xlabel("layer")
    axes.set_ylabel("difference (points)", color=MUTED)
    caption = f"{found['names']['model']} minus {found['names']['control']}, 95% intervals over texts.{_dashed(found)}"
    data = csv_text(
        ["layer", "model", "control", "difference", "low", "high"],
        (
            [e["layer"], e["model"], e["control"], *(e["difference"][key] for key in ("mean", "low", "high"))]
            for e in found["layers"]
        ),
    )
    return Panel("sink-difference", caption, figure, data)


def _mark(axes: Any, found: Found) -> None:
    whole_numbers(axes)
    if found["marked"] is not None:
        axes.axvline(found["marked"], color=INK, lw=0.9, ls=(0, (4, 3)), zorder=1)


def _dashed(found: Found) -> str:
    if found["marked"] is None:
        return ""
    return f" Dashed: layer {found['marked']}, the one after the first routed one ({found['routed']})."


def _sink_table(found: Found) -> Table:
    rows = [
        [
            str(each["layer"]),
            percent(each["model"], _DIGITS),
            percent(each["control"], _DIGITS),
            signed(100 * each["difference"]["mean"], _DIGITS),
            " to ".join(signed(100 * each["difference"][end], _DIGITS) for end in ("low", "high")),
        ]
        for each in found["layers"]
    ]
    columns = ["layer", found["names"]["model"], found["names"]["control"], "difference, points", "95% interval"]
    return Table("attention on the first token", columns, rows, f"{found['texts']} texts, {found['tokens']:,} tokens.")


def _patches(patch: Found) -> Panel:
    rows = [[each["mean"] for each in one["differences"]] for one in patch["patches"]]
    names = [_named(one["patched"]) for one in patch["patches"]]
    figure, axes = canvas(0.9 + 0.26 * len(rows))
    full = tint(axes, rows)
    ticks_between(axes, names, patch["layers"])
    axes.set_xlabel("layer")
    axes.set_ylabel("patched layer", color=MUTED)
    data = csv_text(
        ["patched", "layer", "difference", "low", "high"],
        (
            [_named(one["patched"]), each["layer"], *(each[key] for key in ("mean", "low", "high"))]
            for one in patch["patches"]
            for each in one["differences"]
        ),
    )
    caption = (
        "What the other model's routing in one layer does to the sinks of each layer. Blue: more attention on the "
        f"first token, orange: less; full colour is {100 * full:.{_DIGITS}f} points."
    )
    return Panel("sink-patch", caption, figure, data)


def _patch_table(patch: Found) -> Table:
    rows = []
    for one in patch["patches"]:
        after = [each for each in one["differences"] if each["layer"] > min(one["patched"])]
        next_one = next(iter(after), None)
        top = max(after, key=lambda each: abs(each["mean"]), default=None)
        rows.append([_named(one["patched"]), percent(one["moved"]), _cell(next_one), _cell(top)])
    columns = ["patched layer", "tokens rerouted", "change in the next layer", "largest change later"]
    note = "Points of attention on the first token, 95% intervals over texts."
    return Table(
        "sinks under patched routing",
        columns,
        rows,
        note,
        frozenset({"change in the next layer", "largest change later"}),
    )


def _cell(each: Found | None) -> str:
    if each is None:
        return "–"
    low, high = signed(100 * each["low"], _DIGITS), signed(100 * each["high"], _DIGITS)
    return f"layer {each['layer']}: {signed(100 * each['mean'], _DIGITS)} ({low} to {high})"


def _named(layers: Sequence[int]) -> str:
    return str(layers[0]) if len(layers) == 1 else "all"


def _lag(lag: int | None) -> str:
    return "–" if lag is None else str(lag)
