"""Where regions lie on the maps, what they hold, and what is learnt from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from deepcluster.evaluation.evaluated import untrained
from deepcluster.evaluation.fast_rcnn import FastRCNN, Geometry
from deepcluster.evaluation.region_samples import NOTHING, Candidates
from deepcluster.evaluation.subject import Shape
from deepcluster.evaluation.voc import VocImage
from deepcluster.evaluation.voc_objects import Box, VocObject
from deepcluster.runtime.errors import UsageError


def a_detector(arch: str = "alexnet", size: int = 64) -> FastRCNN:
    return FastRCNN(untrained(Shape(arch, "rgb", size, width=8), seed=0), 20, seed=0)


@pytest.mark.parametrize(
    ("arch", "size", "grid", "first"),
    # AlexNet's first cell: 11 x 11 at stride 4 with 2 of padding is centred on pixel 3, two
    # poolings of 3 at strides 4 and 8 add 4 and 8. VGG's poolings of 2 add half of 1, 2, 4 and 8.
    [("alexnet", 224, 6, 15.0), ("alexnet", 128, 3, 15.0), ("vgg16", 224, 7, 7.5)],
)
def test_geometry_by_hand(arch, size, grid, first):
    with torch.device("meta"):
        detector = a_detector(arch, size)
    assert detector.geometry == Geometry(stride=16.0, first=first)
    assert detector.grid == grid


def test_the_first_cells_centre_is_where_the_maps_look():
    """The gradient of a cell with respect to the image is symmetric about the cell's centre."""
    detector = a_detector().eval().double()
    for part in detector.modules():  # linear, with equal weights: only the geometry is left
        if isinstance(part, nn.Conv2d):
            nn.init.ones_(part.weight)
    layers = [
        nn.AvgPool2d(part.kernel_size, part.stride) if isinstance(part, nn.MaxPool2d) else part
        for layer in detector.convolutions
        for part in (layer if isinstance(layer, nn.Sequential) else [layer])
        if not isinstance(part, nn.ReLU)
    ]
    image = torch.zeros(1, 3, 224, 224, dtype=torch.float64, requires_grad=True)
    cell = 6  # sees pixels 30 to 192
    nn.Sequential(*layers)(image)[0, 0, cell, cell].backward()
    weight = image.grad[0].sum(dim=(0, 1))
    seen = (weight * torch.arange(224)).sum() / weight.sum()
    assert seen.item() == pytest.approx(detector.geometry.first + 16 * cell)


def test_cells_of_boxes():
    geometry = Geometry(stride=16.0, first=15.0)
    boxes = torch.tensor(
        [
            [15.0, 15, 48, 32],  # pixels 15 to 47 across: cells 0 to 2; 15 to 31 down: 0 to 1
            [0, 0, 5, 5],  # before the first centre
            [190, 90, 200, 100],  # behind the last one
            [22, 22, 25, 25],  # pixels 22 to 24: nearest to 15, and to 31
            [15, 15, 39, 56],  # the last pixels are 38 and 55: nearest to 31, and to 47
        ]
    )
    cells = geometry.cells(boxes, width=11, height=6)
    assert cells.tolist() == [
        [0, 0, 2, 1],
        [0, 0, 0, 0],
        [10, 5, 10, 5],
        [0, 0, 1, 1],
        [0, 0, 1, 2],
    ]


def test_regions_are_pooled_to_the_maxima_of_their_cells():
    detector = a_detector(size=128)  # a grid of 3
    maps = torch.arange(2 * 6 * 8.0).reshape(1, 2, 6, 8)
    # Cells 1 to 6 across and 0 to 2 down: thirds of two columns and one row each.
    box = torch.tensor([[31.0, 15, 112, 48]])
    assert detector.geometry.cells(box, 8, 6).tolist() == [[1, 0, 6, 2]]
    pooled = detector.pooled(maps, box).reshape(2, 3, 3)
    expected = [[2.0, 4, 6], [10, 12, 14], [18, 20, 22]]
    assert pooled[0].tolist() == expected
    assert pooled[1].tolist() == (torch.tensor(expected) + 48).tolist()


def test_the_whole_image_as_region_gives_what_fc6_was_trained_on():
    """At the size of training, the pooled whole image is nearly the last pooling's output."""
    subject = untrained(Shape("vgg16", "rgb", 64, width=8), seed=0)
    detector = FastRCNN(subject, 20, seed=0).eval()
    network = subject.network.eval()
    pixels = torch.randint(0, 256, (3, 64, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        maps = detector.maps(detector.fronted(pixels.float())[None])
        pooled = detector.pooled(maps, torch.tensor([[0.0, 0, 64, 64]]))
        last = network.trunk.convnet.convolutions[-1](maps).flatten(1)
        torch.testing.assert_close(pooled, last)  # VGG's windows of 2 do not overlap: equal


def test_frozen_convolutions_and_batch_norm_stay():
    detector = a_detector()
    detector.learn("fc6-8", 0.5)
    assert not any(p.requires_grad for p in detector.convolutions.parameters())
    assert all(p.requires_grad for p in [*detector.fc6.parameters(), *detector.fc7.parameters()])
    detector.learn("all", 0.5)
    for part in detector.convolutions.modules():
        if isinstance(part, nn.BatchNorm2d):
            assert not part.training
            assert not part.weight.requires_grad
        if isinstance(part, nn.Conv2d):
            assert part.weight.requires_grad


def test_the_protocol_says_how_much_is_dropped():
    """A run's own dropout is that of another task; random's may be another still."""
    detector = a_detector()
    pooled = torch.ones(4, 256 * detector.grid**2)
    detector.learn("fc6-8", 0.0)
    assert torch.equal(detector(pooled)[0], detector(pooled)[0])
    detector.learn("fc6-8", 0.3)
    assert {part.p for part in detector.modules() if isinstance(part, nn.Dropout)} == {0.3}
    assert not torch.equal(detector(pooled)[0], detector(pooled)[0])
    detector.eval()
    assert torch.equal(detector(pooled)[0], detector(pooled)[0])


def test_measured_layers_have_one_scale_and_say_the_same():
    """Brought to a mean square of 1 by factors: fc7 gives what it gave but for one of them."""
    plain, measured = a_detector(), a_detector()
    measured.learn("fc6-8", 0.5)
    pooled = 7 * torch.rand(5, 256 * plain.grid**2, generator=torch.Generator().manual_seed(0))
    measured.measure([pooled[:2], pooled[2:]])
    assert measured.training
    plain.eval()
    measured.eval()
    with torch.no_grad():
        before, after = (
            plain.fc7(plain.fc6(pooled)),
            measured.fc7(measured.fc6(pooled / measured.unit)),
        )
        assert float(after.relu().square().mean()) == pytest.approx(1, rel=1e-4)
        torch.testing.assert_close(after, before / before.relu().square().mean().sqrt())
        assert float(measured.fc6(pooled / measured.unit).square().mean()) == pytest.approx(
            1, rel=1e-4
        )


def test_regions_of_several_images_are_pooled_each_from_its_own():
    detector = a_detector(size=128)
    maps = torch.rand(2, 5, 6, 8, generator=torch.Generator().manual_seed(0))
    boxes = torch.tensor([[31.0, 15, 112, 48], [0, 0, 60, 60], [31.0, 15, 112, 48]])
    together = detector.pooled(maps, boxes, torch.tensor([1, 0, 0]))
    assert torch.equal(together[:1], detector.pooled(maps[1:], boxes[:1]))
    assert torch.equal(together[1:], detector.pooled(maps[:1], boxes[1:]))


def test_other_networks_are_refused():
    with pytest.raises(UsageError, match="alexnet or vgg16, not resnet18"):
        a_detector("resnet18")


OBJECT = VocObject(4, Box(10, 10, 30, 30))
HARD = VocObject(7, Box(60, 60, 90, 90), difficult=True)
IMAGE = VocImage("one", Path("one.jpg"), 100, 100, (OBJECT, HARD))
REGIONS = np.array(
    [
        [10, 10, 30, 28],  # nine tenths of the object
        [10, 10, 30, 20],  # half of it
        [10, 10, 30, 16],  # three tenths
        [10, 10, 30, 11],  # a twentieth
        [60, 60, 90, 90],  # the difficult one
    ],
    dtype=np.float64,
)


def test_candidates_by_hand():
    found = Candidates.of(IMAGE, REGIONS, lowest=0.1)
    assert found.foreground.tolist() == [0, 1, 5]  # the object itself is the last
    assert found.background.tolist() == [2]
    assert Candidates.of(IMAGE, REGIONS, lowest=0.0).background.tolist() == [2, 3, 4]
    far = Candidates.of(IMAGE, REGIONS[3:], lowest=0.1)
    assert far.background.tolist() == [0, 1]  # nothing is near: what is far must do


def test_an_image_with_difficult_objects_alone_is_background():
    found = Candidates.of(VocImage("one", Path("x"), 100, 100, (HARD,)), REGIONS, lowest=0.1)
    sampled = found.sampled(3, 0.25, np.random.default_rng(0))
    assert sampled.labels.tolist() == [NOTHING] * 3
    assert sampled.aims.shape == (0, 4)


def test_sixteen_and_forty_eight():
    randomness = np.random.default_rng(0)
    near = np.array([10, 10, 30, 30]) + randomness.integers(-2, 3, (40, 4))
    half = np.array([20, 20, 40, 40]) + randomness.integers(-2, 3, (100, 4))
    found = Candidates.of(IMAGE, np.concatenate([near, half]).astype(float), lowest=0.1)
    sampled = found.sampled(64, 0.25, randomness)
    assert (sampled.labels == 4).sum() == len(sampled.aims) == 16
    assert (sampled.labels == NOTHING).sum() == 48
    assert (sampled.labels[:16] == 4).all()
    assert (sampled.aims == (10, 10, 30, 30)).all()
    assert len(np.unique(sampled.boxes[:16], axis=0)) > 8  # drawn, not repeated
