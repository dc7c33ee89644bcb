"""The files of a host's checkpoint: what tells two hosts of one name apart."""

from __future__ import annotations

import hashlib
from pathlib import Path

from routelab.hosts.minis import available, mini_path


def folder_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every configuration and weight file of a checkpoint folder."""
    found = {}
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("config.json")]):
        with path.open("rb") as stream:
            found[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def host_files(name: str) -> dict[str, str]:
    """Return the SHA-256 of the files of a host that is a mini or a directory; of a hub's, nothing."""
    folder = mini_path(name) if name in available() else Path(name)
    return folder_hashes(folder) if folder.is_dir() else {}
