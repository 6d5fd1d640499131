"""Where scores lie, and that convolutions compute what the linear layers did."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional as F

from deepcluster.evaluation.evaluated import untrained
from deepcluster.evaluation.fully_convolutional import Dropout, FullyConvolutional, Grid
from deepcluster.evaluation.subject import Shape
from deepcluster.images.crops import normalize
from deepcluster.networks import Network
from deepcluster.runtime.errors import UsageError


def network(arch: str = "alexnet", front: str = "sobel", size: int = 96) -> Network:
    shape = Shape(arch=arch, front=front, input_size=size, width=12)  # type: ignore[arg-type]
    return untrained(shape, seed=0).network.eval()


@pytest.mark.parametrize("arch", ["alexnet", "vgg16"])
def test_one_place_of_the_training_size_is_the_network_itself(arch: str):
    original = network(arch)
    convolutional = FullyConvolutional(copy.deepcopy(original), 96, 21).eval()
    images = torch.randn(2, 3, 96, 96, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        maps = convolutional.fc7_maps(original.front(images))
        assert maps.shape == (2, 12, 1, 1)
        torch.testing.assert_close(maps[:, :, 0, 0], original.trunk(images))


def test_alexnets_fc6_is_six_by_six_at_224_pixels():
    convolutional = FullyConvolutional(network(size=224), 224, 21)
    assert convolutional.fc6.weight.shape == (12, 256, 6, 6)
    # conv1 begins at 3 (11 wide, 2 padded); pools at +4, +8 and +16; fc6 at +2.5 x 32.
    assert convolutional.grid == Grid(111.0, 32)
    assert convolutional.margin == 95


def test_where_maps_lie():
    grid = Grid().after(torch.nn.Conv2d(1, 1, 3, stride=2, padding=1))
    assert grid == Grid(0.0, 2)
    assert grid.after(torch.nn.MaxPool2d(2, stride=2)) == Grid(1.0, 4)


def test_up_sampling_by_hand():
    matrix = Grid(1.0, 4).to_pixels(2, 7, torch.device("cpu"))
    # The fields' middles are pixels 1 and 5; before the first and after the last it is constant.
    expected = torch.tensor([1, 1, 0.75, 0.5, 0.25, 0, 0])
    torch.testing.assert_close(matrix, torch.stack([expected, 1 - expected], dim=1))


def test_up_sampling_is_torchs_where_grids_agree():
    scores = torch.randn(1, 2, 3, 5, generator=torch.Generator().manual_seed(0))
    grid = Grid(1.5, 4)  # what F.interpolate assumes of fields of four pixels
    down, across = (grid.to_pixels(n, 4 * n, torch.device("cpu")) for n in (3, 5))
    expected = F.interpolate(scores, scale_factor=4, mode="bilinear")
    torch.testing.assert_close(down @ scores @ across.T, expected)


@pytest.mark.parametrize("size", [(50, 70), (96, 96), (129, 64)])
def test_every_pixel_gets_scores_and_none_is_far_from_its_place(size: tuple[int, int]):
    convolutional = FullyConvolutional(network(), 96, 21).eval()
    canvas = convolutional.canvas([convolutional.fronted(torch.zeros(3, *size, dtype=torch.uint8))])
    with torch.no_grad():
        assert convolutional(canvas, size).shape == (1, 21, *size)
        places = convolutional.fc7_maps(canvas).shape[2:]
    for extent, fields in zip(size, places, strict=True):
        first = convolutional.grid.start - convolutional.margin
        assert 0 <= first <= 16
        assert extent - 17 <= first + 32 * (fields - 1)


@pytest.mark.parametrize(("finest", "layers"), [(32, []), (16, ["pool2"]), (8, ["pool1", "pool2"])])
def test_finer_layers_begin_at_nothing_and_are_added_in_their_place(finest: int, layers: list):
    plain = FullyConvolutional(network(), 96, 2).eval()
    finer = FullyConvolutional(network(), 96, 2, finest).eval()
    assert list(finer.finer) == layers
    picture = torch.randint(0, 255, (3, 96, 96), dtype=torch.uint8)
    canvas = finer.canvas([finer.fronted(picture)])
    with torch.no_grad():
        for one in (plain, finer):
            torch.nn.init.ones_(one.score.weight)
        torch.testing.assert_close(finer(canvas, (96, 96)), plain(canvas, (96, 96)))
        for score in finer.finer.values():
            torch.nn.init.ones_(score.bias)
        change = finer(canvas, (96, 96)) - plain(canvas, (96, 96))
        torch.testing.assert_close(change, torch.full_like(change, float(len(layers))))


def test_scores_follow_the_picture():
    """What is seen on the left is said on the left, at every step of the layers."""
    convolutional = FullyConvolutional(network(), 96, 1, finest=8).eval()
    picture = torch.full((3, 96, 192), 128, dtype=torch.uint8)
    picture[:, :, :64] = torch.randint(
        0, 255, (3, 96, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    for score in convolutional.finer.values():
        torch.nn.init.ones_(score.weight)
    with torch.no_grad():
        scores, flipped = (
            convolutional(convolutional.canvas([convolutional.fronted(one)]), (96, 192))[0, 0]
            for one in (picture, picture.flip(2))
        )
    assert scores[:, :60].mean() > scores[:, 70:].mean() + 0.01
    assert flipped[:, 132:].mean() > flipped[:, :122].mean() + 0.01


@pytest.mark.parametrize("at", [(20, 30), (70, 150)])
def test_a_spot_is_seen_where_it_is(at: tuple[int, int]):
    """Scores of a finer layer are largest within a field of the only thing that there is to see."""
    convolutional = FullyConvolutional(network(), 96, 1, finest=8).eval()
    assert convolutional.margin > 16  # else a canvas without it would be hard to tell
    picture = torch.full((3, 96, 192), 128, dtype=torch.uint8)
    row, column = at
    picture[:, row - 2 : row + 3, column - 2 : column + 3] = 255
    torch.nn.init.ones_(convolutional.finer["pool1"].weight)
    with torch.no_grad():
        canvas = convolutional.canvas([convolutional.fronted(picture)])
        scores = convolutional(canvas, (96, 192))[0, 0]
    found = divmod(int(scores.argmax()), 192)
    assert max(abs(found[0] - row), abs(found[1] - column)) <= 8


def test_a_smaller_image_in_a_batch_lies_in_the_corner_among_zeros():
    convolutional = FullyConvolutional(network(front="rgb"), 96, 21)
    pictures = [torch.full((3, 40, 50), 200, dtype=torch.uint8), torch.zeros(3, 60, 30)]
    canvas = convolutional.canvas([convolutional.fronted(picture) for picture in pictures])
    margin = convolutional.margin
    inside = canvas[0, :, margin : margin + 40, margin : margin + 50]
    torch.testing.assert_close(inside, normalize(pictures[0][None])[0])
    assert canvas[0].abs().sum() == pytest.approx(float(inside.abs().sum()))


def test_units_change_fc7_by_a_factor_alone():
    original = network()
    with torch.no_grad():
        for layer in (original.trunk.convnet.fc6, original.trunk.convnet.fc7):
            layer[1].bias.normal_(0, 0.01, generator=torch.Generator().manual_seed(0))
    plain = FullyConvolutional(copy.deepcopy(original), 96, 21, finest=16).eval()
    measured = FullyConvolutional(original, 96, 21, finest=16).eval()
    generator = torch.Generator().manual_seed(0)
    pictures = [torch.randint(0, 255, (3, 80, 70), dtype=torch.uint8, generator=generator)]
    canvas = plain.canvas([plain.fronted(picture) for picture in pictures])
    measured.measure([canvas])
    with torch.no_grad():
        before, after = plain.fc7_maps(canvas), measured.fc7_maps(canvas)
    factor = float(after.norm() / before.norm())
    torch.testing.assert_close(after, before * factor, rtol=1e-4, atol=1e-5)
    assert float(after.relu().square().mean()) == pytest.approx(1, rel=1e-4)


def test_dropout_is_a_function_of_its_seed():
    ones = torch.ones(1000)
    first, again, other = (Dropout(0.5, seed, torch.device("cpu"))(ones) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert set(first.tolist()) == {0.0, 2.0}
    assert 0.4 < float((first > 0).float().mean()) < 0.6


def test_other_networks_are_refused():
    with pytest.raises(UsageError, match="must be alexnet or vgg16"):
        FullyConvolutional(network("resnet18"), 96, 21)
