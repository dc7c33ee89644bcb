"""Structured knowledge: templates and tables, their sentences, and exactly which words may follow which prefix."""

from routelab.data.knowledge.fictional import fictional
from routelab.data.knowledge.jsonl import read_knowledge, write_knowledge
from routelab.data.knowledge.language import Knowledge, Sentence, Task
from routelab.data.knowledge.relations import read_relations
from routelab.data.knowledge.selection import select, split
from routelab.data.knowledge.template import OBJECT, SUBJECT, Template
from routelab.data.knowledge.tokenizer import KnowledgeTokenizer
from routelab.data.knowledge.trie import BEGIN, END, Trie
from routelab.data.knowledge.wikidata import read_wikidata5m

__all__ = [
    "BEGIN",
    "END",
    "OBJECT",
    "SUBJECT",
    "Knowledge",
    "KnowledgeTokenizer",
    "Sentence",
    "Task",
    "Template",
    "Trie",
    "fictional",
    "read_knowledge",
    "read_relations",
    "read_wikidata5m",
    "select",
    "split",
    "write_knowledge",
]
