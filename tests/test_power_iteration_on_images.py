"""Power iteration clustering on real features: an untrained network's, of real pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from deepcluster.beginning import new_network
from deepcluster.clusters import PowerIteration, normalized_mutual_information
from deepcluster.features import Features, Looking, Whitening, extract
from deepcluster.images.index import Index
from deepcluster.images.loader import Images
from deepcluster.images.pictures import write_demo_images
from deepcluster.presets import small
from deepcluster.runtime.errors import ManySingletons
from deepcluster.runtime.world import World


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Features, torch.Tensor]:
    folder: Path = tmp_path_factory.mktemp("pictures")
    write_demo_images(folder, count_per_source=40)
    images = Images(folder, Index.build(folder, 2), 64)
    assert images.labels is not None
    raw = extract(new_network(small()).trunk, images, World(), Looking(keep="device"))
    return Whitening(dimensions=36)(raw, World()), torch.from_numpy(images.labels)


@pytest.mark.parametrize("update", ["paper", "released"])
def test_a_sigma_too_small_leaves_most_images_alone_and_is_named(seen, update):
    features, _ = seen
    with pytest.warns(ManySingletons, match="sigma"):
        clusters = PowerIteration(sigma=0.01, update=update)(features.matrix)
    assert int((clusters.sizes == 1).sum()) > len(features.matrix) / 3


@pytest.mark.parametrize("update", ["paper", "released"])
def test_sigma_from_the_distances_groups_images_better_than_chance(seen, update):
    features, pictures = seen
    clusters = PowerIteration(sigma="auto", update=update)(features.matrix)  # no warning
    shuffled = pictures[torch.randperm(len(pictures), generator=torch.Generator().manual_seed(0))]
    found = normalized_mutual_information(clusters.labels, pictures)
    chance = normalized_mutual_information(clusters.labels, shuffled)
    assert found > chance + 0.05
    assert 2 <= clusters.count < len(pictures) / 3
