"""A hybrid corpus as files that ``load_rows`` reads."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

from routelab.data.hybrid.build import HybridCorpus


def write_corpus(corpus: HybridCorpus, folder: str | Path) -> list[Path]:
    """Write ``<split>.jsonl.gz`` for every split, then ``report.json``; return their paths.

    The same corpus gives the same bytes. Every file appears whole or not at all.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for split, rows in corpus.splits.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        written.append(_replace(folder / f"{split}.jsonl.gz", gzip.compress(lines.encode(), mtime=0)))
    report = json.dumps(corpus.report, ensure_ascii=False, indent=2) + "\n"
    return [*written, _replace(folder / "report.json", report.encode())]


def _replace(path: Path, content: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    os.replace(temporary, path)
    return path
