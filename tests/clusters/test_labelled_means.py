from __future__ import annotations

import torch

from deepcluster.clusters import KMeans
from deepcluster.clusters.labelled_means import means_of_labelled
from deepcluster.runtime.world import World


def test_means_are_those_of_the_rows_with_each_label():
    rows = torch.tensor([[0.0, 0], [2, 0], [5, 5], [9, 9]])
    means = means_of_labelled(rows, torch.tensor([1, 1, 0, -1]), 2, World(), torch.Generator())
    assert means.tolist() == [[5, 5], [1, 0]]


def test_a_label_without_rows_starts_at_one_of_the_rows():
    rows = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 0, 0, 2, 2, 2, 2])
    means = means_of_labelled(rows, labels, 4, World(), torch.Generator().manual_seed(1))
    for empty in (1, 3):
        assert (means[empty] == rows).all(dim=1).any()


def test_k_means_started_there_keeps_its_clusters_when_the_space_is_turned():
    randomness = torch.Generator().manual_seed(0)
    rows = torch.randn(300, 8, generator=randomness)
    clustering = KMeans(k=12, iterations=200)
    first = clustering(rows, World(), torch.Generator().manual_seed(5))
    turned = rows @ torch.linalg.qr(torch.randn(8, 8, generator=randomness))[0]
    start = means_of_labelled(turned, first.labels, 12, World(), randomness)
    again = clustering(turned, World(), torch.Generator().manual_seed(6), centroids=start)
    assert torch.equal(again.labels, first.labels)
    elsewhere = clustering(turned, World(), torch.Generator().manual_seed(6))
    assert not torch.equal(elsewhere.labels, first.labels)
