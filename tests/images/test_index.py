from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from deepcluster.images.index import SCHEMA, Changes, Index
from deepcluster.images.kept import Pixels
from deepcluster.images.packing import pack
from deepcluster.images.source import Folder
from deepcluster.intake import Intake
from deepcluster.runtime import faults
from deepcluster.runtime.errors import ResumeError, StorageError

Picture = Callable[..., Image.Image]
UNCHANGED = Changes([], [], [])


def test_ids_count_the_usable_images_in_the_order_of_the_paths(
    photos: Path, picture: Picture
) -> None:
    (photos / "cats/2.jpg").write_bytes(b"")
    whole = (photos / "cats/1.jpg").read_bytes()
    (photos / "dogs/5.jpg").write_bytes(whole[:-200])
    index = Index.build(photos, workers=2)
    expected = [f"cats/{n}.jpg" for n in (1, 3, 5, 7, 9)] + [
        f"dogs/{n}.jpg" for n in range(0, 9, 2)
    ]
    assert index.paths == expected
    assert len(index) == 10
    assert index.unusable == [("cats/2.jpg", "empty file"), ("dogs/5.jpg", "truncated")]
    table = index.table.to_pylist()
    assert [row["path"] for row in table] == sorted([*expected, "cats/2.jpg", "dogs/5.jpg"])
    assert [row["id"] for row in table if row["reason"] is None] == list(range(10))
    assert all(row["id"] is None for row in table if row["reason"] is not None)
    first = table[0]
    assert (first["width"], first["height"], first["mode"]) == (85, 64, "RGB")
    assert first["size"] == len(whole)
    assert first["hash"] == hashlib.blake2b(whole, digest_size=16).hexdigest()
    assert first["modified"] == (photos / "cats/1.jpg").stat().st_mtime_ns
    assert index.labels is not None
    assert index.labels.dtype == np.int64
    assert index.labels.tolist() == [0] * 5 + [1] * 5


def test_workers_do_not_matter(photos: Path) -> None:
    assert Index.build(photos, 0).table.equals(Index.build(photos, 3).table)


def test_folders_are_labels_only_where_every_image_has_one_and_there_are_two(
    photos: Path, picture: Picture
) -> None:
    assert Index.build(photos / "cats", 1).labels is None
    (photos / "stray.txt.png").write_bytes(b"no image")
    assert Index.build(photos, 1).labels is not None
    picture().save(photos / "stray.png")
    assert Index.build(photos, 1).labels is None


def test_a_folder_without_images_gives_an_empty_index(tmp_path: Path) -> None:
    index = Index.build(tmp_path, 1)
    assert (len(index), index.paths, index.labels, index.unusable) == (0, [], None, [])
    assert index.smaller_than(100) == 0
    assert len(Index.from_bytes(index.to_bytes())) == 0


def test_save_and_load_give_the_same(photos: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(b"dogs/caf\xe9\n%41.jpg")
    os.link(photos / "dogs/0.jpg", tmp_path / "spare.jpg")
    (photos / "dogs/0.jpg").rename(photos / odd)
    index = Index.build(photos, 1)
    index.save(tmp_path / "index.parquet")
    loaded = Index.load(tmp_path / "index.parquet")
    assert loaded.table.equals(index.table)
    assert loaded.paths == index.paths
    assert odd in loaded.paths
    assert loaded.fingerprint == index.fingerprint
    assert loaded.changes(photos) == UNCHANGED
    assert pq.read_schema(tmp_path / "index.parquet").names == SCHEMA.names
    assert Index.from_bytes(index.to_bytes()).table.equals(index.table)


def test_a_failed_save_leaves_the_old_file(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index.build(photos, 1)
    index.save(tmp_path / "index.parquet")
    before = (tmp_path / "index.parquet").read_bytes()
    monkeypatch.setattr(faults, "_asked", "index.write:no-space")
    monkeypatch.setattr(faults, "_reached", 0)
    with pytest.raises(StorageError, match="no space left on device"):
        index.save(tmp_path / "index.parquet")
    assert (tmp_path / "index.parquet").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["index.parquet"]


def test_two_that_save_at_once_do_not_meet(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, place = Index.build(photos, 1), tmp_path / "index.parquet"
    others = [7]

    def meanwhile(name: str) -> None:
        if others:
            monkeypatch.setattr(os, "getpid", others.pop)
            index.save(place)

    monkeypatch.setattr(os, "getpid", lambda: 5)
    monkeypatch.setattr(faults, "point", meanwhile)
    index.save(place)
    assert Index.load(place).table.equals(index.table)
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["index.parquet"]


def test_a_broken_index_is_named(tmp_path: Path) -> None:
    (tmp_path / "index.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(ResumeError, match=r"index\.parquet cannot be read"):
        Index.load(tmp_path / "index.parquet")
    with pytest.raises(ResumeError, match="cannot be read"):
        Index.load(tmp_path / "missing.parquet")


def test_changes_follow_the_content_and_not_the_time(photos: Path, picture: Picture) -> None:
    (photos / "cats/bad.jpg").write_bytes(b"not yet")
    index = Index.build(photos, 1)
    fingerprint = index.fingerprint
    assert index.changes(photos) == UNCHANGED
    for path in photos.glob("*/*.jpg"):
        os.utime(path, ns=(1, 1))
    assert index.changes(photos) == UNCHANGED
    assert Index.build(photos, 1).fingerprint == fingerprint
    picture(seed=50).save(photos / "dogs/new.png")
    picture(seed=51).save(photos / "dogs/0.jpg")
    picture(seed=52).save(photos / "cats/bad.jpg")
    (photos / "cats/1.jpg").unlink()
    assert index.changes(photos) == Changes(
        added=["dogs/new.png"], removed=["cats/1.jpg"], changed=["cats/bad.jpg", "dogs/0.jpg"]
    )
    assert Index.build(photos, 1).fingerprint != fingerprint


def test_small_images_are_counted_upright(tmp_path: Path, picture: Picture) -> None:
    for number, size in enumerate([(100, 50), (50, 100), (64, 64), (63, 200)]):
        picture(*size).save(tmp_path / f"{number}.png")
    index = Index.build(tmp_path, 1)
    assert [index.smaller_than(pixels) for pixels in (50, 51, 64, 65)] == [0, 2, 3, 4]


def test_progress_is_told_and_may_end_the_work(photos: Path) -> None:
    told: list[tuple[int, int]] = []
    Index.build(photos, 2, lambda done, total: told.append((done, total)))
    assert told == [(done, 10) for done in range(1, 11)]

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Index.build(photos, 2, stop)


def test_the_images_are_never_changed(photos: Path, tmp_path: Path) -> None:
    def state() -> list[tuple[str, bytes, int]]:
        files = sorted(path for path in photos.rglob("*") if path.is_file())
        return [(str(path), path.read_bytes(), path.stat().st_mtime_ns) for path in files]

    before = state()
    folders = [photos, photos / "cats", photos / "dogs"]
    for folder in folders:
        folder.chmod(0o555)
    try:
        index = Index.build(photos, 2)
        index.save(tmp_path / "index.parquet")
        assert index.changes(photos) == UNCHANGED
        assert len(index) == 10
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert state() == before


def test_small_images_are_left_out_where_that_is_asked(tmp_path: Path) -> None:
    for side in (10, 31, 32, 80):
        Image.linear_gradient("L").resize((100, side)).save(tmp_path / f"{side}.png")
    index = Index.build(tmp_path, 2, how=Pixels(min_side=32))
    assert index.paths == ["32.png", "80.png"]
    assert [reason for _, reason in index.unusable] == ["smaller than --min-side"] * 2
    assert len(Index.build(tmp_path, 2)) == 4
    how = Pixels(min_side=32)
    store = pack(Folder(tmp_path), tmp_path / "store", "grey", how, 2)
    assert store.index.table.equals(index.table)
    assert store.contents.how == replace(how, colour="grey")
    Intake(tmp_path).refuse_useless(index, 0.0)  # nothing is wrong with the small ones
