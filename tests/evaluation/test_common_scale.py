"""Batch norms that never saw an image, and layers of one scale."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from deepcluster.evaluation.common_scale import mean_squares, rescale, settling


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()


def test_an_untrained_batch_norm_gets_statistics_and_a_trained_one_keeps_its():
    network, images = layers(), [torch.rand(2, 3, 9, 9) for _ in range(3)]
    norm = network[1]
    with settling(network) as wanted:
        assert wanted
        for image in images:
            network(image)
    with torch.no_grad():
        outputs = [network[0](image) for image in images]
    means = torch.stack([output.mean(dim=(0, 2, 3)) for output in outputs]).mean(dim=0)
    torch.testing.assert_close(norm.running_mean, means)
    assert not norm.training
    assert norm.momentum == 0.1
    kept = norm.running_var.clone()
    with settling(network) as wanted:
        assert not wanted
        network(images[0])
    assert torch.equal(norm.running_var, kept)


def test_a_network_without_batch_norm_has_nothing_to_settle():
    with settling(nn.Conv2d(3, 4, 3)) as wanted:
        assert not wanted


def test_mean_squares_over_batches_of_unequal_size():
    found = mean_squares(
        [
            {"one": torch.tensor([1.0, 2.0]), "nothing": torch.zeros(2)},
            {"one": torch.tensor([3.0]), "nothing": torch.zeros(1)},
        ]
    )
    assert found["one"] == pytest.approx((14 / 3) ** 0.5)
    assert found["nothing"] == 1.0  # nothing is divided by zero


def test_a_rescaled_layer_gives_the_same_in_other_units():
    layer, rows = nn.Linear(5, 4), torch.rand(3, 5)
    with torch.no_grad():
        before = layer(rows)
        rescale(layer, 3.0, 7.0)
        torch.testing.assert_close(layer(rows / 3.0), before / 7.0)
