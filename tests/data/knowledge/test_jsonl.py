"""The validator names the file, the line and the field of what is wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from routelab.data.knowledge import Knowledge, read_knowledge, write_knowledge
from routelab.errors import DataError

GOOD = {"relation": "P1", "templates": ["[X] is in [Y]."], "pairs": [["Paris", "France"]]}


def line(**changes: Any) -> str:
    return json.dumps({**GOOD, **changes}, ensure_ascii=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"relation": ', "not JSON"),
        ("[1]", "a relation is a JSON object, not list"),
        (
            '{"relation": "P2", "templates": ["[X] [Y]"], "pair": [["a", "b"]]}',
            "field pairs is missing; did you mean 'pair'",
        ),
        (line(relation=7), "field relation: a name is text, not 7"),
        (line(relation=" "), "field relation: a name is text"),
        (line(relation="P0"), "field relation: 'P0' is the name of an earlier line"),
        (line(templates="[X] [Y]"), "field templates: the list is str, not a list"),
        (line(templates=[]), "field templates: the list is empty"),
        (line(templates=["[X] [Y]", 3]), r"field templates\[1\]: a template is text, not 3"),
        (
            line(templates=["[X] in [Z]"]),
            r"field templates\[0\]: .* placeholder '\[Z\]'; did you mean '\[(X|Y)\]'",
        ),
        (line(templates=["⋆1 in ⋆3"]), r"field templates\[0\]: .* unknown placeholder '⋆3'; did you mean '⋆(1|2)'"),
        (line(templates=["in [Y]"]), r"field templates\[0\]: .* 0 places for the subject"),
        (line(templates=["[X] is"]), r"field templates\[0\]: .* 0 places for the object"),
        (line(templates=["[X] in [Y].", "⋆1 in ⋆2 ."]), r"field templates\[1\]: '⋆1 in ⋆2 \.' is there before"),
        (line(pairs=[]), "field pairs: the list is empty"),
        (line(pairs=None), "field pairs: the list is NoneType, not a list"),
        (line(pairs=[["a", "b"], ["a"]]), r"field pairs\[1\]: .* has 1 entries, not 2"),
        (line(pairs=[["a", "b", "c"]]), r"field pairs\[0\]: .* has 3 entries, not 2"),
        (line(pairs=[["a", None]]), r"field pairs\[0\]: a pair is \[subject, object\], both text"),
        (line(pairs=["ab"]), r"field pairs\[0\]: a pair is \[subject, object\]"),
        (line(pairs=[["a", " "]]), r"field pairs\[0\]: a name has at least one visible character"),
        (line(pairs=[["a", "</s>"]]), r"field pairs\[0\]: '</s>' is"),
        (line(pairs=[["a", "b"], ["c", "d"], ["a", "b"]]), r"field pairs\[2\]: \['a', 'b'\] is there before"),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    path.write_text(line(relation="P0") + "\n\n" + text + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"facts\.jsonl, line 3(:|,) .*{said}"):
        read_knowledge(path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b"\n \n", "holds no relation"),
        ("a.jsonl", b"\xff\xfe", "cannot read"),
        ("a.jsonl.gz", b"plain", "cannot read"),
        ("a.jsonl.gz", gzip.compress(b"{}", mtime=0)[:-4], "cannot read"),
    ],
)
def test_an_unreadable_file_is_named(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        read_knowledge(tmp_path / name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*none\.jsonl"):
        read_knowledge(tmp_path / "none.jsonl")


def test_further_fields_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    path.write_text(line(domains=["places"]), encoding="utf-8")
    assert [" ".join(sentence.words) for sentence in read_knowledge(path).sentences()] == ["Paris is in France ."]


@pytest.mark.parametrize("name", ["facts.jsonl", "facts.jsonl.gz"])
def test_the_same_knowledge_is_the_same_file(paper: Knowledge, name: str, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_knowledge(paper, tmp_path / folder / name)
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert read_knowledge(tmp_path / "one" / name) == paper
