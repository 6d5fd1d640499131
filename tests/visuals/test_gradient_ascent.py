"""The image that a filter wants to see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from deepcluster.images.crops import normalize
from deepcluster.images.index import Index
from deepcluster.images.loader import Images
from deepcluster.networks import Network, build_network
from deepcluster.runtime.errors import UsageError
from deepcluster.visuals.gradient_ascent import GradientAscent, blurred, likelihoods_of, shown

SHORT = GradientAscent(steps=30)


def network(front: str) -> Network:
    generator = torch.Generator().manual_seed(0)
    return build_network("alexnet", front, 64, width=16, generator=generator)


@pytest.mark.parametrize(("front", "layer"), [("sobel", "conv2"), ("rgb", "conv5")])
def test_the_objective_is_above_that_of_every_image(
    textures: Callable[..., Path], front: str, layer: str
):
    folder = textures(24)
    images = Images(folder, Index.build(folder, 1), 64)
    made = network(front)
    pixels = normalize(torch.cat(list(images.seen(range(24), 24, 1))))
    filters = [3, 50, 200]
    natural = likelihoods_of(made, layer, pixels)[:, filters].amax(dim=0)
    reached = likelihoods_of(made, layer, GradientAscent(steps=60)(made, layer, filters, 64))
    assert (reached[torch.arange(3), torch.tensor(filters)] > natural).all()


def test_an_image_does_not_depend_on_its_company():
    made = network("sobel")
    together = SHORT(made, "conv2", [5, 9, 60], 64, seed=1)
    alone = SHORT(made, "conv2", [9], 64, seed=1)
    torch.testing.assert_close(together[1:2], alone, rtol=1e-3, atol=1e-3)
    assert torch.equal(alone, SHORT(made, "conv2", [9], 64, seed=1))
    assert not torch.allclose(alone, SHORT(made, "conv2", [9], 64, seed=2))


def test_the_network_is_left_as_it_was():
    made = network("sobel")
    before = {key: value.clone() for key, value in made.state_dict().items()}
    SHORT(made, "conv1", [0], 64)
    assert made.training
    assert all(parameter.requires_grad for parameter in made.parameters())
    assert all(parameter.grad is None for parameter in made.parameters())
    assert all(torch.equal(value, before[key]) for key, value in made.state_dict().items())


def test_a_blur_keeps_flat_images_and_takes_out_most_of_the_finest_pattern():
    flat = torch.full((1, 3, 16, 16), 0.7)
    torch.testing.assert_close(blurred(flat, 0.6), flat)
    y, x = np.mgrid[:16, :16]
    chequered = torch.from_numpy((-1.0) ** (x + y))[None, None].float()
    places = np.arange(-2, 3)
    kernel = np.exp(-(places**2) / (2 * 0.6**2))
    left = ((kernel * (-1.0) ** places).sum() / kernel.sum()) ** 2  # once down, once across
    assert left < 0.15
    inside = blurred(chequered, 0.6)[..., 4:-4, 4:-4]
    torch.testing.assert_close(inside, float(left) * chequered[..., 4:-4, 4:-4])


def test_a_filter_that_is_not_there():
    with pytest.raises(UsageError, match="conv1 has filters 0 to 95"):
        SHORT(network("sobel"), "conv1", [96], 64)


def test_what_a_screen_shows():
    (picture,) = shown(torch.randn(1, 1, 8, 8))
    assert picture.shape == (8, 8, 3)
    assert picture.dtype == np.uint8
    assert abs(picture.mean() - 128) < 10
