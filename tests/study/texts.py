"""Random texts for tiny hosts."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from routelab.study.texts import StudyText


def random_texts(number: int, length: int = 20, task: str = "t", vocabulary: int = 61) -> Iterator[StudyText]:
    generator = torch.Generator().manual_seed(number)
    for i in range(number):
        yield StudyText(f"{task}-{i}", task, torch.randint(3, vocabulary, (length,), generator=generator).tolist())
