"""The two phases of the SFT-only control."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from routelab.errors import DataError

Row = Mapping[str, Any]


def two_phases(rows: Sequence[Row], *, think_first: float = 0.5, seed: int = 0) -> tuple[list[Row], list[Row]]:
    """Part the rows of a hybrid corpus into a phase that learns to think and one that learns both modes.

    The first phase holds the share ``think_first`` of the think rows, the second all other rows, so that each row is
    seen once, as in one phase: the two arms differ in order alone. After arXiv 2510.12680, the two-phase baseline of
    arXiv 2604.27201; neither says how the rows are divided, so that is a choice made here.

    Raises:
        DataError: a share outside 0 to 1, a row without a mode, or a phase without rows.
    """
    if not 0 < think_first <= 1:
        raise DataError(f"think_first is a share of the think rows, above 0 and up to 1; got {think_first}")
    for number, row in enumerate(rows):
        if row.get("mode") not in ("think", "no_think"):
            raise DataError(f"row {number} of a hybrid corpus needs a mode, 'think' or 'no_think': {row.get('mode')!r}")
    thinking = sorted(
        (i for i, row in enumerate(rows) if row["mode"] == "think"),
        key=lambda i: hashlib.sha256(f"{seed}/{rows[i]['id']}".encode()).digest(),
    )
    first = set(thinking[: round(len(thinking) * think_first)])
    phases = [rows[i] for i in sorted(first)], [row for i, row in enumerate(rows) if i not in first]
    if not all(phases):
        raise DataError(f"two phases of {len(rows)} rows, {len(thinking)} of them think, leave one phase empty")
    return phases
