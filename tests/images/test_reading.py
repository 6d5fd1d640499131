"""What the user may say of how files become pictures, on every way that a picture takes."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image, ImageFile

from deepcluster import plan
from deepcluster.cli import main
from deepcluster.collection.sight import FileSight, Preprocessing
from deepcluster.images import crew
from deepcluster.images.album import Album
from deepcluster.images.decode import Unusable, decode, decode_pixels, read
from deepcluster.images.index import Index
from deepcluster.images.kept import Pixels
from deepcluster.images.loader import Images
from deepcluster.images.packing import pack
from deepcluster.images.reading import Reading
from deepcluster.images.selection import selected
from deepcluster.images.source import Folder, source_of
from deepcluster.images.store import Store
from deepcluster.runtime.errors import UsageError
from deepcluster.settings import Run, flat

Picture = Callable[..., Image.Image]
WAYS = [
    lambda data, reading: decode(io.BytesIO(data), reading)[0],
    lambda data, reading: decode_pixels(data, reading)[0],
]


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SECONDS", 0.01)  # for which check tries each phase of training


def seen_by_network(root: Path, how: Pixels) -> tuple[list[str | None], torch.Tensor]:
    """The reasons against the files, and the pixels of the others, as embed sees them."""
    sight = FileSight(Folder(root), Preprocessing.of(flat(Run(pixels=how))))
    (block,) = sight.blocks(8, 1)
    return [row["reason"] for row in block.rows], block.crops


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "gif", "bmp", "tif"])
@pytest.mark.parametrize("way", WAYS)
def test_the_limit_of_pixels_is_the_users(
    kind: str, way: Callable[[bytes, Reading], object], picture: Picture, tmp_path: Path
) -> None:
    picture(40, 30).save(tmp_path / f"a.{kind}")
    data = (tmp_path / f"a.{kind}").read_bytes()
    way(data, Reading(max_pixels=1200))
    with pytest.raises(Unusable) as refused:
        way(data, Reading(max_pixels=1199))
    assert refused.value.reason == (
        "too many pixels (0.0012 MP > --max-pixels 0.0012 MP): deepcluster tile cuts it"
    )


@pytest.mark.parametrize("way", WAYS)
def test_pillows_own_limit_does_not_stand_in_the_way(
    way: Callable[[bytes, Reading], object], picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)  # it refuses from the double on
    file = io.BytesIO()
    picture(40, 30).save(file, "PNG")
    with pytest.raises(Unusable, match=r"too many pixels \(0.0012 MP > --max-pixels 0.0003 MP\)"):
        way(file.getvalue(), Reading(max_pixels=300))
    way(file.getvalue(), Reading(max_pixels=1200))


def test_frames_and_bands_have_the_same_limit(tmp_path: Path, picture: Picture) -> None:
    frames = [picture(40, 30, seed) for seed in range(2)]
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    levels = np.random.default_rng(0).integers(0, 256, (30, 40, 6), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "b.tif", levels, photometric="minisblack", planarconfig="contig")
    how = Pixels(frames="all", bands="4,3,2", max_pixels=1200)
    assert len(Index.build(selected(Folder(tmp_path), how), 1, how=how)) == 3
    how = replace(how, max_pixels=1199)
    unusable = Index.build(selected(Folder(tmp_path), how), 1, how=how).unusable
    assert len(unusable) == 2  # a file whose first frame is refused is not looked through
    assert all(reason.startswith("too many pixels") for _, reason in unusable)


def test_large_images_are_left_out_by_every_way_of_reading(
    tmp_path: Path, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "images"
    root.mkdir()
    for number, kind in enumerate(("jpg", "png", "webp")):
        picture(40, 30, number).save(root / f"small.{kind}")
        picture(50, 30, number).save(root / f"wide.{kind}")
    how = Pixels(max_pixels=1200, short_side=64)
    index = Index.build(root, 2, how=how)
    assert index.paths == ["small.jpg", "small.png", "small.webp"]
    store = pack(Folder(root), tmp_path / "threads", "rgb", how, 2)
    assert store.index.table.equals(index.table)
    assert store.contents.how == replace(how, colour="rgb")
    monkeypatch.setattr(crew, "PROCESSES_PAY", 1)
    processes = pack(Folder(root), tmp_path / "processes", "rgb", how, 1)
    monkeypatch.undo()
    for name in ("pixels.u8", "index.parquet", "store.json"):
        assert (store.folder / name).read_bytes() == (processes.folder / name).read_bytes()
    reasons, crops = seen_by_network(root, how)
    assert reasons == index.table["reason"].to_pylist()
    assert len(crops) == 3
    assert len(pack(Folder(root), tmp_path / "threads", "rgb", Pixels(), 2)) == 6


def test_verbs_take_the_limit(
    tmp_path: Path, textures: Callable[[int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    images = textures(24)
    Image.linear_gradient("L").resize((300, 100)).save(images / "kind0/wide.png")
    assert main(["check", str(images), "--max-pixels", "20000"]) == 0
    said = capsys.readouterr().out
    assert "1  too many pixels (0.03 MP > --max-pixels 0.02 MP): deepcluster tile cuts it" in said
    store = tmp_path / "store"
    assert main(["pack", str(images), str(store), "--max-pixels", "20000"]) == 0
    assert len(Store(store)) == 24
    capsys.readouterr()
    assert main(["pack", str(images), str(store)]) == 2
    assert "other settings (max-pixels 20000)" in capsys.readouterr().err
    for verb in (["check", str(images)], ["pack", str(images), "s"], ["train", str(images)]):
        assert main([*verb, "--max-pixels", "0"]) == 2
        assert "--max-pixels 0: use at least 1" in capsys.readouterr().err


def see_through(path: Path, **more: object) -> None:
    """Opaque red above, half of it in the middle, nothing but hidden green below."""
    levels = np.zeros((30, 30, 4), np.uint8)
    levels[:10] = (200, 0, 0, 255)
    levels[10:20] = (200, 0, 0, 128)
    levels[20:] = (0, 255, 0, 0)
    Image.fromarray(levels).save(path, **more)


@pytest.mark.parametrize("name", ["#204060", "black", "White", "hotpink"])
@pytest.mark.parametrize("kind", ["png", "webp", "tif"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_transparent_is_laid_on_the_users_colour(
    name: str, kind: str, way: Callable[[bytes, Reading], object], tmp_path: Path
) -> None:
    path = tmp_path / f"a.{kind}"
    see_through(path, **({"lossless": True} if kind == "webp" else {}))
    ground = np.array(
        {"#204060": (32, 64, 96), "black": (0, 0, 0), "White": (255,) * 3}.get(
            name, (255, 105, 180)
        )
    )
    Pixels(background=name).refuse_impossible()
    found = np.asarray(way(path.read_bytes(), Reading(background=name)))
    red = np.array((200, 0, 0))
    assert (found[:10] == red).all()
    half = (128 * red + 127 * ground) / 255
    assert np.abs(found[10:20] - half).max() <= 1
    assert (found[20:] == ground).all()


def test_palettes_and_deep_colours_are_laid_on_it_too(tmp_path: Path) -> None:
    flat_colours = Image.new("P", (8, 8), 0)
    flat_colours.putpalette([10, 20, 30, 40, 50, 60])
    flat_colours.save(tmp_path / "a.gif", transparency=0)
    levels = np.zeros((8, 8, 4), np.uint16)
    levels[4:] = 65535
    tifffile.imwrite(tmp_path / "b.tif", levels, photometric="rgb", extrasamples=["unassalpha"])
    reading = Reading(background="#010203")
    assert (np.asarray(read(tmp_path / "a.gif", reading=reading)) == (1, 2, 3)).all()
    deep = np.asarray(read(tmp_path / "b.tif", reading=reading))
    assert (deep[:4] == (1, 2, 3)).all()
    assert (deep[4:] == 255).all()


@pytest.mark.parametrize("wrong", ["whitee", "#fff", "#12345g", "255,0,0", ""])
def test_what_is_no_colour_is_said(wrong: str) -> None:
    with pytest.raises(UsageError, match="give a colour by name, such as black, or as #rrggbb"):
        Pixels(background=wrong).refuse_impossible()


def test_every_way_of_reading_has_the_same_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "images"
    root.mkdir()
    see_through(root / "a.png")
    Image.new("RGBA", (30, 30), (9, 9, 9, 0)).save(root / "b.png")
    how = Pixels(background="#204060", short_side=64)
    store = pack(Folder(root), tmp_path / "threads", "rgb", how, 1)
    assert store.contents.how == replace(how, colour="rgb")
    assert (store.image(1) == (32, 64, 96)).all()
    monkeypatch.setattr(crew, "PROCESSES_PAY", 1)
    processes = pack(Folder(root), tmp_path / "processes", "rgb", how, 1)
    assert np.array_equal(store.pixels, processes.pixels)
    assert Store(tmp_path / "threads").contents.how.background == "#204060"
    every = replace(how, frames="all")
    frames = pack(selected(Folder(root), every), tmp_path / "frames", "rgb", every, 1)
    assert np.array_equal(store.pixels, frames.pixels)
    for keep in ("store", "files"):
        rgb = replace(how, keep=keep, colour="rgb")  # type: ignore[arg-type]
        _, crops = seen_by_network(root, rgb)
        assert (crops[1] == torch.tensor([32, 64, 96], dtype=torch.uint8)[:, None, None]).all()
    files = Images(Folder(root), store.index, 16, reading=how.reading)
    assert np.array_equal(np.asarray(files.picture(0)), store.image(0))
    album = Album(root, store.index, (), 16, how)
    unchanged = album.unchanged(0)
    assert unchanged is not None
    for picture in (album.small(0), album.original(0), unchanged):
        assert np.array_equal(np.asarray(picture), store.image(0))


def test_verbs_take_the_background(
    tmp_path: Path, textures: Callable[[int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    images, store = textures(24), tmp_path / "store"
    Image.new("RGBA", (80, 80), (9, 9, 9, 0)).save(images / "kind0/0.png")
    words = ["pack", str(images), str(store), "--colour", "rgb"]
    assert main([*words, "--background", "#204060"]) == 0
    packed = Store(store)
    assert (packed.image(packed.index.paths.index("kind0/0.png")) == (32, 64, 96)).all()
    capsys.readouterr()
    assert main(words) == 2
    assert "other settings (background #204060)" in capsys.readouterr().err
    for verb in (["check", str(images)], ["pack", str(images), "s"], ["train", str(images)]):
        assert main([*verb, "--background", "wite"]) == 2
        assert "--background wite: give a colour by name" in capsys.readouterr().err


def test_verbs_take_links_out_of_the_folder_where_that_is_asked(
    tmp_path: Path, textures: Callable[[int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    images = textures(60)
    (tmp_path / "away").mkdir()
    (images / "kind0/0000.png").rename(tmp_path / "away/0.png")
    (images / "kind0/away").symlink_to(tmp_path / "away")
    assert main(["check", str(images)]) == 0
    said = capsys.readouterr().out
    assert "60 files in" in said
    assert "1  link out of the folder: --follow-links follows it, such as kind0/away" in said
    store = tmp_path / "store"
    assert main(["pack", str(images), str(store)]) == 0
    said = capsys.readouterr().out
    assert "kind0/away: link out of the folder: --follow-links follows it" in said
    assert len(Store(store)) == 59
    assert main(["pack", str(images), str(store), "--follow-links"]) == 2
    assert "other settings (follow-links False)" in capsys.readouterr().err
    assert main(["pack", str(images), str(tmp_path / "all"), "--follow-links"]) == 0
    assert Store(tmp_path / "all").contents.how.follow_links
    assert len(Store(tmp_path / "all")) == 60
    for follow, usable in ((False, 59), (True, 60)):
        sight = FileSight(
            Folder(images), Preprocessing.of(flat(Run(pixels=Pixels(follow_links=follow))))
        )
        found = sight.source.find()
        assert len([one for one in found if one.reason is None]) == usable


def test_lists_name_what_they_name(tmp_path: Path, picture: Picture) -> None:
    (tmp_path / "images").mkdir()
    picture(40, 30).save(tmp_path / "a.png")
    (tmp_path / "images/link.png").symlink_to(tmp_path / "a.png")
    (tmp_path / "images/list.txt").write_text("link.png\n")
    listed = selected(source_of(tmp_path / "images/list.txt"), Pixels())
    assert Index.build(listed, 1).paths == ["link.png"]


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("way", [decode_pixels, lambda data, how: decode(io.BytesIO(data), how)])
def test_what_is_missing_of_a_jpeg_is_grey(
    share: float, way: Callable[[bytes, Reading], tuple[object, str]]
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (20, 20, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize((160, 160)).save(file, "JPEG", quality=95)
    whole, cut = file.getvalue(), file.getvalue()[: int(share * len(file.getvalue()))]
    with pytest.raises(Unusable, match=r"^truncated$"):
        way(cut, Reading())
    expected = np.asarray(way(whole, Reading())[0]).astype(int)
    found, mode = way(cut, Reading(accept_truncated=True))
    assert mode == "RGB (cut short)"
    found = np.asarray(found).astype(int)
    assert np.array_equal(found[:48], expected[:48])
    same = (found == expected).all(axis=(1, 2))
    assert same.mean() > share - 0.25
    if share == 0.5:
        assert np.abs(found[-16:] - found[-1, -1]).max() == 0  # one grey
        assert np.ptp(found[-1, -1]) <= 2
    assert way(whole, Reading(accept_truncated=True))[1] == "RGB"
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


def test_files_cut_short_are_counted_and_said(
    tmp_path: Path,
    picture: Picture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = tmp_path / "images"
    root.mkdir()
    for number in range(3):
        picture(160, 120, number).save(root / f"{number}.jpg")
        picture(160, 120, number).save(root / f"{number}.png")
    for name in ("1.jpg", "2.png"):
        (root / name).write_bytes((root / name).read_bytes()[:-1500])
    (root / "empty.jpg").write_bytes(b"")
    how = Pixels(accept_truncated=True)
    store = pack(Folder(root), tmp_path / "threads", "rgb", how, 1)
    assert [path for path, _ in store.index.unusable] == ["2.png", "empty.jpg"]
    assert store.contents.how == replace(how, colour="rgb")
    assert store.index.usable["mode"].to_pylist() == ["RGB", "RGB", "RGB (cut short)", "RGB", "RGB"]
    monkeypatch.setattr(crew, "PROCESSES_PAY", 1)
    processes = pack(Folder(root), tmp_path / "processes", "rgb", how, 1)
    assert np.array_equal(store.pixels, processes.pixels)
    assert processes.index.table.equals(store.index.table)
    monkeypatch.undo()
    words = ["pack", str(root), str(tmp_path / "s"), "--accept-truncated"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "cut short, and used with the rest in grey: 1, such as 1.jpg" in said
    assert main(["pack", str(root), str(tmp_path / "without")]) == 0
    assert "cut short" not in capsys.readouterr().out
