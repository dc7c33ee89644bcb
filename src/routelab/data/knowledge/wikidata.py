"""WikiData5M's raw files: aliases of entities, and triples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from routelab.data.knowledge.language import Knowledge, Task, Template
from routelab.errors import DataError, closest


def read_wikidata5m(entities: str | Path, triples: str | Path, templates: Mapping[str, Sequence[str]]) -> Knowledge:
    """Return the tasks of the relations that ``templates`` names, with the first alias of every entity as its name.

    Args:
        entities: tab-separated ``Q42, alias, alias, ...`` a line (``wikidata5m_entity.txt``).
        triples: tab-separated ``Q42, P31, Q5`` a line (``wikidata5m_*_train.txt``). Those with an entity that has no
            name, and those of other relations, are not of these tasks.
        templates: relation id to its templates; the data set brings none.

    Raises:
        DataError: a line with too few fields, or a relation without a triple.
    """
    parsed = {relation: tuple(Template.parse(text) for text in texts) for relation, texts in templates.items()}
    wanted: dict[str, list[tuple[str, str]]] = {relation: [] for relation in parsed}
    seen: set[str] = set()
    for subject, relation, object_ in _rows(triples, 3):
        seen.add(relation)
        if relation in wanted:
            wanted[relation].append((subject, object_))
    for relation, found in wanted.items():
        if not found:
            raise DataError(f"{triples} has no triple of the relation {relation!r}{closest(relation, seen)}")
    ids = {each for found in wanted.values() for pair in found for each in pair}
    names = {row[0]: row[1].strip() for row in _rows(entities, 2) if row[0] in ids}
    tasks = []
    for relation, found in wanted.items():
        pairs = dict.fromkeys((names[a], names[b]) for a, b in found if names.get(a) and names.get(b))
        tasks.append(Task(relation, parsed[relation], tuple(pairs)))
    return Knowledge(tuple(tasks))


def _rows(path: str | Path, fields: int) -> Iterator[list[str]]:
    try:
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                row = line.rstrip("\n").split("\t")
                if len(row) < fields:
                    raise DataError(f"{path}, line {number}: {fields} tab-separated fields expected, {len(row)} found")
                yield row
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
