"""Filters and top images against the plain computation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from deepcluster.images.crops import normalize
from deepcluster.images.index import Index
from deepcluster.images.loader import Images
from deepcluster.networks import Network, build_network
from deepcluster.runtime.errors import UsageError
from deepcluster.visuals.filters import first_kernels, grid
from deepcluster.visuals.top_images import TopImages, top_images


def network(front: str) -> Network:
    generator = torch.Generator().manual_seed(0)
    return build_network("alexnet", front, 64, width=16, generator=generator)


def test_a_kernel_behind_sobel_is_what_it_sees_of_the_grey_image():
    made = network("sobel").eval()
    kernels = first_kernels(made)
    first = next(m for m in made.modules() if isinstance(m, torch.nn.Conv2d))
    assert kernels.shape == (96, 1, 13, 13)
    grey = torch.randn(1, 1, 61, 61)
    edges = F.conv2d(grey, made.front.filters)
    two_steps = F.conv2d(edges, first.weight)
    torch.testing.assert_close(F.conv2d(grey, kernels), two_steps, rtol=1e-4, atol=1e-5)


def test_kernels_on_colours_are_the_weights():
    made = network("rgb")
    first = next(m for m in made.modules() if isinstance(m, torch.nn.Conv2d))
    assert torch.equal(first_kernels(made), first.weight)


def test_every_kernel_has_its_own_contrast():
    kernels = torch.randn(7, 3, 5, 5) * torch.arange(1, 8).view(7, 1, 1, 1)
    page = grid(kernels, scale=1, gap=1)
    across = int(np.ceil(np.sqrt(7 * 1.5)))
    for number in range(7):
        top, left = 1 + number // across * 6, 1 + number % across * 6
        cut = page[top : top + 5, left : left + 5]
        assert cut.min() == 0
        assert cut.max() == 255


@pytest.mark.parametrize("layer", ["conv2", "conv5", "fc6"])
def test_top_images_are_those_of_brute_force(textures: Callable[..., Path], layer: str):
    folder = textures(30)
    images = Images(folder, Index.build(folder, 1), 64)
    made = network("sobel")
    ids = [number for number in range(30) if number != 3]
    found = top_images(made, images, ids, layer, count=4, batch=7, workers=1)
    assert made.training  # as it was
    made.eval()
    with torch.no_grad():
        pixels = torch.cat(list(images.seen(ids, 30, 1)))
        maps = made.activations(normalize(pixels), [layer])[layer]
    scores = maps.reshape(len(ids), maps.shape[1], -1).amax(dim=2).double().numpy()
    for number in range(maps.shape[1]):
        expected = sorted(range(len(ids)), key=lambda i: (-scores[i, number], i))[:4]
        np.testing.assert_allclose(
            found.values[number], scores[expected, number], rtol=1e-4, atol=1e-5
        )
        got = [ids.index(image) for image in found.images[number].tolist()]
        # Where two score the same but for rounding, either may come first.
        np.testing.assert_allclose(
            scores[got, number], scores[expected, number], rtol=1e-4, atol=1e-5
        )
        assert len(set(got)) == 4


def test_among_equals_the_first_image_wins(textures: Callable[..., Path]):
    folder = textures(12)
    images = Images(folder, Index.build(folder, 1), 64)
    made = network("sobel")
    for module in made.trunk.convnet.layers["conv1"].modules():
        for parameter in module.parameters(recurse=False):
            torch.nn.init.zeros_(parameter)
    found = top_images(made, images, range(12), "conv1", count=5, batch=4, workers=1)
    assert found.images.tolist() == [[0, 1, 2, 3, 4]] * 96


def test_rows_that_tell_something_differ():
    images = torch.tensor([[0, 1, 2], [0, 1, 2], [3, 4, 5], [6, 7, 8]])
    values = torch.tensor([[9.0, 8, 7], [8.0, 7, 6], [5.0, 4, 3], [1.0, 0, 0]])
    top = TopImages(images, values)
    assert top.most_telling(2) == [0, 2]
    assert top.most_telling(5) == [0, 1, 2]  # the last one is hardly alive


def test_a_layer_that_is_not_there(textures: Callable[..., Path]):
    folder = textures(4)
    images = Images(folder, Index.build(folder, 1), 64)
    with pytest.raises(UsageError, match="no layer is called 'conv9'"):
        top_images(network("sobel"), images, range(4), "conv9", workers=1)
