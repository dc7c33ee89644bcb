from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from routelab.errors import DataError, EvaluationError
from routelab.evaluate.benchmarks import BOXED, GPQA_COLUMNS, LETTERED, STEM
from routelab.evaluate.tasks import get_task


def write(folder: Path, rows: list[dict[str, Any]], split: str = "test") -> str:
    (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return str(folder)


@pytest.mark.parametrize("name", ["math500", "aime24"])
def test_mathematics(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, [{"problem": "1+1?", "answer": "2"}, {"problem": "x?", "answer": "\\frac{1}{2}"}])
    task = get_task(name, path=path)
    assert [example["gold"] for example in task.examples] == ["2", "\\frac{1}{2}"]
    assert task.examples[0]["prompt"] == [{"role": "user", "content": f"1+1?\n\n{BOXED}"}]
    assert (task.kind, task.letters, task.private) == ("answer", "", False)
    assert len(get_task(name, path=path, limit=1).examples) == 1
    write(tmp_path, [{"problem": "1+1?", "solution": "2"}])
    with pytest.raises(DataError, match=r"row 0 of .* has no 'answer'"):
        get_task(name, path=path)


def test_gsm8k_bare_is_the_question_alone(tmp_path: Path) -> None:
    task = get_task("gsm8k-bare", path=write(tmp_path, [{"question": "1+1?", "answer": "1+1=2\n#### 1,002"}]))
    assert task.examples[0]["prompt"] == [{"role": "user", "content": "1+1?"}]
    assert task.examples[0]["gold"] == "1002"


SUBJECTS = ("anatomy", "astronomy", "virology")


def mmlu(folder: Path) -> str:
    rows = [
        {"subject": s, "question": f"{s} {i}?", "choices": ["w", "x", "y", "z"], "answer": i % 4}
        for s in SUBJECTS
        for i in range(20)
    ]
    return write(folder, rows)


def test_mmlu(tmp_path: Path) -> None:
    path = mmlu(tmp_path)
    task = get_task("mmlu", path=path)
    assert len(task.examples) == 60
    assert task.letters == "ABCD"
    example = task.examples[21]
    assert example["prompt"][0]["content"] == f"astronomy 1?\n\nA. w\nB. x\nC. y\nD. z\n\n{LETTERED}"
    assert example["gold"] == "B"
    some = get_task("mmlu", path=path, limit=30)
    assert {example["prompt"][0]["content"].split()[0] for example in some.examples} == set(SUBJECTS)
    assert some.sha256 == get_task("mmlu", path=path, limit=30).sha256
    assert some.sha256 != get_task("mmlu", path=path, limit=30, seed=1).sha256
    chosen = get_task("mmlu", path=path, subject="virology, anatomy").examples
    assert len(chosen) == 40
    with pytest.raises(EvaluationError, match="no subject 'astrology'; did you mean 'astronomy'"):
        get_task("mmlu", path=path, subject="astrology")


def test_mmlu_refuses_rows_of_another_form(tmp_path: Path) -> None:
    path = write(tmp_path, [{"subject": "a", "question": "q", "choices": ["x", "y"], "answer": 1}])
    with pytest.raises(DataError, match=r"row 0 of .* needs four choices"):
        get_task("mmlu", path=path)


@pytest.fixture
def gpqa(tmp_path: Path) -> str:
    path = tmp_path / "gpqa_diamond.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["Record ID", *GPQA_COLUMNS])
        writer.writeheader()
        for i in range(12):
            writer.writerow(dict(zip(GPQA_COLUMNS, (f"secret {i}?", "right ", "w1", "w2", "w3"), strict=True)))
    return str(path)


def test_gpqa_shuffles_choices_and_is_private(gpqa: str) -> None:
    task = get_task("gpqa", path=gpqa)
    assert task.private
    assert len({example["gold"] for example in task.examples}) > 1
    for example in task.examples:
        assert f"{example['gold']}. right\n" in example["prompt"][0]["content"]
    assert task.sha256 == get_task("gpqa", path=gpqa).sha256 != get_task("gpqa", path=gpqa, seed=1).sha256
    assert len(get_task("gpqa", path=gpqa, limit=3).examples) == 3


def test_gpqa_needs_a_path_and_its_columns(gpqa: str, tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="'gpqa' needs the option 'path'"):
        get_task("gpqa")
    other = tmp_path / "other.csv"
    other.write_text("question,answer\nq,a\n")
    with pytest.raises(DataError, match=r"row 0 of .* has no 'Question'; it has \['answer', 'question'\]"):
        get_task("gpqa", path=str(other))
    with pytest.raises(DataError, match="cannot read"):
        get_task("gpqa", path=str(tmp_path / "nothing.csv"))


def test_real_files(data_root: Path) -> None:
    assert len(get_task("math500").examples) == 500
    assert [float(example["gold"]) for example in get_task("aime24").examples][:1] == [204]
    stem = get_task("mmlu-stem")
    assert len(STEM) == 18
    assert len(stem.examples) == 3018
    assert len(get_task("mmlu").examples) == 14042
