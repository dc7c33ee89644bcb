"""The page of a run on hybrid thinking: what each arm says and gets right in each mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

from routelab.report.numbers import csv_text, interval, spread
from routelab.report.page import Page, Verdict, facts, started
from routelab.report.panel import Panel, canvas, legend, row_labels
from routelab.report.tables import Table
from routelab.report.theme import ARMS, INK, MUTED, VARIABLES, arm_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Results = Mapping[str, Any]
MODES = ("no_think", "think")
COLUMNS = (
    ("accuracy (%)", "accuracy", 100.0, 1),
    ("reflective words", "reflective", 1.0, 2),
    ("answers with any (%)", "reflective_share", 100.0, 1),
    ("answers with working (%)", "working_share", 100.0, 1),
)


def modes_page(results: Results, manifest: Mapping[str, Any]) -> Page:
    """Return the page of the results and manifest of a run on hybrid thinking."""
    colours = arm_colours(list(results["arms"]), results["control"])
    seeds = len(results["seeds"])
    return Page(
        title=results["title"] or results["name"],
        eyebrow=[f"host {results['host']['name']}", f"{seeds} seed{'s' if seeds != 1 else ''}", *started(manifest)],
        claim=claim(results),
        verdict=_verdict(results, colours),
        note=results["note"],
        draw=lambda: panels(results, colours),
        tables=tables(results),
        commands=results["commands"],
        facts=facts(manifest),
        colours={arm: f"var(--{VARIABLES[colour][0]})" for arm, colour in colours.items()},
    )


def claim(results: Results) -> str:
    """Say what the first arm and the control do when told not to think."""
    first = next((arm for arm in results["arms"] if arm != results["control"]), results["control"])
    said = []
    for arm in dict.fromkeys((first, results["control"])):
        seeds = [each["no_think"] for each in results["arms"][arm]["modes"].values()]
        words = mean(each["reflective"] for each in seeds)
        said.append(
            f"{arm} is right in {100 * mean(e['accuracy'] for e in seeds):.1f}% with {words:.2f} reflective words"
        )
    return f"Told not to think, {'; '.join(said)} an answer."


def tables(results: Results) -> list[Table]:
    """Return one table per mode, the differences from the control, the crossed measures and the probe."""
    found = [mode_table(results, mode) for mode in MODES]
    if results["comparisons"]:
        found.append(comparison_table(results))
    if any(seed for arm in results["arms"].values() for seed in arm["crossed"].values()):
        found.append(crossed_table(results))
    if results["interference"]:
        found.append(interference_table(results["interference"]))
    found.append(training_table(results))
    return found


def mode_table(results: Results, mode: str) -> Table:
    """Every arm in one mode, and the host told the same word; mean ± standard deviation over seeds."""
    rows = [["host, untouched", *_row([results["base"][mode]])]]
    for arm, values in results["arms"].items():
        rows.append([arm, *_row([seed[mode] for seed in values["modes"].values()])])
    columns = ["arm", *(name for name, *_ in COLUMNS), "tokens", "median", "P99", "cut off", "empty"]
    return Table(f"told /{mode}, {results['task']}, {results['base'][mode]['n']} held-out examples", columns, rows)


def comparison_table(results: Results) -> Table:
    """Every arm minus the control in each mode, on the same examples, with 95 % intervals."""
    rows = []
    for each in results["comparisons"]:
        cells = [interval(each["measures"][name], scale, digits) for _, name, scale, digits in COLUMNS]
        rows.append([each["arm"], each["mode"], *cells, interval(each["measures"]["tokens"], 1.0, 1)])
    covers = results["comparisons"][0]["measures"]["accuracy"]["covers"]
    return Table(
        f"difference from {results['control']}",
        ["arm", "mode", *(name for name, *_ in COLUMNS), "tokens"],
        rows,
        f"95% intervals over {covers}.",
        frozenset({"arm", "mode"}),
    )


def crossed_table(results: Results) -> Table:
    """Every expert under every control word: what the word does, and what the expert does."""
    rows = []
    for arm, values in results["arms"].items():
        for expert in next(iter(values["crossed"].values()), {}):
            for word in MODES:
                rows.append(
                    [arm, expert, f"/{word}", *_row([seed[expert][word] for seed in values["crossed"].values()])]
                )
    columns = ["arm", "expert", "word", *(name for name, *_ in COLUMNS), "tokens", "median", "P99", "cut off", "empty"]
    return Table("control word and expert, crossed", columns, rows, text=frozenset({"arm", "expert", "word"}))


def interference_table(probe: Mapping[str, Any]) -> Table:
    """Cosine of the two modes' gradients before training, per layer, beside that of two halves of one mode."""
    rows = [
        [
            "all" if each["layer"] is None else str(each["layer"]),
            _number(each["cosine"]),
            *(_number(each["same_mode"][mode]) for mode in MODES),
            _number(each["think_share"]),
        ]
        for each in [*probe["layers"], probe["overall"]]
    ]
    penalty = probe["penalty"]
    cost = (
        f" One shared set of MLPs costs {penalty['penalty']:.4f} nats a token in the local quadratic, "
        f"{100 * penalty['of_gain']:.0f}% of what both modes could gain."
        if penalty
        else ""
    )
    return Table(
        "gradients of the two modes before training",
        ["layer", "cosine", "within no_think", "within think", "think's share of length"],
        rows,
        f"Cosines between no_think and think, and between two halves of one mode's examples.{cost}",
    )


def training_table(results: Results) -> Table:
    """Steps, tokens, seconds and trained parameters, mean over seeds."""
    rows = []
    for arm, values in results["arms"].items():
        cells = [
            f"{mean(seed[key] for seed in values['train'].values()):,.0f}" for key in ("steps", "tokens", "seconds")
        ]
        rows.append([arm, f"{values['trainable_parameters']:,}", *cells])
    return Table("training", ["arm", "trained parameters", "steps", "tokens", "seconds"], rows)


def panels(results: Results, colours: Mapping[str, str]) -> list[Panel]:
    """Return the drawings: leakage when told not to think, accuracy and length in both modes, the probe."""
    drawn = [
        _dots(
            results, colours, "reflective", 1.0, "leakage", "reflective words an answer, told /no_think", ("no_think",)
        ),
        _dots(results, colours, "accuracy", 100.0, "accuracy", "accuracy (%)", MODES),
        _dots(results, colours, "tokens", 1.0, "lengths", "tokens an answer", MODES),
    ]
    if results["interference"]:
        drawn.append(cosine_panel(results["interference"]))
    return drawn


def _dots(
    results: Results,
    colours: Mapping[str, str],
    measure: str,
    scale: float,
    stem: str,
    label: str,
    modes: Sequence[str],
) -> Panel:
    arms = list(results["arms"])
    figure, axes = canvas(0.95 + 0.42 * (len(arms) + 1))
    rows: list[list[object]] = []
    for y, arm in enumerate(["host", *arms]):
        seeds = [results["base"]] if arm == "host" else list(results["arms"][arm]["modes"].values())
        colour = MUTED if arm == "host" else colours[arm]
        for mode in modes:
            values = [scale * _value(seed[mode], measure) for seed in seeds]
            filled = mode == "think" or len(modes) == 1
            axes.scatter(
                values, [y] * len(values), s=26, color=colour if filled else "none", edgecolors=colour, zorder=3
            )
            rows += [[arm, mode, seed, value] for seed, value in enumerate(values)]
            axes.plot([mean(values)] * 2, [y - 0.22, y + 0.22], color=colour, lw=2)
    row_labels(axes, ["host", *arms], {"host": MUTED, **colours})
    axes.set_xlabel(label)
    how = "" if len(modes) == 1 else " Filled: told to think; open: told not to."
    caption = f"{label[0].upper()}{label[1:]}, {results['task']}. A dot is a seed, the bar their mean.{how}"
    return Panel(stem, caption, figure, csv_text(["arm", "told", "run", label], rows))


def cosine_panel(probe: Mapping[str, Any]) -> Panel:
    """Draw the cosine of two modes' gradients per layer, beside that of two halves of one mode."""
    figure, axes = canvas(2.4)
    drawn = {
        "no_think against think": (ARMS[0], "o-"),
        "within no_think": (MUTED, "o:"),
        "within think": (MUTED, "o-"),
    }
    for label, (colour, style) in drawn.items():
        mode = label.removeprefix("within ")
        values = [each["same_mode"][mode] if mode in MODES else each["cosine"] for each in probe["layers"]]
        known = [(each["layer"], v) for each, v in zip(probe["layers"], values, strict=True) if v is not None]
        if known:
            axes.plot(*zip(*known, strict=True), style, color=colour, lw=1.6, ms=3.5, label=label)
    legend(axes)
    axes.axhline(0, color=MUTED, lw=0.8)
    _ticks(axes, [each["layer"] for each in probe["layers"]])
    axes.set_xlabel("layer", color=INK)
    axes.set_ylabel("cosine of gradients", color=INK)
    caption = "Before training: cosine of the gradients that examples of two modes, or two halves of one, give an MLP."
    rows = ([each["layer"], each["cosine"], *(each["same_mode"][mode] for mode in MODES)] for each in probe["layers"])
    data = csv_text(["layer", "cosine", *(f"within {mode}" for mode in MODES)], rows)
    return Panel("interference", caption, figure, data)


def _ticks(axes: Axes, layers: Sequence[int]) -> None:
    axes.set_xticks(layers[:: max(1, len(layers) // 12)])


def _verdict(results: Results, colours: Mapping[str, str]) -> Verdict | None:
    found = next((each for each in results["comparisons"] if each["mode"] == "no_think"), None)
    if found is None:
        return None
    words = found["measures"]["reflective"]
    fewer, more = words["high"] < 0, words["low"] > 0
    control = results["control"]
    return Verdict(
        number=f"{words['mean']:+.2f} reflective words an answer".replace("-", "−"),
        interval=f"{words['low']:+.2f} to {words['high']:+.2f}".replace("-", "−"),
        word=f"fewer than {control}" if fewer else f"more than {control}" if more else "no difference shown",
        colour=f"var(--{VARIABLES[colours[found['arm']]][0]})",
        reading=f"{found['arm']} minus {control}, both told /no_think, on the same {words['n']} examples; the interval "
        f"covers {words['covers']}.",
        clear=fewer or more,
    )


def _row(seeds: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [spread([scale * seed[name] for seed in seeds], digits) for _, name, scale, digits in COLUMNS]
    cells += [spread([seed["tokens"][name] for seed in seeds], 0) for name in ("mean", "median", "p99")]
    return cells + [spread([float(seed[name]) for seed in seeds], 0) for name in ("truncated", "empty")]


def _value(seed: Mapping[str, Any], measure: str) -> float:
    return float(seed["tokens"]["mean"] if measure == "tokens" else seed[measure])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}".replace("-", "−")
