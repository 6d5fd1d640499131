from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import child
import pytest


@pytest.fixture(scope="package")
def trained(
    textures: Callable[[int], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Runs on 24 images with one bad file among them, by their flags; each is made once."""
    images = textures(24)
    (images / "bad.png").write_bytes(b"")
    made: dict[str, Path] = {}

    def run(flags: str = "") -> Path:
        if flags not in made:
            folder = tmp_path_factory.mktemp("runs")
            words = "--epochs 1 --network.width 16 --device cpu --out run"
            if "--preset" not in flags:
                words += f" {child.PLAIN} --k 4 --batch 32 --whitening.dimensions 64"
            code, output = child.run(["train", str(images), *words.split(), *flags.split()], folder)
            assert code == 0, output
            made[flags] = folder / "run"
        return made[flags]

    return run
