from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image, features

from deepcluster.images.decode import FIRST_FRAME, Unusable, decode, decode_pixels, read

Picture = Callable[..., Image.Image]
AVIF = pytest.param(
    "avif",
    marks=pytest.mark.skipif(
        "avif" not in features.modules or not features.check("avif"),
        reason="needs a Pillow that reads AVIF",
    ),
)

JP2 = pytest.param(
    "jp2",
    marks=pytest.mark.skipif(
        not features.check("jpg_2000"), reason="needs a Pillow that reads JPEG 2000"
    ),
)


def reason(path: Path) -> str:
    with pytest.raises(Unusable) as raised:
        read(path)
    return raised.value.reason


def pixels(image: Image.Image) -> np.ndarray:
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


@pytest.mark.parametrize("kind", ["png", "bmp", "ppm", "tiff", "webp", "gif", "jpg", JP2, AVIF])
def test_every_format_gives_its_pixels(tmp_path: Path, picture: Picture, kind: str) -> None:
    original = picture()
    lossy = {"quality": 95}
    options = {"webp": {"lossless": True}, "jpg": lossy, "avif": lossy}.get(kind, {})
    original.save(tmp_path / f"a.{kind}", **options)
    # A GIF has 256 colours, JPEG and AVIF lose a little; the others lose nothing.
    allowed = {"gif": 12, "jpg": 2, "avif": 2}.get(kind, 0)
    assert np.abs(pixels(read(tmp_path / f"a.{kind}")) - pixels(original)).mean() <= allowed


def test_content_decides_not_the_name(tmp_path: Path, picture: Picture) -> None:
    picture().save(tmp_path / "a.jpg", format="PNG")
    assert (pixels(read(tmp_path / "a.jpg")) == pixels(picture())).all()


def test_grey_bits_and_palette(tmp_path: Path) -> None:
    grey = Image.fromarray(np.array([[0, 100, 255]], dtype=np.uint8))
    grey.save(tmp_path / "grey.png")
    assert pixels(read(tmp_path / "grey.png")).tolist() == [[[0] * 3, [100] * 3, [255] * 3]]
    grey.convert("1", dither=Image.Dither.NONE).save(tmp_path / "bit.png")
    assert pixels(read(tmp_path / "bit.png")).tolist() == [[[0] * 3, [0] * 3, [255] * 3]]
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 200, 100, 50])
    palette.putpixel((1, 0), 1)
    palette.save(tmp_path / "palette.png")
    assert pixels(read(tmp_path / "palette.png")).tolist() == [[[10, 20, 30], [200, 100, 50]]]


def test_transparent_is_laid_on_white(tmp_path: Path) -> None:
    colour = Image.new("RGBA", (3, 1), (200, 0, 0, 255))
    colour.putpixel((1, 0), (200, 0, 0, 0))
    colour.putpixel((2, 0), (200, 0, 0, 128))
    colour.save(tmp_path / "rgba.png")
    expected = [[[200, 0, 0], [255, 255, 255], [227, 127, 127]]]
    assert np.abs(pixels(read(tmp_path / "rgba.png")) - expected).max() <= 1
    colour.convert("LA").save(tmp_path / "la.png")
    assert pixels(read(tmp_path / "la.png"))[0, 1].tolist() == [255, 255, 255]
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 0, 0, 0])
    palette.putpixel((1, 0), 1)
    palette.save(tmp_path / "palette.png", transparency=1)
    assert pixels(read(tmp_path / "palette.png")).tolist() == [[[10, 20, 30], [255] * 3]]


def test_cmyk_is_converted(tmp_path: Path) -> None:
    # No ink is white, all cyan leaves no red.
    Image.new("CMYK", (8, 8), (0, 0, 0, 0)).save(tmp_path / "white.jpg")
    Image.new("CMYK", (8, 8), (255, 0, 0, 0)).save(tmp_path / "cyan.jpg")
    assert np.abs(pixels(read(tmp_path / "white.jpg")) - 255).max() <= 3
    assert np.abs(pixels(read(tmp_path / "cyan.jpg")) - [0, 255, 255]).max() <= 3


@pytest.mark.parametrize("kind", ["png", "tif", JP2])
def test_sixteen_bits_keep_all_levels(tmp_path: Path, kind: str) -> None:
    ramp = np.tile(np.arange(1000, 5000, dtype=np.uint16), (4, 1))  # all of it below 8 % of white
    Image.fromarray(ramp).save(tmp_path / f"ramp.{kind}")
    levels = pixels(read(tmp_path / f"ramp.{kind}"))[0, :, 0]
    assert len(np.unique(levels)) == 256
    assert (np.diff(levels) >= 0).all()
    assert abs(levels.mean() - 127.5) < 1


def png_of_16_bits(levels: np.ndarray) -> bytes:
    """Unfiltered rows, as the standard has them: big endian."""
    height, width, bands = levels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in levels)
    kind = {3: 2, 4: 6}[bands]
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)]
    chunks += [b"IDAT" + zlib.compress(rows), b"IEND"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        for chunk in chunks
    )


@pytest.mark.parametrize("kind", ["png", "tif", "planar tif", "float tif", "zlib tif"])
def test_dark_colours_of_16_bits_keep_all_levels(tmp_path: Path, kind: str) -> None:
    # As a camera of 12 bits gives them: of the upper 8 bits there would be 16 levels, all dark.
    red = np.tile(np.linspace(0, 4095, 1000).astype(np.uint16), (4, 1))
    levels = np.stack([red, red // 2, red // 4], axis=-1)
    path = tmp_path / "a.png"
    if kind == "png":
        path.write_bytes(png_of_16_bits(levels))
    elif kind == "planar tif":
        planes = np.moveaxis(levels, -1, 0)
        tifffile.imwrite(path, planes, photometric="rgb", planarconfig="separate")
    else:
        values = levels.astype(np.float32) / 7 if kind == "float tif" else levels
        tifffile.imwrite(
            path, values, photometric="rgb", compression="zlib" if "zlib" in kind else None
        )
    low, high = np.percentile(levels, (0.5, 99.5))
    expected = ((levels.astype(float) - low) / (high - low)).clip(0, 1) * 255
    seen = pixels(read(path))
    assert np.abs(seen - expected).max() <= 1
    assert len(np.unique(seen[..., 0])) == 256
    data = path.read_bytes()
    assert np.array_equal(decode_pixels(data)[0], seen)
    path.write_bytes(data[: len(data) // 2])
    assert reason(path) in ("truncated", "damaged or unsupported")


def test_transparent_colours_of_16_bits_are_laid_on_white(tmp_path: Path) -> None:
    levels = np.zeros((4, 4, 4), np.uint16)
    levels[..., :3] = np.arange(16).reshape(4, 4, 1) * 100
    levels[:2, :, 3] = 65535
    (tmp_path / "a.png").write_bytes(png_of_16_bits(levels))
    seen = pixels(read(tmp_path / "a.png"))
    assert (seen[2:] == 255).all()
    assert seen[0, 0].tolist() == [0, 0, 0]


def test_floats_are_stretched_whatever_they_hold(tmp_path: Path) -> None:
    values = np.linspace(-3e-4, 5e-4, 4000, dtype=np.float32).reshape(50, 80)
    values[0, 0], values[0, 1] = np.nan, np.inf
    Image.fromarray(values).save(tmp_path / "a.tif")
    levels = pixels(read(tmp_path / "a.tif"))[:, :, 0]
    assert levels[0, :2].tolist() == [0, 255]
    assert len(np.unique(levels)) == 256
    Image.fromarray(np.full((5, 5), 7.5, dtype=np.float32)).save(tmp_path / "flat.tif")
    assert (pixels(read(tmp_path / "flat.tif")) == 128).all()
    point = np.zeros((50, 50), dtype=np.uint16)
    point[3, 4] = 9
    Image.fromarray(point).save(tmp_path / "point.png")
    assert pixels(read(tmp_path / "point.png"))[3, 4, 0] == 255
    Image.fromarray(np.full((5, 5), np.nan, dtype=np.float32)).save(tmp_path / "nan.tif")
    assert reason(tmp_path / "nan.tif") == "no pixel is a number"


@pytest.mark.parametrize("kind", ["jpg", "png", "tif", "webp", AVIF])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied(tmp_path: Path, kind: str, orientation: int) -> None:
    upright = Image.new("RGB", (32, 16), "white")
    upright.paste("black", (0, 0, 8, 8))  # the dark corner is at the top left of the scene
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = upright.transpose(undo[orientation]) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / f"a.{kind}", exif=exif)
    image = read(tmp_path / f"a.{kind}")
    assert image.size == (32, 16)
    assert np.abs(pixels(image) - pixels(upright)).mean() < 3
    assert image.info == {}  # nothing private travels on


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0garbage", b"Exif\0\0MM\0*\0\0\0\x08\0\x09"]
)
def test_broken_exif_is_ignored(tmp_path: Path, picture: Picture, exif: bytes) -> None:
    picture().save(tmp_path / "a.jpg", exif=exif)
    assert read(tmp_path / "a.jpg").size == (96, 64)


@pytest.mark.parametrize("kind", ["gif", "webp", "png", "tif", AVIF])
def test_of_an_animation_the_first_frame(tmp_path: Path, kind: str) -> None:
    frames = [Image.new("RGB", (20, 10), colour) for colour in ("red", "lime", "blue")]
    frames[0].save(tmp_path / f"a.{kind}", save_all=True, append_images=frames[1:])
    image = read(tmp_path / f"a.{kind}")
    frames[0].save(tmp_path / f"one.{kind}")
    for name, is_said in (("a", True), ("one", False)):
        with (tmp_path / f"{name}.{kind}").open("rb") as file:
            assert decode(file)[1].endswith(FIRST_FRAME) == is_said
    small = image.resize((4, 2), box=(1.5, 1.5, 9.5, 5.5))  # the file is closed by now
    assert np.abs(pixels(small) - [255, 0, 0]).max() <= 8


def test_damage_behind_the_first_frame_costs_nothing(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (20, 10), colour) for colour in ("red", "lime")]
    frames[0].save(tmp_path / "one.gif")
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    first = (tmp_path / "one.gif").read_bytes()
    assert np.array_equal(pixels(read(tmp_path / "a.gif")), pixels(read(tmp_path / "one.gif")))
    (tmp_path / "a.gif").write_bytes(first[:-1] + b"\x2c" + b"\xff" * 9)
    assert np.array_equal(pixels(read(tmp_path / "a.gif")), pixels(read(tmp_path / "one.gif")))


def png_header(width: int, height: int) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = b"IDAT" + zlib.compress(b"\0" * 1000)
    chunks = [header, data, b"IEND"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        for chunk in chunks
    )


def test_too_many_pixels_are_refused_from_the_header(tmp_path: Path) -> None:
    (tmp_path / "bomb.png").write_bytes(png_header(20_000, 20_000))
    assert (
        reason(tmp_path / "bomb.png")
        == "too many pixels (400 MP > --max-pixels 80 MP): deepcluster tile cuts it"
    )
    (tmp_path / "large.png").write_bytes(png_header(10_000, 10_000))
    assert (
        reason(tmp_path / "large.png")
        == "too many pixels (100 MP > --max-pixels 80 MP): deepcluster tile cuts it"
    )


@pytest.mark.parametrize(
    "kind", ["jpg", "progressive.jpg", "png", "webp", "gif", "bmp", "tif", JP2, AVIF]
)
@pytest.mark.parametrize("share", [0.03, 0.1, 0.5, 0.9, 0.99])
def test_truncated_files_are_refused(
    tmp_path: Path, picture: Picture, kind: str, share: float
) -> None:
    path = tmp_path / f"a.{kind}"
    noisy = np.asarray(picture(160, 120)) ^ np.random.default_rng(0).integers(
        0, 64, (120, 160, 3), dtype=np.uint8
    )
    Image.fromarray(noisy).save(path, **({"progressive": True} if "progressive" in kind else {}))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert reason(path) in ("truncated", "damaged or unsupported")
    if kind == "jpg" and share >= 0.1:
        assert reason(path) == "truncated"


def test_what_is_no_image_has_a_reason(tmp_path: Path) -> None:
    contents = {
        "empty.jpg": (b"", "empty file"),
        "page.jpg": (b"<!DOCTYPE html><title>404</title>", "not an image"),
        "zeros.png": (bytes(5000), "not an image"),
        "lfs.jpg": (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n",
            "git-lfs pointer: run git lfs pull",
        ),
        "figure.eps.png": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
        "head.png": (b"\x89PNG\r\n\x1a\n" + b"\x07" * 300, "damaged or unsupported"),
    }
    for name, (content, expected) in contents.items():
        (tmp_path / name).write_bytes(content)
        assert reason(tmp_path / name) == expected, name


def test_what_cannot_be_opened_has_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reason(tmp_path / "missing.jpg") == "unreadable: no such file or directory"
    assert reason(tmp_path) == "unreadable: is a directory"

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert reason(tmp_path / "a.jpg") == "unreadable: permission denied"


def test_a_failing_disk_is_not_called_a_bad_image(picture: Picture) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 500:
                raise OSError(5, "Input/output error")
            return super().read(size)

    stored = io.BytesIO()
    picture(400, 300).save(stored, format="BMP")
    with pytest.raises(Unusable, match=r"^unreadable: input/output error$"):
        decode(Failing(stored.getvalue()))


def test_pillow_warns_nobody_and_others_still_may(tmp_path: Path) -> None:
    (tmp_path / "large.png").write_bytes(png_header(10_000, 10_000))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reason(tmp_path / "large.png")
        assert not caught
        warnings.warn("something else", stacklevel=1)
    assert len(caught) == 1


def test_damage_inside_never_raises_anything_else(tmp_path: Path, picture: Picture) -> None:
    random = np.random.default_rng(0)
    names = {"jpg": "JPEG", "tif": "TIFF", "jp2": "JPEG2000"}
    more = ("jp2",) if features.check("jpg_2000") else ()
    for kind in ("jpg", "png", "webp", "gif", "bmp", "tif", "ppm", *more):
        stored = io.BytesIO()
        picture().save(stored, format=names.get(kind, kind.upper()))
        for _ in range(40):
            damaged = np.frombuffer(stored.getvalue(), dtype=np.uint8).copy()
            where = random.integers(0, min(len(damaged), 400), 6)
            damaged[where] = random.integers(0, 256, 6)
            with suppress(Unusable):
                assert decode(io.BytesIO(damaged.tobytes()))[0].mode == "RGB"
