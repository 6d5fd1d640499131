"""Features averaged over views: which views, and that the mean is theirs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from deepcluster.networks import build_network, looked_at
from deepcluster.networks.many_views import MOST_VIEWS, ManyViews, views_of


def test_the_views_are_the_image_its_mirror_image_and_four_corners():
    image = torch.arange(64.0).view(1, 1, 8, 8)
    views = list(views_of(image, MOST_VIEWS))
    assert len(views) == 6
    assert all(view.shape == image.shape for view in views)
    assert torch.equal(views[0], image)
    assert torch.equal(views[1], image.flip(-1))
    # Corners of six by six pixels; the outermost pixel of each is the image's own.
    top_left, bottom_right, top_right, bottom_left = (view[0, 0] for view in views[2:])
    assert (top_left[0, 0], top_left[-1, -1]) == (image[0, 0, 0, 0], image[0, 0, 5, 5])
    assert (bottom_right[-1, -1], bottom_right[0, 0]) == (image[0, 0, 7, 7], image[0, 0, 2, 2])
    assert (top_right[0, 0], top_right[-1, -1]) == (
        image[0, 0, 0, 7],
        image[0, 0, 5, 2],
    )  # mirrored
    assert (bottom_left[0, -1], bottom_left[-1, 0]) == (image[0, 0, 2, 0], image[0, 0, 7, 5])


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_fewer_views_are_the_first_ones(count: int):
    image = torch.rand(2, 3, 16, 16)
    few, all_of_them = list(views_of(image, count)), list(views_of(image, MOST_VIEWS))
    assert len(few) == count
    assert all(torch.equal(a, b) for a, b in zip(few, all_of_them[:count], strict=True))


def test_the_feature_is_the_mean_over_the_views_and_the_mode_is_the_networks():
    network = build_network("alexnet", "sobel", 64, width=16, generator=torch.Generator()).eval()
    images = torch.randn(3, 1, 64, 64)
    seen = looked_at(network, "top", 6)
    assert not seen.training
    with torch.no_grad():
        expected = torch.stack([network.trunk(view) for view in views_of(images, 6)]).mean(dim=0)
        torch.testing.assert_close(seen(images), expected)
        mirrored = looked_at(network, "top", 2)
        torch.testing.assert_close(mirrored(images), mirrored(images.flip(-1)))
    assert looked_at(network, "top") is network.trunk
    assert ManyViews(nn.Identity().train(), 2).training
