"""Masks whose values are not the numbers of VOC's classes, and harmless ones beside them."""

from __future__ import annotations

import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from devkit import write_devkit
from numpy.typing import NDArray
from PIL import Image

from deepcluster.evaluation.voc import Devkit, warn_of_left_out
from deepcluster.evaluation.voc_masks import colour_of, refuse_mask
from deepcluster.evaluation.voc_objects import NotUsable
from deepcluster.runtime.errors import DataError, ImagesLeftOut

SIZE = (96, 80)
VOC = [channel for value in range(256) for channel in colour_of(value)]


def mask_of(*values: int) -> NDArray[np.uint8]:
    """Bars of these values, each half as wide as the one before."""
    mask = np.full(SIZE[::-1], values[-1], np.uint8)
    left = 0
    for value in values:
        mask[:, left : (left := (left + SIZE[0]) // 2)] = value
    return mask


def painted(values: NDArray[np.uint8], palette: list[int]) -> Image.Image:
    image = Image.fromarray(values)
    image.putpalette(palette)
    return image


def refused(image: Image.Image, folder: Path, **options: int) -> str:
    """The reason and its detail; nothing where the mask can be used."""
    image.save(folder / "mask.png", **options)
    try:
        refuse_mask(folder / "mask.png", SIZE)
    except NotUsable as verdict:
        return f"{verdict.reason}: {verdict.detail}"
    return ""


def test_the_colours_are_those_of_the_devkit():
    """As the paper about the challenge shows them, and its MATLAB program computes them."""
    known = {
        0: (0, 0, 0),
        1: (128, 0, 0),
        2: (0, 128, 0),
        7: (128, 128, 128),
        8: (64, 0, 0),
        15: (192, 128, 128),
        20: (0, 64, 128),
        255: (224, 224, 192),
    }
    assert {value: colour_of(value) for value in known} == known
    assert len({colour_of(value) for value in range(256)}) == 256


@pytest.mark.parametrize("values", [(0, 1, 15, 255), (0, 7), (7, 0), (20,), (255, 3)])
def test_colours_that_were_numbered_anew_are_noticed(tmp_path: Path, values: tuple[int, ...]):
    mask = painted(mask_of(*values), VOC)
    assert refused(mask, tmp_path) == ""
    anew = mask.convert("RGB").convert("P", palette=Image.Palette.ADAPTIVE)
    assert not np.array_equal(np.array(anew), np.array(mask))
    assert np.array_equal(np.array(anew.convert("RGB")), np.array(mask.convert("RGB")))
    said = refused(anew, tmp_path)
    assert said.startswith("mask without class numbers: its value ")
    assert said.endswith("its palette is not in VOC's order")


def test_which_value_has_whose_colour(tmp_path: Path):
    palette = [channel for value in (0, 1, 15, 255) for channel in colour_of(value)]
    assert refused(painted(mask_of(0, 2), palette), tmp_path) == (
        "mask without class numbers: its value 2 has the colour of person: its palette is not in "
        "VOC's order"
    )


@pytest.mark.parametrize(
    "palette",
    [
        [level for level in range(256) for _ in range(3)],  # a ramp of greys
        [level * 12 for level in range(22) for _ in range(3)],  # stretched
        [8 * level % 256 for level in range(256) for _ in range(3)],  # 16 is the grey of cars
        [255 - level for level in range(256) for _ in range(3)],  # upside down
        [0, 0, 0] * 256,
        VOC,
        VOC[: 3 * 21],  # the border has no colour
        VOC[: 3 * 21] + [0, 0, 0] * 235,  # the border is black
        VOC[: 3 * 21] + [255, 255, 255] * 235,
        [(7 * number + 40) % 251 for number in range(768)],  # of another program
        [*VOC[:3], 9, 9, 9, *VOC[3:15], *VOC[18:]],  # what does not fit is not used
    ],
)
def test_a_palette_that_does_not_contradict_is_as_good_as_any(tmp_path: Path, palette: list[int]):
    mask = mask_of(0, 16, 10, 20, 7, 255)
    image = painted(mask, palette)
    assert refused(image, tmp_path, bits=8) == ""
    np.testing.assert_array_equal(np.array(Image.open(tmp_path / "mask.png")), mask)


@pytest.mark.parametrize(("bits", "stretched"), [(2, 85), (4, 17), (8, 1)])
def test_greys_of_few_bits_are_stretched_as_they_are_read(
    tmp_path: Path, bits: int, stretched: int
):
    """Pillow does not write them; a palette's numbers become greys by the kind of colour alone."""
    values = mask_of(0, 1)
    painted(values, VOC[: 3 << bits]).save(tmp_path / "palette.png", bits=bits)
    as_greys(tmp_path / "palette.png")
    image = Image.open(tmp_path / "palette.png")
    assert image.mode == "L"
    np.testing.assert_array_equal(np.array(image), stretched * values)
    if bits == 8:
        refuse_mask(tmp_path / "palette.png", SIZE)
        return
    with pytest.raises(NotUsable) as verdict:
        refuse_mask(tmp_path / "palette.png", SIZE)
    assert verdict.value.args == (
        "mask without class numbers",
        f"its greys have {bits} bits, not 8",
    )


def as_greys(place: Path) -> None:
    """A PNG with a palette made one without, of the same numbers."""
    data = place.read_bytes()
    header, rest = data[16:29], data[33:]
    header = header[:9] + b"\0" + header[10:]
    start = rest.index(b"PLTE") - 4
    end = start + 12 + struct.unpack(">I", rest[start : start + 4])[0]
    checksum = struct.pack(">I", zlib.crc32(b"IHDR" + header))
    place.write_bytes(data[:16] + header + checksum + rest[:start] + rest[end:])


@pytest.mark.parametrize("palette", [VOC, None])
def test_a_mask_that_is_cut_short_cannot_be_read(tmp_path: Path, palette: list[int] | None):
    """With its colours or as plain numbers: by its header alone it would be good."""
    values = np.random.default_rng(0).integers(0, 21, SIZE[::-1]).astype(np.uint8)
    image = painted(values, palette) if palette else Image.fromarray(values)
    assert refused(image, tmp_path) == ""
    place = tmp_path / "mask.png"
    place.write_bytes(place.read_bytes()[:-2_000])
    with pytest.raises(NotUsable, match="mask cannot be read"):
        refuse_mask(place, SIZE)


def claiming(width: int, height: int) -> bytes:
    """A PNG whose header says that it is so large, and that has no pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [header, b"IDAT" + zlib.compress(b""), b"IEND"]
    parts = [
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        for chunk in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize(
    ("claimed", "said"),
    [
        ((96, 81), "(96, 81)"),
        ((10_000, 10_000), "100 MP"),  # Pillow warns, which would be an error here
        ((20_000, 20_000), "400 MP"),  # Pillow refuses
    ],
)
def test_a_mask_of_another_size_is_known_by_its_header(
    tmp_path: Path, claimed: tuple[int, int], said: str
):
    """However large it is: it is not decoded, and does not end the evaluation."""
    place = tmp_path / "mask.png"
    place.write_bytes(claiming(*claimed))
    with pytest.raises(NotUsable) as verdict:
        refuse_mask(place, SIZE)
    assert verdict.value.args == ("mask of another size", f"{said} and not (96, 80)")


@pytest.mark.parametrize("side", [10_000, 20_000])
def test_an_image_and_a_mask_of_very_many_pixels_are_left_out(tmp_path: Path, side: int):
    folder = write_devkit(tmp_path, {"train": 12, "val": 2})
    used = Devkit(folder).segmented("train").images[2]
    (folder / "JPEGImages/000001.jpg").write_bytes(claiming(side, side))
    (folder / "SegmentationClass/000003.png").write_bytes(claiming(side, side))
    found = Devkit(folder).segmented("train")
    assert [left[:2] for left in found.left_out] == [
        ("000001", "image cannot be read"),
        ("000003", "mask of another size"),
    ]
    assert used.mask is not None
    used.mask.write_bytes(claiming(side, side))  # since it was listed
    with pytest.raises(DataError, match=r"000005.png: mask of another size: .00 MP"):
        used.classes_of_pixels()


def test_a_mask_is_a_png(tmp_path: Path):
    place = tmp_path / "mask.png"
    Image.fromarray(mask_of(0, 1)).save(place, format="BMP")
    with pytest.raises(NotUsable) as verdict:
        refuse_mask(place, SIZE)
    assert verdict.value.args == ("mask cannot be read", "it is no PNG")


def test_such_masks_are_left_out_by_name_and_counted(tmp_path: Path):
    folder = write_devkit(tmp_path, {"train": 8, "val": 2})
    shutil.rmtree(folder / "ImageSets/Main")
    mask = folder / "SegmentationClass/000003.png"
    numbers = Image.open(mask)
    numbers.putpalette(VOC)
    numbers.convert("RGB").convert("P", palette=Image.Palette.ADAPTIVE).save(mask)
    found = Devkit(folder).segmented("train")
    assert [image.name for image in found.images] == ["000001", "000005", "000007"]
    assert [(left.name, left.reason) for left in found.left_out] == [
        ("000003", "mask without class numbers")
    ]
    with pytest.warns(ImagesLeftOut, match="1 of VOC2007 train: 000003: mask without class num"):
        warn_of_left_out([found])
