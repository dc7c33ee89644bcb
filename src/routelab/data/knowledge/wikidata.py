"""WikiData5M's raw files: aliases of entities, aliases of relations, and triples (Wang et al., 2021)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from routelab.data.knowledge.language import Knowledge, Task
from routelab.data.knowledge.template import Template
from routelab.errors import DataError, closest


def read_wikidata5m(
    entities: str | Path, relations: str | Path, triples: str | Path, templates: Mapping[str, Sequence[str]]
) -> Knowledge:
    """Return one task for every relation that ``templates`` names, with the triples in the order of their file.

    An entity is called by its first alias; where an earlier line has that name, by ``"alias (Q42)"``, for two entities
    are never one token. A triple with an entity that has no alias is left out. The triples are read as a stream, and
    only those of the relations asked for are kept.

    Args:
        entities: lines ``Q42 <tab> alias <tab> …`` (``wikidata5m_entity.txt``).
        relations: lines ``P31 <tab> alias <tab> …`` (``wikidata5m_relation.txt``).
        triples: lines ``Q42 <tab> P31 <tab> Q5`` (``wikidata5m_transductive_train.txt`` and the like).
        templates: for a relation, by id or by first alias, its templates, which the data set does not bring.

    Raises:
        DataError: a line with too few fields, an unknown relation, one named twice, or one that is left without a pair.
    """
    aliases = {relation: alias for relation, alias, *_ in _rows(relations, 2)}
    wanted = {_relation(name, aliases, relations): name for name in templates}
    if len(wanted) < len(templates):
        raise DataError(f"two keys of the templates mean one relation; they are {', '.join(templates)}")
    found: dict[str, dict[tuple[str, str], None]] = {relation: {} for relation in wanted}
    for subject, relation, object_, *_ in _rows(triples, 3):
        if relation in found:
            found[relation][subject, object_] = None
    names = _entity_names(entities, {each for pairs in found.values() for pair in pairs for each in pair})
    tasks = []
    for relation, key in wanted.items():
        pairs = tuple((names[a], names[b]) for a, b in found[relation] if a in names and b in names)
        if not pairs:
            raise DataError(f"{triples} has no triple of {key!r} ({relation}) between entities that have names")
        tasks.append(Task(key, tuple(Template.parse(text) for text in templates[key]), pairs))
    return Knowledge(tuple(tasks))


def _relation(name: str, aliases: dict[str, str], path: str | Path) -> str:
    """Return the id of a relation that is given by id or by first alias."""
    if name in aliases:
        return name
    ids = [relation for relation, alias in aliases.items() if alias == name]
    if not ids:
        raise DataError(f"{path} has no relation {name!r}{closest(name, [*aliases, *aliases.values()])}")
    return ids[0]


def _entity_names(path: str | Path, wanted: set[str]) -> dict[str, str]:
    """Return a name of its own for each of the ``wanted`` entities that has an alias."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for entity, alias, *_ in _rows(path, 2):
        if entity in wanted and entity not in names and alias.strip():
            names[entity] = f"{alias.strip()} ({entity})" if alias.strip() in taken else alias.strip()
            taken.add(names[entity])
    return names


def _rows(path: str | Path, fields: int) -> Iterator[list[str]]:
    try:
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                row = line.rstrip("\n").split("\t")
                if len(row) < fields:
                    raise DataError(f"{path}, line {number}: {len(row)} of {fields} tab-separated fields are there")
                yield row
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
