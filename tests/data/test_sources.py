from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from routelab.data import data_root, load_rows
from routelab.errors import DataError

ROWS = [{"question": f"q{i}", "answer": "é"} for i in range(5)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROUTELAB_DATA", str(tmp_path))
    return tmp_path


def lines() -> str:
    return "\n".join(json.dumps(r, ensure_ascii=False) for r in ROWS) + "\n"


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.json.gz", "a.parquet"])
def test_each_format_gives_the_same_rows(folder: Path, name: str) -> None:
    path = folder / name
    text = lines() if "jsonl" in name else json.dumps(ROWS)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    elif name.endswith(".parquet"):
        from datasets import Dataset

        Dataset.from_list(ROWS).to_parquet(path)
    else:
        path.write_text(text, encoding="utf-8")
    assert load_rows(path) == ROWS
    assert load_rows(str(path), limit=2) == ROWS[:2]


def test_relative_names_are_found_below_the_data_root(folder: Path) -> None:
    (folder / "set").mkdir()
    (folder / "set" / "train.jsonl").write_text(lines())
    assert load_rows("set/train.jsonl") == ROWS


def test_blank_lines_are_skipped(folder: Path) -> None:
    (folder / "a.jsonl").write_text("\n" + lines() + "\n\n")
    assert load_rows(folder / "a.jsonl") == ROWS


def test_a_limit_does_not_read_past_itself(folder: Path) -> None:
    (folder / "a.jsonl").write_text(lines() + "{broken")
    assert load_rows(folder / "a.jsonl", limit=5) == ROWS


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("a.jsonl", b'{"x": 1}\n{"x": 2\n', r"a\.jsonl, line 2: not JSON"),
        ("a.jsonl", b'{"x": 1}\n\n[1]\n', r"line 3: a row is a JSON object, not list"),
        ("a.jsonl", b"\n", "holds no rows"),
        ("a.jsonl", b"\xff\xfe{}", "cannot read"),
        ("a.json", b'[{"x": 1},\n{"x": }]', r"a\.json, line 2"),
        ("a.json", b'{"x": 1}', "one JSON dict"),
        ("a.json", b'[{"x": 1}, 3]', "item 1"),
        ("a.jsonl.gz", b"not gzip", "cannot read"),
        ("a.jsonl.gz", gzip.compress(b'{"x": 1}\n' * 500, mtime=0)[:-12], "cannot read"),
        ("a.parquet", b"not parquet", "cannot read"),
    ],
)
def test_malformed_files_are_named(folder: Path, name: str, content: bytes, hint: str) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=hint):
        load_rows(folder / name)


def test_a_missing_file_names_the_nearest(folder: Path) -> None:
    (folder / "set").mkdir()
    (folder / "set" / "train.jsonl").write_text(lines())
    with pytest.raises(DataError, match=r"did you mean 'set/train\.jsonl'"):
        load_rows("set/trian.jsonl")
    with pytest.raises(DataError, match=r"did you mean 'train\.jsonl'"):
        load_rows(folder / "set" / "tran.jsonl")


def test_files_have_no_split_and_limits_are_positive(folder: Path) -> None:
    (folder / "a.jsonl").write_text(lines())
    with pytest.raises(DataError, match="has no split 'test'"):
        load_rows(folder / "a.jsonl", split="test")
    with pytest.raises(DataError, match="at least one row"):
        load_rows(folder / "a.jsonl", limit=0)


def test_an_unreachable_hub_name_says_what_a_file_looks_like(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def refuse(*args: object, **kwargs: object) -> None:
        raise ConnectionError("offline")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match=r"cannot load 'some/name'.*offline.*jsonl"):
        load_rows("some/name")


def test_hub_rows_respect_split_config_and_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked = []

    def serve(name: str, config: str | None, split: str) -> datasets.Dataset:
        asked.append((name, config, split))
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", serve)
    assert load_rows("some/name:main", split="test", limit=3) == ROWS[:3]
    assert load_rows("some/name", limit=99) == ROWS
    assert asked == [("some/name", "main", "test"), ("some/name", None, "train")]


def test_data_root_must_be_set_and_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ROUTELAB_DATA", raising=False)
    with pytest.raises(DataError, match="ROUTELAB_DATA is not set"):
        data_root()
    monkeypatch.setenv("ROUTELAB_DATA", str(tmp_path / "no"))
    with pytest.raises(DataError, match="not a directory"):
        data_root()


@pytest.mark.usefixtures("data_root")
def test_real_gsm8k_loads_whole() -> None:
    rows = load_rows("gsm8k/test.jsonl.gz")
    assert len(rows) == 1319
    assert all("#### " in row["answer"] for row in rows)
