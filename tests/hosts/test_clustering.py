import pytest
import torch

from routelab.errors import ConfigError
from routelab.hosts.clustering import balanced_clusters


def planted(clusters: int, each: int, width: int = 24) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    centres = torch.linalg.qr(torch.randn(width, width, generator=generator))[0][:clusters]
    rows = centres.repeat_interleave(each, 0) + 0.05 * torch.randn(clusters * each, width, generator=generator)
    return rows * torch.rand(clusters * each, 1, generator=generator).add(0.5)


def test_every_row_is_in_exactly_one_cluster_of_equal_size() -> None:
    rows = torch.randn(60, 8, generator=torch.Generator().manual_seed(1))
    groups = balanced_clusters(rows, 5, seed=0)
    assert groups.shape == (5, 12)
    assert groups.flatten().sort().values.tolist() == list(range(60))
    assert all(group.tolist() == sorted(group.tolist()) for group in groups)


def test_planted_directions_are_found_whatever_their_lengths() -> None:
    groups = balanced_clusters(planted(4, 6), 4, seed=0)
    assert {frozenset(group.tolist()) for group in groups} == {frozenset(range(6 * c, 6 * c + 6)) for c in range(4)}


def test_the_seed_decides() -> None:
    rows = torch.randn(64, 16, generator=torch.Generator().manual_seed(2))
    first = balanced_clusters(rows, 8, seed=3)
    assert torch.equal(first, balanced_clusters(rows, 8, seed=3))
    assert not torch.equal(first, balanced_clusters(rows, 8, seed=4))


def test_one_cluster_holds_everything() -> None:
    assert balanced_clusters(torch.randn(6, 3), 1, seed=0).tolist() == [list(range(6))]


@pytest.mark.parametrize("clusters", [5, 0, -1])
def test_a_count_that_does_not_divide_is_refused_with_those_that_do(clusters: int) -> None:
    with pytest.raises(ConfigError, match=rf"12 neurons .* {clusters} equal experts.*\[2, 3, 4, 6, 12\]"):
        balanced_clusters(torch.randn(12, 3), clusters, seed=0)
