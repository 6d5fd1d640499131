from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import child
import pytest


@pytest.fixture(scope="package")
def images(textures: Callable[..., Path]) -> Path:
    """48 images of four kinds."""
    return textures(48)


@pytest.fixture(scope="package")
def run(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on them."""
    folder = tmp_path_factory.mktemp("run")
    words = f"{child.PLAIN} --k 4 --epochs 2 --batch 32 --network.width 32 --device cpu --out run"
    code, output = child.run(["train", str(images), *words.split()], folder)
    assert code == 0, output
    return folder / "run"
