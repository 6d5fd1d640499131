from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def saves_end_with_their_test() -> Iterator[None]:
    """A save still under way would meet the faults that the next test asks for."""
    yield
    for thread in threading.enumerate():
        if thread.name == "save":
            thread.join(60)


@pytest.fixture(scope="session")
def textures(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Folders of small images of a few kinds that differ in direction and fineness."""

    def folder(count: int, kinds: int = 4, size: int = 72) -> Path:
        path = tmp_path_factory.mktemp("textures")
        randomness = np.random.default_rng(0)
        y, x = np.mgrid[:size, :size]
        for number in range(count):
            kind = number % kinds
            angle = np.pi * kind / kinds + randomness.normal(0, 0.05)
            wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) / (2 + kind) + number)
            pixels = 128 + 70 * wave[..., None] + randomness.normal(0, 20, (size, size, 3))
            target = path / f"kind{kind}"
            target.mkdir(exist_ok=True)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(target / f"{number:04d}.png")
        return path

    return folder
