"""Labelled images whose class is their colour, and a network that sees colours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.labelled_images import LabelledImages, opened
from deepcluster.networks import Network

COLOURS = {"blue": 2, "green": 1, "red": 0}


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train/ and val/ with folders blue, green and red: images in which one channel is bright."""
    root = tmp_path_factory.mktemp("colours")
    randomness = np.random.default_rng(0)
    for name, count in (("train", 12), ("val", 6)):
        for colour, channel in COLOURS.items():
            (root / name / colour).mkdir(parents=True)
            for number in range(count):
                pixels = randomness.integers(0, 120, (80, 90, 3))
                pixels[..., channel] += 100
                image = Image.fromarray(pixels.astype(np.uint8))
                image.save(root / name / colour / f"{number}.png")
    return root


@pytest.fixture(scope="session")
def splits_of_colours(
    colours: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LabelledImages, LabelledImages]:
    stores = tmp_path_factory.mktemp("stores")
    return tuple(  # type: ignore[return-value]
        opened(colours / name, 64, "rgb", stores, Bench()) for name in ("train", "val")
    )


class Planted(nn.Module):
    """A convnet whose first layer shows the colours, and whose second shows nothing of them."""

    width = 3

    def __init__(self) -> None:
        super().__init__()
        self.seeing = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU(inplace=True))
        self.blind = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU(inplace=True))
        with torch.no_grad():
            self.seeing[0].weight.copy_(torch.eye(3)[..., None, None])
            self.seeing[0].bias.zero_()
            self.blind[0].weight.zero_()
            self.blind[0].bias.fill_(1.0)

    @property
    def layers(self) -> dict[str, nn.Module]:
        return {"seeing": self.seeing, "blind": self.blind}

    def forward(self, images: Tensor) -> Tensor:
        return self.blind(self.seeing(images)).mean(dim=(2, 3))


@pytest.fixture
def planted() -> Network:
    return Network(nn.Identity(), Planted(), nn.Identity())  # type: ignore[arg-type]
