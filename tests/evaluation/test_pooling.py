from __future__ import annotations

import pytest
import torch

from deepcluster.evaluation.pooling import pooled
from deepcluster.networks import build_network


def widths(arch: str, size: int, layers: list[str]) -> list[int]:
    network = build_network(
        arch, "sobel", size, width=8, generator=torch.Generator().manual_seed(0)
    ).eval()
    with torch.no_grad():
        found = network.activations(torch.zeros(1, 3, size, size), layers)
    return [pooled(maps).shape[1] for maps in found.values()]


CONVOLUTIONS = [f"conv{number}" for number in range(1, 6)]


def test_alexnet_at_224_gives_the_numbers_of_the_lineage():
    assert widths("alexnet", 224, CONVOLUTIONS) == [9600, 9216, 9600, 9600, 9216]


def test_small_maps_stay_as_they_are():
    # 64 px: 15 x 15 x 96 is pooled; 7 x 7 x 256 to 6 x 6; 3 x 3 x 384 is less than 9,600 anyway.
    assert widths("alexnet", 64, CONVOLUTIONS) == [9600, 9216, 3456, 3456, 2304]


@pytest.mark.parametrize("size", [64, 96, 128, 160, 224])
def test_no_layer_has_more_than_9600(size: int):
    for width in widths("alexnet", size, CONVOLUTIONS):
        assert width <= 9600


def test_any_network_has_pooled_layers():
    assert widths("resnet18", 64, ["relu", "layer4", "pooled"]) == [64 * 144, 512 * 4, 512]


def test_the_fields_are_means_by_hand():
    maps = torch.arange(2 * 4800.0 * 16).reshape(2, 4800, 4, 4)
    result = pooled(maps)  # isqrt(9600 // 4800) = 1: one mean for each map
    assert torch.equal(result, maps.mean(dim=(2, 3)))
    quarters = pooled(maps[:, :2400])  # 2 x 2 fields of 2 x 2 places
    by_hand = torch.stack(
        [
            maps[:, :2400, down : down + 2, across : across + 2].mean(dim=(2, 3))
            for down in (0, 2)
            for across in (0, 2)
        ],
        dim=2,
    )
    assert torch.equal(quarters, by_hand.flatten(1))


def test_the_layout_in_memory_does_not_matter():
    maps = torch.randn(3, 96, 31, 31)
    assert torch.allclose(pooled(maps), pooled(maps.to(memory_format=torch.channels_last)))


def test_tokens_are_averaged_and_vectors_stay():
    tokens = torch.randn(2, 5, 7)
    assert torch.equal(pooled(tokens), tokens.mean(dim=1))
    assert torch.equal(pooled(tokens[:, 0]), tokens[:, 0])
