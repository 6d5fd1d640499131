"""HEIC photographs; the files are made by pillow-heif itself."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from deepcluster.images import crew, decode, folder, heif
from deepcluster.images.decode import FIRST_FRAME, Unusable, decode_pixels
from deepcluster.images.folder import is_heif, starts_like_an_image
from deepcluster.images.index import Index
from deepcluster.images.kept import Pixels
from deepcluster.images.packing import pack
from deepcluster.images.reading import Reading
from deepcluster.images.selection import selected
from deepcluster.images.source import Folder

pillow_heif = pytest.importorskip("pillow_heif", reason="needs the extra [heif]")

# Corners of four colours, so that every way of turning it shows.
CORNERS = np.zeros((64, 96, 3), np.uint8)
CORNERS[:32, :48], CORNERS[:32, 48:] = (220, 30, 30), (30, 200, 30)
CORNERS[32:, :48], CORNERS[32:, 48:] = (30, 30, 220), (200, 200, 200)


def written(*pictures: np.ndarray, turn: int = 1, **more: Any) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = turn
    file = pillow_heif.HeifFile()
    for pixels in pictures or (CORNERS,):
        file.add_from_pillow(Image.fromarray(pixels))
    to = io.BytesIO()
    file.save(to, quality=95, exif=exif.tobytes(), **more)
    return to.getvalue()


def both_ways(data: bytes, reading: Reading = decode.USUAL) -> tuple[np.ndarray, str]:
    """The pixels, which threads, processes and single reads give alike."""
    pixels, mode = decode_pixels(data, reading)
    image, same = decode.decode(io.BytesIO(data), reading)
    assert image.mode == "RGB"
    assert image.info == {}  # where it was taken does not travel on
    assert np.array_equal(np.asarray(image), pixels)
    assert same == mode
    return pixels.astype(int), mode


@pytest.mark.parametrize("turn", range(1, 9))
def test_it_is_upright(turn: int) -> None:
    data = written(turn=turn)
    assert is_heif(data)
    assert starts_like_an_image(data[: folder.HEAD])
    pixels, mode = both_ways(data)
    assert mode == "RGB"
    upright = decode._UPRIGHT.get(turn)
    expected = Image.fromarray(CORNERS)
    if upright is not None:
        expected = expected.transpose(upright)
    assert pixels.shape == np.asarray(expected).shape
    assert np.abs(pixels - np.asarray(expected)).mean() < 4
    assert decode.size_in_header(io.BytesIO(data)) == expected.size


def test_colours_of_ten_bits_grey_and_transparency() -> None:
    deep = np.rint(CORNERS.astype(float) * 65535 / 255).astype(np.uint16)
    file = pillow_heif.from_bytes("RGB;16", (96, 64), deep.tobytes())
    to = io.BytesIO()
    file.save(to, quality=95)
    assert pillow_heif.open_heif(to.getvalue()).info["bit_depth"] > 8
    assert np.abs(both_ways(to.getvalue())[0] - CORNERS).mean() < 4
    grey, mode = both_ways(written(CORNERS[..., 0]))
    assert mode == "L"
    assert np.abs(grey - CORNERS[..., :1]).mean() < 4
    half = np.dstack([CORNERS, np.full(CORNERS.shape[:2], 255, np.uint8)])
    half[:, 48:, 3] = 0
    laid, mode = both_ways(written(half), Reading(background="#204060"))
    assert mode == "RGBA"
    assert np.abs(laid[:, :40] - CORNERS[:, :40]).mean() < 5
    assert np.abs(laid[:, 56:] - (32, 64, 96)).mean() < 5


def test_the_primary_picture_is_the_image_or_all_are(tmp_path: Path) -> None:
    data = written(CORNERS, CORNERS[::-1, ::-1].copy(), primary_index=1)
    pixels, mode = both_ways(data)
    assert mode == f"RGB{FIRST_FRAME}"
    assert np.abs(pixels - CORNERS[::-1, ::-1]).mean() < 4
    (tmp_path / "burst.heic").write_bytes(data)
    frames = selected(Folder(tmp_path), Pixels(frames="all"))
    assert [found.path for found in frames.find()] == ["burst.heic/1", "burst.heic/2"]
    for number, expected in ((1, CORNERS), (2, CORNERS[::-1, ::-1]), (1, CORNERS)):
        with frames.open(f"burst.heic/{number}") as file:
            assert np.abs(np.asarray(Image.open(file)).astype(int) - expected).mean() < 4


@pytest.mark.parametrize("share", [0.04, 0.3, 0.6, 0.99])
def test_truncated(share: float) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    data = written(noise)
    for way in (decode_pixels, lambda part: decode.decode(io.BytesIO(part))):
        with pytest.raises(Unusable, match=r"^truncated$"):
            way(data[: int(share * len(data))])


def test_what_is_damaged_or_too_large_is_named() -> None:
    data = bytearray(written())
    at = data.index(b"hvcC")  # what the decoder needs to know first
    data[at : at + 4] = b"free"
    with pytest.raises(Unusable, match=r"^damaged or unsupported$"):
        decode_pixels(bytes(data))
    with pytest.raises(Unusable, match=r"too many pixels \(0.00614 MP > --max-pixels 0.00614 MP\)"):
        decode_pixels(written(), Reading(max_pixels=96 * 64 - 1))
    decode_pixels(written(), Reading(max_pixels=96 * 64))
    for size, said in ((20_000, "too many pixels"), (8, "damaged or unsupported")):
        data = bytearray(written())  # with a header that lies
        at = data.index(b"ispe") + 8
        data[at : at + 8] = 2 * size.to_bytes(4, "big")
        with pytest.raises(Unusable, match=f"^{said}"):
            decode_pixels(bytes(data))


def test_files_are_packed_alike_by_threads_and_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "images"
    root.mkdir()
    for name, turn in (("a.HEIC", 1), ("b.heif", 6), ("c.jpg", 3), ("d", 8), ("e.hif", 1)):
        (root / name).write_bytes(written(turn=turn))
    (root / "cut.heic").write_bytes(written()[:-50])
    how = Pixels(short_side=32)
    threads = pack(Folder(root), tmp_path / "threads", "rgb", how, 2)
    assert threads.index.unusable == [("cut.heic", "truncated")]
    assert threads.index.paths == ["a.HEIC", "b.heif", "c.jpg", "d", "e.hif"]
    assert [threads.image(number).shape for number in range(4)] == [
        (32, 48, 3), (48, 32, 3), (32, 48, 3), (48, 32, 3),
    ]  # fmt: skip
    monkeypatch.setattr(crew, "PROCESSES_PAY", 1)
    processes = pack(Folder(root), tmp_path / "processes", "rgb", how, 1)
    assert np.array_equal(threads.pixels, processes.pixels)
    assert processes.index.table.equals(threads.index.table)


def test_brands_tell_it_from_avif() -> None:
    def head(*brands: bytes) -> bytes:
        size = (12 + 4 * len(brands)).to_bytes(4, "big")
        return size + b"ftyp" + brands[0] + b"\0\0\0\0" + b"".join(brands[1:]) + b"heic"

    assert is_heif(head(b"heic"))
    assert is_heif(head(b"mif1", b"miaf", b"heic"))
    assert not is_heif(head(b"avif", b"mif1", b"miaf"))
    assert not is_heif(head(b"mif1", b"avif"))  # heic stands behind the box, not in it
    assert not is_heif(b"")


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photo.jpg").write_bytes(written())
    monkeypatch.setattr(heif, "READS_HEIF", False)
    reasons = dict(Index.build(tmp_path, 1).unusable)
    assert reasons == {"photo.jpg": "HEIC: pip install 'deepcluster[heif]' reads it"}
    monkeypatch.setattr(folder, "READS_HEIF", False)
    assert not starts_like_an_image(written()[: folder.HEAD])
