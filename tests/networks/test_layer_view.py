from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from deepcluster.networks import build_network, looked_at
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.seeds import generator


@pytest.fixture(scope="module")
def network():
    return build_network(
        "alexnet", "sobel", 128, width=64, generator=generator(0, "network")
    ).eval()


@pytest.fixture(scope="module")
def images():
    return torch.randn(3, 3, 128, 128, generator=torch.Generator().manual_seed(0))


def test_the_top_is_the_trunk(network):
    assert looked_at(network, "top") is network.trunk


@pytest.mark.parametrize(("layer", "grid"), [("conv3", (3, 3)), ("conv5", (4, 4))])
def test_maps_are_averaged_to_at_most_4096_numbers(network, images, layer, grid):
    with torch.no_grad():
        maps = network.activations(images, [layer])[layer]
        view = looked_at(network, layer)(images)
    assert min(maps.shape[2:]) >= grid[0]
    assert torch.equal(view, F.adaptive_avg_pool2d(maps, grid).flatten(1))
    assert view.shape[1] <= 4096


def test_a_linear_layer_is_taken_as_it_is(network, images):
    with torch.no_grad():
        expected = network.activations(images, ["fc6"])["fc6"]
        assert torch.equal(looked_at(network, "fc6")(images), expected)


def test_a_layer_that_is_not_there_is_refused_with_those_that_are(network):
    with pytest.raises(UsageError, match=r"conv6: no layer is called so; there are top, conv1, "):
        looked_at(network, "conv6")


def test_a_layer_without_maps_is_refused():
    network = build_network("vit_b_16", "rgb", 64, generator=generator(0, "network")).eval()
    layer = next(name for name in network.layers if "encoder" in name)
    with pytest.raises(UsageError, match="gives no maps"), torch.no_grad():
        looked_at(network, layer)(torch.zeros(1, 3, 64, 64))
