"""Subject groups hold each of the 57 subjects once."""

from __future__ import annotations

from pathlib import Path

from routelab.data.mmlu_subjects import BOTH, GROUPS, PUBLISHED, REASONING, RETRIEVAL, group_of
from routelab.data.sources import load_rows


def test_every_subject_has_one_group() -> None:
    subjects = [subject for group in GROUPS.values() for subject in group]
    assert len(subjects) == len(set(subjects)) == 57
    assert group_of("high_school_statistics") == "math"
    assert group_of("astrology") is None
    assert set(PUBLISHED) == {*REASONING, *RETRIEVAL}
    assert {*REASONING, *BOTH, *RETRIEVAL} < set(GROUPS)


def test_subjects_are_those_of_the_data(data_root: Path) -> None:
    rows = load_rows(data_root / "mmlu" / "dev.jsonl.gz")
    assert {row["subject"] for row in rows} == {subject for group in GROUPS.values() for subject in group}
