"""The demo's images: many small crops of a few real pictures that other packages ship.

Which picture a crop is from is known, as its folder, and never used for training. Its file name
says where it was cut, so that two crops that share pixels are not mistaken for a discovery.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deepcluster.images.decode import read
from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.runtime.seeds import uniforms

# Drawn figures, a motion blur, a flat microscope field and the second eye of a stereo pair are
# left out: crops of them show nothing, or the same as another's.
PICTURES = {
    "astronaut": ("skimage", "data/astronaut.png"),
    "brick": ("skimage", "data/brick.png"),
    "camera": ("skimage", "data/camera.png"),
    "chelsea": ("skimage", "data/chelsea.png"),
    "china": ("sklearn", "datasets/images/china.jpg"),
    "coffee": ("skimage", "data/coffee.png"),
    "coins": ("skimage", "data/coins.png"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "grass": ("skimage", "data/grass.png"),
    "gravel": ("skimage", "data/gravel.png"),
    "hubble_deep_field": ("skimage", "data/hubble_deep_field.jpg"),
    "ihc": ("skimage", "data/ihc.png"),
    "moon": ("skimage", "data/moon.png"),
    "motorcycle": ("skimage", "data/motorcycle_left.png"),
    "page": ("skimage", "data/page.png"),
    "retina": ("skimage", "data/retina.jpg"),
    "rocket": ("skimage", "data/rocket.jpg"),
    "text": ("skimage", "data/text.png"),
}
SIDES = (64, 160)
"""The smallest and the largest crop, in pixels of the picture."""

LEAST_DEVIATION = 12.0
"""Of a crop's grey levels; a crop below it is sky or darkness."""

_TRIES = 100


def write_demo_images(
    folder: str | Path,
    count_per_source: int,
    size: int = 72,
    seed: int = 0,
    part: tuple[float, float] = (0.0, 1.0),
) -> None:
    """Write `<source>/<x>-<y>-<side>.png`: crops at random places, at most `size` pixels wide.

    Args:
        folder: Where the folders of the sources are made.
        count_per_source: How many crops each picture gives.
        size: The largest width of a crop.
        seed: Names the places.
        part: From which share of a picture's width to which crops are cut: parts share no pixel.
    """
    for source in PICTURES:
        picture = read(picture_path(source))
        target = Path(folder) / source
        target.mkdir(parents=True, exist_ok=True)
        left, right = (round(share * picture.width) for share in part)
        draws = np.arange(_TRIES * count_per_source)
        done: set[tuple[int, int, int]] = set()
        for a, b, c in uniforms(seed, f"demo/{source}", 0, draws, 3).tolist():
            if len(done) == count_per_source:
                break
            side = min(SIDES[0] + int(a * (SIDES[1] - SIDES[0] + 1)), right - left)
            x, y = left + int(b * (right - left - side + 1)), int(c * (picture.height - side + 1))
            width = min(side, size)
            crop = picture.crop((x, y, x + side, y + side))
            crop = crop.resize((width, width), Image.Resampling.BILINEAR)
            if (x, y, side) not in done and np.asarray(crop.convert("L")).std() >= LEAST_DEVIATION:
                done.add((x, y, side))
                crop.save(target / f"{x}-{y}-{side}.png")
        if len(done) < count_per_source:
            raise UsageError(f"only {len(done)} crops of {source} show something: ask for fewer")


def picture_path(source: str) -> Path:
    """Where the picture is installed; the package that ships it is not imported."""
    package, inside = PICTURES[source]
    found = importlib.util.find_spec(package)
    if found is not None and found.submodule_search_locations:
        path = Path(found.submodule_search_locations[0]) / inside
        if path.is_file():
            return path
    raise DataError(f"the demo needs {inside} of {package}, which is not installed")


def read_boxes(paths: Sequence[str]) -> NDArray[np.int64]:
    """Source number (by name), x, y and side of every crop, as its path says."""
    parts = [PurePosixPath(path) for path in paths]
    sources = sorted({part.parent.name for part in parts})
    number = {source: i for i, source in enumerate(sources)}
    boxes = [[number[part.parent.name], *map(int, part.stem.split("-"))] for part in parts]
    return np.array(boxes, dtype=np.int64).reshape(-1, 4)


def overlapping(some: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether crop i of some and crop j of others share a pixel; boxes as `read_boxes` gives."""
    source, x, y, side = some.T[:, :, None]
    other_source, other_x, other_y, other_side = others.T[:, None, :]
    return (
        (source == other_source)
        & (x < other_x + other_side)
        & (other_x < x + side)
        & (y < other_y + other_side)
        & (other_y < y + side)
    )
