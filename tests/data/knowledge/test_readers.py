"""Readers of published data: ParaRel and BEAR rows, WikiData5M's raw files."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from routelab.data.knowledge import KnowledgeTokenizer, read_relations, read_wikidata5m, select, split
from routelab.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Small files of the published shapes, with the flaws that the published ones have."""
    rows = {
        "bear": [
            {
                "relation": "P1",
                "templates": ["[X] in [Y].", "[X] in [Y] .", "[Y] has [X]."],
                "pairs": [["a ", "b"], ["a", "b"]],
            }
        ],
        "pararel": [
            {"relation": "P1", "templates": ["[X] of [Y]"], "pairs": [["c", "d"]]},
            {"relation": "P2", "templates": ["[X], at [Y],"], "pairs": [["e", "f"], ["e", "g"]]},
        ],
    }
    for source, found in rows.items():
        (tmp_path / source).mkdir()
        with gzip.open(tmp_path / source / "relations.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in found)
    return tmp_path


def test_relations_of_one_source(folder: Path) -> None:
    (bear,) = read_relations("bear", folder).tasks
    assert [str(template) for template in bear.templates] == ["⋆1 in ⋆2 .", "⋆2 has ⋆1 ."]
    assert bear.pairs == (("a", "b"),)
    pararel = read_relations("pararel", folder)
    assert [task.name for task in pararel.tasks] == ["P1", "P2"]
    assert [" ".join(s.words) for s in pararel.sentences()] == ["c of d", "e , at f ,", "e , at g ,"]


def test_relations_of_both(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTELAB_DATA", str(folder))
    assert [(task.name, len(task.templates)) for task in read_relations("both").tasks] == [("P1", 2), ("P2", 1)]


def test_unknown_relations_and_missing_files(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no relations are called 'beer'; did you mean 'bear'"):
        read_relations("beer", folder)
    with pytest.raises(DataError, match=r"cannot read .*relations\.jsonl\.gz"):
        read_relations("bear", tmp_path / "nowhere")


def test_the_published_relations(data_root: Path) -> None:
    assert len(read_relations("pararel", data_root).tasks) == 39
    assert len(read_relations("bear", data_root).tasks) == 78
    both = read_relations("both", data_root)
    assert len(both.tasks) == 92
    knowledge = select(both, 40, 3, 200, seed=0)
    train, test = split(knowledge, seed=0)
    assert (len(train), len(test)) == (19_200, 4_800)
    tokenizer = KnowledgeTokenizer(knowledge)
    for sentence in test[::10]:
        ids = tokenizer.encode_sentence(sentence.words)[:-1]
        assert tokenizer.encode(tokenizer.decode(ids)) == ids


@pytest.fixture
def wikidata(tmp_path: Path) -> tuple[Path, Path, Path]:
    contents = {
        "entity.txt": "Q1\tParis\tCity of Light\nQ2\tFrance\nQ3\tParis\nQ4\tTroy\nQ5\t \n",
        "relation.txt": "P17\tcountry\tstate\nP19\tborn in\n",
        "triples.txt": "Q1\tP17\tQ2\nQ3\tP17\tQ4\nQ3\tP19\tQ4\nQ5\tP17\tQ2\nQ9\tP17\tQ2\nQ1\tP17\tQ2\n",
    }
    for name, text in contents.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / "entity.txt", tmp_path / "relation.txt", tmp_path / "triples.txt"


def test_wikidata5m(wikidata: tuple[Path, Path, Path]) -> None:
    knowledge = read_wikidata5m(*wikidata, {"P17": ["[X] is in [Y]."], "born in": ["[X] is from [Y]."]})
    assert [(task.name, task.pairs) for task in knowledge.tasks] == [
        ("P17", (("Paris", "France"), ("Paris (Q3)", "Troy"))),
        ("born in", (("Paris (Q3)", "Troy"),)),
    ]


@pytest.mark.parametrize(
    ("templates", "said"),
    [
        ({"P18": ["[X] [Y]"]}, r"relation\.txt has no relation 'P18'; did you mean 'P1(7|9)'"),
        ({"P17": ["[X] [Y]"], "country": ["[X] of [Y]"]}, "two keys of the templates mean one relation"),
        ({"P17": ["[X] [Z]"]}, "unknown placeholder"),
    ],
)
def test_wikidata5m_relations(wikidata: tuple[Path, Path, Path], templates: dict[str, list[str]], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_wikidata5m(*wikidata, templates)


def test_wikidata5m_lines(wikidata: tuple[Path, Path, Path]) -> None:
    entities, relations, triples = wikidata
    triples.write_text("Q1\tP17\tQ2\nQ1\tP17\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"triples\.txt, line 2: 2 of 3 tab-separated fields"):
        read_wikidata5m(entities, relations, triples, {"P17": ["[X] [Y]"]})
    triples.write_text("Q5\tP17\tQ2\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"no triple of 'P17' \(P17\) between entities that have names"):
        read_wikidata5m(entities, relations, triples, {"P17": ["[X] [Y]"]})
    with pytest.raises(DataError, match="cannot read"):
        read_wikidata5m(entities, relations, triples.with_name("none"), {"P17": ["[X] [Y]"]})


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, routelab.data.knowledge; assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
