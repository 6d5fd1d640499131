"""The faster decoder must change nothing: not a pixel, not a verdict, not a mode."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from deepcluster.images import quick_jpeg
from deepcluster.images.decode import Unusable, decode, decode_pixels

Picture = Callable[..., Image.Image]
KINDS: list[dict[str, Any]] = [
    {},
    {"progressive": True},
    {"subsampling": 0, "quality": 100},
    {"subsampling": 1, "restart_marker_blocks": 4},
    {"quality": 20, "optimize": True},
    {"comment": b"taken by nobody", "dpi": (300, 300)},
]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the faster decoder was the one, for each file that was decoded."""
    used: list[bool] = []
    plain, pixels = quick_jpeg.plain, quick_jpeg.pixels

    def first(data: bytes, most: int) -> object:
        if (decoded := plain(data, most)) is not None:
            used.append(True)
        return decoded

    def second(image: Image.Image, data: bytes) -> object:
        decoded = pixels(image, data)
        used.append(decoded is not None)
        return decoded

    monkeypatch.setattr(quick_jpeg, "plain", first)
    monkeypatch.setattr(quick_jpeg, "pixels", second)
    return used


def both(data: bytes) -> tuple[object, object]:
    """What Pillow and what the faster decoder make of a file."""
    results: list[object] = []
    for work in (lambda: decode(io.BytesIO(data)), lambda: decode_pixels(data)):
        try:
            image, mode = work()
            pixels = np.asarray(image)
            results.append((pixels.shape, pixels.tobytes(), mode))
        except Unusable as unusable:
            results.append(unusable.reason)
    return results[0], results[1]


def jpeg(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def test_this_machine_has_it() -> None:
    assert quick_jpeg._decoder() is not None


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_ordinary_files_have_the_same_pixels(
    picture: Picture, taken: list[bool], options: dict[str, Any], mode: str
) -> None:
    rough = np.random.default_rng(0).integers(0, 256, (83, 61, 3), dtype=np.uint8)
    for image in (picture(161, 97), Image.fromarray(rough), picture(1, 1), picture(3, 200)):
        pillow, quick = both(jpeg(image.convert(mode), **options))
        assert isinstance(pillow, tuple)
        assert pillow == quick
    assert all(taken)


@pytest.mark.parametrize("orientation", [*range(10), 999])
def test_orientation_is_applied_alike(
    picture: Picture, taken: list[bool], orientation: int
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    pillow, quick = both(jpeg(picture(40, 24), exif=exif))
    assert isinstance(pillow, tuple)
    assert pillow == quick
    assert taken == [True]


def odd_files(picture: Picture) -> Iterator[bytes]:
    image = picture(60, 40)
    whole = jpeg(image)
    yield jpeg(image.convert("CMYK"))
    yield whole + b"something after the end"
    yield whole[:-2]  # without its last marker
    yield whole[: len(whole) // 2]
    frames = io.BytesIO()
    image.save(frames, "MPO", save_all=True, append_images=[picture(60, 40, 1)])
    yield frames.getvalue()
    png = io.BytesIO()
    image.save(png, "PNG")
    yield png.getvalue()
    yield b"\xff\xd8\xff\xd9"


def test_other_files_are_left_to_pillow(picture: Picture, taken: list[bool]) -> None:
    for data in odd_files(picture):
        pillow, quick = both(data)
        assert pillow == quick
    assert not any(taken)


def test_damage_is_judged_alike(picture: Picture, taken: list[bool]) -> None:
    random = np.random.default_rng(0)
    verdicts = set()
    for number in range(240):
        whole = jpeg(picture(160, 120, number % 7), **KINDS[number % len(KINDS)])
        damaged = np.frombuffer(whole, dtype=np.uint8).copy()
        first = 0 if number % 2 else 620  # in the header too, or behind it
        where = random.integers(first, len(damaged) - 2, random.integers(1, 6))
        damaged[where] = random.integers(0, 256, len(where))
        data = damaged.tobytes()
        if number % 5 == 0:
            data = data[: random.integers(700, len(data))] + b"\xff\xd9"
        pillow, quick = both(data)
        assert pillow == quick
        verdicts.add(pillow if isinstance(pillow, str) else "fine")
    assert len(verdicts) > 1
    assert sum(taken) > 40  # what the decoder warns of is left to Pillow


def test_without_it_pillow_decodes(picture: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_jpeg, "_decoder", lambda: None)
    pillow, quick = both(jpeg(picture()))
    assert pillow == quick


def test_a_decoder_that_disagrees_is_not_used() -> None:
    def other(data: bytes) -> np.ndarray:
        pixels = np.array(Image.open(io.BytesIO(data)).convert("RGB"))
        pixels[0, 0, 0] ^= 1
        return pixels

    def failing(data: bytes) -> np.ndarray:
        raise ValueError("no")

    def same(data: bytes) -> np.ndarray:
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))

    agreed = [quick_jpeg._agrees_with_pillow(each) for each in (same, other, failing)]
    assert agreed == [True, False, False]
