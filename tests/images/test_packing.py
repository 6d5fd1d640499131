from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from deepcluster.images import packing
from deepcluster.images.crops import normalize
from deepcluster.images.index import Index
from deepcluster.images.judging import COPY
from deepcluster.images.kept import Pixels, grey, kept
from deepcluster.images.packing import pack
from deepcluster.images.source import Folder
from deepcluster.images.store import Store
from deepcluster.networks import Sobel
from deepcluster.runtime.errors import DataError

RNG = np.random.default_rng(0)


def picture(width: int, height: int) -> Image.Image:
    rough = RNG.integers(0, 256, (6, 8, 3)).astype(np.uint8)
    return Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "images"
    path.mkdir()
    for number, size in enumerate([(300, 200), (90, 400), (50, 40), (128, 128), (1, 700)]):
        picture(*size).save(path / f"{number}.png")
    (path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return path


def test_a_store_holds_every_usable_image_in_the_order_of_the_index(folder, tmp_path):
    store = pack(Folder(folder), tmp_path / "store", "rgb", Pixels(short_side=100), workers=2)
    index = Index.build(folder, workers=1)
    assert store.index.table.equals(index.table)
    assert store.index.unusable == index.unusable
    assert len(store) == len(index) == 5
    for number, path in enumerate(index.paths):
        expected = kept(np.asarray(Image.open(folder / path)), "rgb", Pixels(short_side=100))
        assert np.array_equal(store.image(number), expected)
    store.verify()


@pytest.mark.parametrize(
    ("size", "shape", "expected"),
    [
        ((300, 200), "aspect", (100, 150)),
        ((200, 300), "aspect", (150, 100)),
        ((300, 200), "square", (100, 100)),
        ((60, 40), "aspect", (40, 60)),  # never enlarged
        ((60, 40), "square", (40, 40)),
        ((1, 700), "aspect", (700, 1)),
    ],
)
def test_short_side_and_shape(size, shape, expected):
    pixels = kept(np.asarray(picture(*size)), "grey", Pixels(short_side=100, shape=shape))
    assert pixels.shape == (*expected, 1)


@pytest.mark.parametrize(("width", "height"), [(300, 200), (101, 999), (480, 361), (5000, 130)])
def test_a_kept_image_is_pillows_antialiased_resize_within_one_level(width, height):
    noise = RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)
    for image in (picture(width, height), Image.fromarray(noise)):
        mine = kept(np.asarray(image), "rgb", Pixels(short_side=100)).astype(int)
        size = mine.shape[1::-1]
        difference = np.abs(mine - np.asarray(image.resize(size, Image.Resampling.BILINEAR)))
        # Both round twice, torch with weights of 16 bits; the more the less is shrunk.
        assert difference.max() <= 1
        assert difference.mean() < (0.3 if width == 101 else 0.02)


def test_a_square_is_the_middle_cut_out_before_it_is_resized():
    image = picture(300, 200)
    middle = np.asarray(image.crop((50, 0, 250, 200)))
    expected = kept(middle, "rgb", Pixels(short_side=100))
    got = kept(np.asarray(image), "rgb", Pixels(short_side=100, shape="square"))
    assert np.array_equal(got, expected)


def test_grey_is_the_weighted_mean_rounded():
    colours = RNG.integers(0, 256, (200, 100, 3), dtype=np.uint8)
    colours[0, 0], colours[0, 1] = 0, 255
    inverse = 1 / np.array([0.229, 0.224, 0.225])
    exact = (colours * (inverse / inverse.sum())).sum(axis=-1)
    assert np.abs(grey(colours)[..., 0] - exact).max() < 0.51
    assert grey(colours)[0, :2, 0].tolist() == [0, 255]


def test_a_grey_store_is_what_sobel_makes_of_the_colours_up_to_rounding(folder, tmp_path):
    how = Pixels(short_side=1000)
    grey = pack(Folder(folder), tmp_path / "grey", "grey", how, workers=1)
    rgb = pack(Folder(folder), tmp_path / "rgb", "rgb", how, workers=1)

    def batch(store: Store, number: int) -> torch.Tensor:
        pixels = torch.from_numpy(store.image(number).copy()).permute(2, 0, 1)[None]
        return normalize(pixels)

    sobel = Sobel()
    # Half a grey level, normalised, times the sum of a filter's absolute weights.
    rounding = 0.5 / 255 * sum(1 / d for d in (0.229, 0.224, 0.225)) / 3
    for number in range(len(grey)):
        colours = batch(rgb, number)
        assert torch.allclose(
            batch(grey, number), colours.mean(dim=1, keepdim=True), atol=1.01 * rounding
        )
        assert torch.allclose(sobel(batch(grey, number)), sobel(colours), atol=8 * 1.01 * rounding)


def test_grey_is_not_luma():
    green = Image.new("RGB", (64, 64), (0, 255, 0))
    assert int(kept(np.asarray(green), "grey", Pixels())[0, 0, 0]) == 86  # luma would give 150


class _StopError(Exception):
    pass


def test_an_interrupted_packing_goes_on_and_ends_the_same(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "_BLOCK", 2)
    whole = pack(Folder(folder), tmp_path / "whole", "grey", Pixels(), workers=1)
    reached = []

    def stop(done: int, total: int) -> None:
        reached.append((done, total))
        if done == 4:
            raise _StopError

    with pytest.raises(_StopError):
        pack(Folder(folder), tmp_path / "cut", "grey", Pixels(), 1, stop)
    # Rubbish after the last synced block, as a crash may leave it.
    with (tmp_path / "cut" / "pixels.u8.partial").open("ab") as file:
        file.write(b"rubbish")
    with (tmp_path / "cut" / "progress.jsonl").open("ab") as file:
        file.write(b'{"settings": "cut sho')
    reached.clear()
    again = pack(
        Folder(folder), tmp_path / "cut", "grey", Pixels(), 1, lambda *at: reached.append(at)
    )
    assert reached == [(6, 6)]  # four of six files were not read again
    for name in ("pixels.u8", "layout.npy", "store.json", "index.parquet"):
        assert (again.folder / name).read_bytes() == (whole.folder / name).read_bytes()
    again.verify()


@pytest.mark.parametrize("change", ["settings", "file", "pixels"])
def test_what_was_packed_otherwise_is_not_taken_up(change, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "_BLOCK", 2)

    def stop(done: int, total: int) -> None:
        raise _StopError

    with pytest.raises(_StopError):
        pack(Folder(folder), tmp_path / "store", "grey", Pixels(), 1, stop)
    how = Pixels(short_side=64) if change == "settings" else Pixels()
    if change == "file":
        picture(70, 80).save(folder / "0.png")
    if change == "pixels":
        (tmp_path / "store" / "pixels.u8.partial").write_bytes(b"")
    store = pack(Folder(folder), tmp_path / "store", "grey", how, workers=1)
    expected = pack(Folder(folder), tmp_path / "expected", "grey", how, workers=1)
    assert np.array_equal(store.pixels, expected.pixels)
    store.verify()


def test_a_whole_store_is_opened_as_it_is(folder, tmp_path):
    first = pack(Folder(folder), tmp_path / "store", "grey", Pixels(), workers=1)
    before = (first.folder / "pixels.u8").stat().st_mtime_ns
    pack(Folder(folder), tmp_path / "store", "grey", Pixels(), workers=1)
    assert (first.folder / "pixels.u8").stat().st_mtime_ns == before


@pytest.mark.parametrize("change", ["settings", "colour", "gone", "added", "damaged"])
def test_a_store_of_other_images_or_settings_is_made_anew(change, folder, tmp_path):
    pack(Folder(folder), tmp_path / "store", "grey", Pixels(), workers=1)
    how = Pixels(short_side=64) if change == "settings" else Pixels()
    colour = "rgb" if change == "colour" else "grey"
    if change == "gone":
        (folder / "1.png").unlink()
    if change == "added":
        picture(70, 80).save(folder / "9.png")
    if change == "damaged":
        (tmp_path / "store" / "pixels.u8").write_bytes(b"cut")
    store = pack(Folder(folder), tmp_path / "store", colour, how, workers=1)
    expected = pack(Folder(folder), tmp_path / "expected", colour, how, workers=1)
    assert store.contents == expected.contents
    assert np.array_equal(store.pixels, expected.pixels)
    assert store.index.fingerprint == expected.index.fingerprint
    store.verify()


@pytest.mark.parametrize("stop_at", [None, 2, 4])
def test_of_copies_the_first_is_kept_where_that_is_asked(stop_at, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "_BLOCK", 2)
    (folder / "0-again.png").write_bytes((folder / "0.png").read_bytes())
    (folder / "4-of-1.png").write_bytes((folder / "1.png").read_bytes())
    (folder / "broken-again.png").write_bytes((folder / "broken.png").read_bytes())
    how = Pixels(copies="once")

    def stop(done: int, total: int) -> None:
        if done == stop_at:
            raise _StopError

    with suppress(_StopError):
        pack(Folder(folder), tmp_path / "store", "grey", how, 2, stop)
    store = pack(Folder(folder), tmp_path / "store", "grey", how, 2)
    assert len(store) == 5
    copies = [path for path, reason in store.index.unusable if reason == COPY]
    assert copies == ["0.png", "4-of-1.png"]  # `0-again.png` comes before `0.png`
    assert store.contents.how.copies == "once"
    index = Index.build(folder, 2, how=how)
    assert store.index.table.equals(index.table)
    every = pack(Folder(folder), tmp_path / "every", "grey", Pixels(), 2)
    assert len(every) == 7
    assert np.array_equal(every.image(0), store.image(0))


def test_one_flipped_bit_is_noticed(folder, tmp_path):
    store = pack(Folder(folder), tmp_path / "store", "grey", Pixels(), workers=1)
    content = bytearray((store.folder / "pixels.u8").read_bytes())
    content[len(content) // 2] ^= 1
    (store.folder / "pixels.u8").write_bytes(content)
    with pytest.raises(DataError, match="damaged in block 0"):
        Store(store.folder).verify()


def test_of_each_block_that_is_read_something_is_told(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "_BLOCK", 1)
    store = pack(Folder(folder), tmp_path / "store", "grey", Pixels(), workers=1)
    blocks = len(store.contents.checksums)
    told = []
    store.verify(progress=lambda *how_far: told.append(how_far))
    assert told == [(done, blocks) for done in range(1, blocks + 1)]
    told.clear()
    store.verify(range(1, 3), lambda *how_far: told.append(how_far))
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize("name", ["pixels.u8", "layout.npy", "store.json"])
def test_a_cut_or_missing_file_is_noticed_when_the_store_is_opened(name, folder, tmp_path):
    store = pack(Folder(folder), tmp_path / "store", "grey", Pixels(), workers=1)
    content = (store.folder / name).read_bytes()
    (store.folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="pack it again"):
        Store(store.folder)
    (store.folder / name).unlink()
    with pytest.raises(DataError, match="pack it again"):
        Store(store.folder)


def test_a_folder_of_broken_files_gives_an_empty_store(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"")
    store = pack(Folder(tmp_path / "images"), tmp_path / "store", "grey", Pixels(), workers=1)
    assert len(store) == 0
    assert len(store.index.unusable) == 1
    store.verify()


@pytest.mark.parametrize("version", ["first", "latest"])
def test_a_store_that_was_packed_before_opens_as_before(
    version: str, folder: Path, tmp_path: Path
) -> None:
    how = Pixels(short_side=100)
    pixels = np.array(pack(Folder(folder), tmp_path / "store", "grey", how, workers=1).pixels)
    written = json.loads((tmp_path / "store/store.json").read_text())
    # As it was written when the settings stood one by one in `Contents`.
    before: dict[str, object] = {
        "format": 1,
        "colour": "grey",
        "short_side": 100,
        "shape": "aspect",
        **{name: written[name] for name in ("images", "bytes", "block_ends", "checksums")},
    }
    if version == "latest":
        before |= {
            "copies": "keep",
            "frames": "first",
            "min_side": 1,
            "bands": None,
            "max_pixels": 80_000_000,
            "background": "white",
            "follow_links": False,
            "accept_truncated": False,
        }
        assert written == before
    (tmp_path / "store/store.json").write_text(json.dumps(before, indent=2) + "\n")
    store = Store(tmp_path / "store")
    store.verify()
    assert store.contents.how == replace(how, colour="grey")
    assert np.array_equal(store.pixels, pixels)
    again = pack(Folder(folder), tmp_path / "store", "grey", how, workers=1)
    assert json.loads((again.folder / "store.json").read_text()) == before  # not packed anew
    for missing in ("colour", "images", "format"):
        less = {name: value for name, value in before.items() if name != missing}
        (tmp_path / "store/store.json").write_text(json.dumps(less))
        with pytest.raises(DataError, match="is no whole store"):
            Store(tmp_path / "store")
