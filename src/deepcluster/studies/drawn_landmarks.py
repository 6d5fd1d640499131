"""A small city of landmarks in the format of Oxford5k: what is drawn is what its files say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

VIEWS = ("good", "good", "good", "ok", "junk")
"""What each photograph of a landmark is to its queries; the first one is asked with."""

_SHOWN = {"good": 1.0, "ok": 0.6, "junk": 0.2}  # how much of the width is not hidden
_BLOCKS = (5, 6)  # of a facade, down and across


def write_landmarks(
    folder: Path,
    *,
    seed: int,
    landmarks: int = 4,
    distractors: int = 8,
    size: tuple[int, int] = (112, 96),
) -> Path:
    """images/ and gt_files/ in the folder, and its path.

    A landmark is a facade of coloured blocks, the same in each of its photographs, but of another
    size, at another place and in another light; a distractor is a facade that no query shows.
    """
    (folder / "images").mkdir(parents=True)
    (folder / "gt_files").mkdir()
    randomness = np.random.default_rng(seed)
    for number in range(landmarks):
        name = f"hall{chr(ord('a') + number)}"
        facade = _facade(randomness)
        kinds: dict[str, list[str]] = {"good": [], "ok": [], "junk": []}
        for view, kind in enumerate(VIEWS, 1):
            title = f"{name}_{view:06d}"
            box = _photograph(folder, title, facade, _SHOWN[kind], size, randomness)
            kinds[kind].append(title)
            if view == 1:
                query = f"oxc1_{title} " + " ".join(f"{edge:.1f}" for edge in box)
                (folder / f"gt_files/{name}_1_query.txt").write_text(query + "\n")
        for kind, titles in kinds.items():
            text = "".join(f"{title}\n" for title in titles)
            (folder / f"gt_files/{name}_1_{kind}.txt").write_text(text)
    for number in range(distractors):
        title = f"street_{number:06d}"
        _photograph(folder, title, _facade(randomness), 1.0, size, randomness)
    return folder


def _facade(randomness: np.random.Generator) -> NDArray[np.float64]:
    return randomness.uniform(20, 235, (*_BLOCKS, 3))


def _photograph(
    folder: Path,
    title: str,
    facade: NDArray[np.float64],
    shown: float,
    size: tuple[int, int],
    randomness: np.random.Generator,
) -> tuple[int, int, int, int]:
    """Draw the facade somewhere in noise; gives its box."""
    width, height = size
    scale = randomness.uniform(0.6, 0.9)
    blocks = Image.fromarray(facade.astype(np.uint8))
    across, down = round(width * scale), round(height * scale)
    building = np.asarray(blocks.resize((across, down), Image.Resampling.NEAREST), float)
    pixels = randomness.normal(128, 25, (height, width, 3))
    left = int(randomness.integers(0, width - across + 1))
    top = int(randomness.integers(0, height - down + 1))
    seen = max(1, round(across * shown))
    pixels[top : top + down, left : left + seen] = building[:, :seen]
    pixels = pixels * randomness.uniform(0.8, 1.2) + randomness.normal(0, 5, pixels.shape)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"images/{title}.jpg")
    return left, top, left + across, top + down
