"""Clusters of equal size, used to split the neurons of one MLP into experts."""

from __future__ import annotations

import torch
from torch import Tensor

from routelab.errors import ConfigError

MAX_ROUNDS = 20


def balanced_clusters(rows: Tensor, clusters: int, *, seed: int) -> Tensor:
    """Group ``rows`` by direction into ``clusters`` groups of equal size (balanced spherical k-means).

    Starts from k-means++ centres, then alternates a balanced assignment (:func:`_assign`) with new centres
    ``c_e = normalise(Σ_{n∈e} r_n/‖r_n‖)`` until no row moves, at most ``MAX_ROUNDS`` times.

    Shapes: ``rows`` [N, d], any float dtype. Returns the row numbers of each cluster, int64 [clusters, N/clusters],
    ascending inside a cluster. The same rows, count and seed give the same clusters.

    Raises:
        ConfigError: N is not a multiple of ``clusters``.
    """
    count = rows.shape[0]
    if clusters < 1 or count % clusters:
        divisors = [n for n in range(2, 65) if count % n == 0]
        raise ConfigError(
            f"{count} neurons cannot be split into {clusters} equal experts; counts up to 64 that divide: {divisors}"
        )
    unit = torch.nn.functional.normalize(rows.detach().to("cpu", torch.float32), dim=1)
    centres = _first_centres(unit, clusters, torch.Generator().manual_seed(seed))
    owner = _assign(unit @ centres.T)
    for _ in range(MAX_ROUNDS):
        means = torch.stack([unit[owner == cluster].mean(0) for cluster in range(clusters)])
        moved = _assign(unit @ torch.nn.functional.normalize(means, dim=1).T)
        if torch.equal(moved, owner):
            break
        owner = moved
    return owner.argsort(stable=True).view(clusters, count // clusters)


def _first_centres(unit: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """k-means++ on the sphere: each next centre is drawn with probability ∝ (1 − best cosine so far)²."""
    chosen = [int(torch.randint(len(unit), (1,), generator=generator))]
    while len(chosen) < clusters:
        distance = (1 - (unit @ unit[chosen].T).amax(1)).clamp_min(1e-6)
        distance[chosen] = 0
        chosen.append(int(torch.multinomial(distance.square(), 1, generator=generator)))
    return unit[chosen]


def _assign(similarity: Tensor) -> Tensor:
    """Give every row its best cluster that still has room; rows with most to lose choose first.

    The order is by regret, best minus second-best similarity. On the gate rows of SmolLM2-135M this reached a higher
    mean similarity than optimal assignment did after the same number of rounds, at a tenth of the time.
    """
    count, clusters = similarity.shape
    if clusters == 1:
        return torch.zeros(count, dtype=torch.long)
    best = similarity.topk(2, dim=1).values
    order = (best[:, 0] - best[:, 1]).argsort(descending=True, stable=True).tolist()
    wishes = similarity.argsort(dim=1, descending=True, stable=True).tolist()
    room = [count // clusters] * clusters
    owner = [0] * count
    for row in order:
        cluster = next(wish for wish in wishes[row] if room[wish])
        room[cluster] -= 1
        owner[row] = cluster
    return torch.tensor(owner)
