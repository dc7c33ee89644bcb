"""What a run did beside its own evaluations, on its page: its studies, with links, and tasks of the harness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from routelab.report.page import Entry
from routelab.report.tables import Table

_HOST = "base"


def study_entries(results: Mapping[str, Any]) -> list[Entry]:
    """Return what each study of a run found; the link is relative to the run's page, whatever the results hold."""
    return [
        Entry(row["study"], f"study: {row['page']}", row["claim"], link=quote(row["page"]))
        for row in results.get("studies", [])
    ]


def harness_tables(results: Mapping[str, Any]) -> list[Table]:
    """Return the table of the evaluation harness, in a list that is empty where nothing was asked of it."""
    rows = results.get("harness", [])
    if not rows:
        return []
    arms = list(dict.fromkeys(arm for row in rows for arm in row["arms"]))
    named = ["host, untouched" if arm == _HOST else arm for arm in arms]
    return [
        Table(
            "evaluation harness",
            ["task", "metric", *named],
            [[row["task"], row["metric"], *(_score(row["arms"].get(arm)) for arm in arms)] for row in rows],
            note=f"± standard error, of the harness. Trained arms: seed {results['seeds'][0]} only. "
            "routelab compare pairs the examples of two arms.",
            text=frozenset({"task", "metric"}),
        )
    ]


def _score(found: Sequence[float | None] | None) -> str:
    if found is None or found[0] is None:
        return "–"
    value, error = found
    return f"{value:.4f}" if error is None else f"{value:.4f} ± {error:.4f}"
