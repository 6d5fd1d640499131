from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import child
import pytest

HOSTILE = [
    "<script>document.title='run'<%2Fscript>.png",
    '"><img src=x onerror="document.title=1">.png',
    "=cmd|' %2FC calc'!A0.png",
    "{{ 7 * 7 }} & &lt;b&gt;.png",
    "line\nbreak \u202egpj.png",
]


@pytest.fixture(scope="package")
def images(textures: Callable[..., Path]) -> Path:
    """36 images of four kinds; the first of them have hostile names."""
    folder = textures(36)
    for file, name in zip(sorted((folder / "kind0").iterdir()), HOSTILE, strict=False):
        file.rename(folder / name)
    return folder


@pytest.fixture(scope="package")
def run(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on them."""
    folder = tmp_path_factory.mktemp("run")
    words = "--preset small --k 6 --epochs 2 --network.width 32 --device cpu --out run".split()
    code, output = child.run(["train", str(images), *words], folder)
    assert code == 0, output
    return folder / "run"
