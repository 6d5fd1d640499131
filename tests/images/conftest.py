"""Generated pictures: every test writes its own files, none are kept in git."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def picture() -> Callable[..., Image.Image]:
    """Makes a smooth RGB picture that differs from seed to seed."""

    def make(width: int = 96, height: int = 64, seed: int = 0) -> Image.Image:
        coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
        return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)

    return make


@pytest.fixture
def photos(tmp_path: Path, picture: Callable[..., Image.Image]) -> Path:
    """A folder of ten pictures in two classes, of different sizes."""
    root = tmp_path / "photos"
    for number in range(10):
        folder = root / ("cats" if number % 2 else "dogs")
        folder.mkdir(parents=True, exist_ok=True)
        picture(80 + 5 * number, 64, number).save(folder / f"{number}.jpg", quality=95)
    return root
