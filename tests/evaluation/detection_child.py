"""A detector of coloured rectangles, and what a process does with it beside another one."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.detector_images import Scale
from deepcluster.evaluation.detector_training import Course, Halfway, taught
from deepcluster.evaluation.evaluated import Evaluated
from deepcluster.evaluation.fast_rcnn import FastRCNN
from deepcluster.evaluation.proposals import Regions
from deepcluster.evaluation.subject import Shape
from deepcluster.evaluation.voc import VocImage
from deepcluster.evaluation.voc_detection import VOCDetection
from deepcluster.evaluation.voc_objects import Box, VocObject
from deepcluster.networks import Network
from deepcluster.networks.plain import PlainConvnet, convolution
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.world import World, joined

SCALE = Scale(48, 64)
COURSE = Course(
    learnt="fc6-8",
    step=0.02,
    iterations=450,
    images_per_step=2,
    regions_per_image=32,
    foreground=0.25,
    lowest_background=0.1,
    momentum=0.9,
    decay=0.0,
    dropout=0.1,
    seed=0,
)


class Colours(PlainConvnet):
    """Shows, every fourth pixel, the colours there and around; regions are pooled to 4 x 4."""

    width = 64

    def __init__(self) -> None:
        first = convolution(3, 15, 12, stride=4, padding=4)
        super().__init__({"conv1": first, "pool1": nn.MaxPool2d(2)})
        torch.manual_seed(0)
        self.fc6 = nn.Sequential(nn.Linear(15 * 16, 64), nn.ReLU(), nn.Dropout(0.5))
        self.fc7 = nn.Sequential(nn.Linear(64, 64))
        weight = torch.zeros(5, 3, 3, 3, 3)  # here and on four sides, from colour to colour
        for place, (row, column) in enumerate([(1, 1), (0, 1), (2, 1), (1, 0), (1, 2)]):
            weight[place, :, :, row, column] = torch.eye(3)
        patches = weight.flatten(0, 1).repeat_interleave(4, dim=2).repeat_interleave(4, dim=3)
        with torch.no_grad():
            first[0].weight.copy_(patches / 16)
            first[0].bias.zero_()


def a_model() -> FastRCNN:
    with torch.random.fork_rng():
        network = Network(nn.Identity(), Colours(), nn.ReLU())
    return FastRCNN(Evaluated(network, Shape()), 20, seed=0)


def paint(folder: Path) -> tuple[list[VocImage], Regions]:
    """Images with one coloured rectangle, whose class is its colour, and boxes around it."""
    folder.mkdir(parents=True, exist_ok=True)
    randomness = np.random.default_rng(0)
    images, regions = [], []
    for number in range(24):
        pixels = randomness.integers(0, 60, (48, 64, 3))
        left, top = randomness.integers(0, 24, 2)
        right, bottom = left + randomness.integers(16, 40), top + randomness.integers(12, 24)
        label = number % 3
        pixels[top:bottom, left:right, label] += 180
        path = folder / f"{number}.png"
        Image.fromarray(pixels.astype(np.uint8)).save(path)
        thing = VocObject(label, Box(left, top, right, bottom))
        images.append(VocImage(str(number), path, 64, 48, (thing,)))
        near = np.array(thing.box) + randomness.integers(-8, 9, (60, 4))
        anywhere = randomness.integers((0, 0, 12, 12), (30, 30, 42, 42), (60, 4))
        boxes = np.concatenate([near, anywhere]).clip(0, (64, 48, 64, 48))
        regions.append(boxes[(boxes[:, 2:] - boxes[:, :2]).min(axis=1) > 4].astype(np.float64))
    return images, Regions(regions, "by hand")


def work(world: World, folder: Path) -> None:
    """Take a few steps together, look for objects, and leave both."""
    images, regions = paint(folder / f"images-{world.rank}-of-{world.size}")
    model, bench = a_model(), Bench(world, workers=1)
    half = Halfway(RunFolder(folder), f"half-of-{world.size}.safetensors")
    taught(model, images, regions, SCALE, replace(COURSE, iterations=5, dropout=0.0), bench, half)
    found = VOCDetection().search(model, images, regions, SCALE, bench)
    rows = np.concatenate([found.images[:, None], found.labels[:, None], found.boxes], axis=1)
    tensors = {**model.state_dict(), "found": torch.from_numpy(rows)}
    save_file(tensors, folder / f"left-{world.rank}-of-{world.size}.safetensors")


if __name__ == "__main__":
    with joined("cpu") as here:
        work(here, Path(sys.argv[1]))
