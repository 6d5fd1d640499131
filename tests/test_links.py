"""Links out of a folder: left out and named by every verb, followed where that is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow.parquet as pq
import pytest
import torch

from deepcluster import flags
from deepcluster.cli import main
from deepcluster.evaluate_flags import PROTOCOLS, flags_of
from deepcluster.evaluation.landmarks import read_landmarks
from deepcluster.evaluation.retrieval import whitening_source
from deepcluster.figure_command import BY_NAME as FIGURES
from deepcluster.figure_command import ReproduceFigure
from deepcluster.figure_command import _terms as terms_of_figure
from deepcluster.images.kept import Pixels
from deepcluster.reproduce_command import BY_NAME as STUDIES
from deepcluster.reproduce_command import _terms as terms_of_study
from deepcluster.reproduce_flags import Reproduce
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import DataError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.settings import Run, flat
from deepcluster.studies.image_lists import write_uncurated
from deepcluster.viewed_run import ViewedRun

Capture = pytest.CaptureFixture[str]
REASON = "link out of the folder: --follow-links follows it"


@pytest.fixture
def data(textures: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """data/train and data/val, each with a class of which one image is a link."""
    monkeypatch.chdir(tmp_path)
    for number, split in enumerate(("train", "val")):
        place = tmp_path / "data" / split
        place.parent.mkdir(exist_ok=True)
        textures(24).rename(place)
        image = place / f"kind{number}/000{number}.png"
        image.rename(tmp_path / f"{split}.png")
        image.symlink_to(tmp_path / f"{split}.png")
    return tmp_path / "data"


def test_tile(data: Path, capsys: Capture) -> None:
    assert main(["tile", "data/train", "without", "--side", "64"]) == 0
    assert f"left out: 1  {REASON}, such as kind0/0000.png" in capsys.readouterr().out
    assert main(["tile", "data/train", "with", "--side", "64", "--follow-links"]) == 0
    assert "left out" not in capsys.readouterr().out
    parents = [
        {*pq.ParquetFile(f"{out}/tiles.parquet").read(use_threads=False)["parent"].to_pylist()}
        for out in ("without", "with")
    ]
    assert parents[1] - parents[0] == {"kind0/0000.png"}


def test_evaluate(data: Path, capsys: Capture) -> None:
    words = "evaluate random knn --data data --input-size 64 --width 16 --device cpu --workers 1"
    for more, images in (([], 23), (["--follow-links"], 24), ([], 23)):
        assert main([*words.split(), *more]) == 0
        said = capsys.readouterr().out
        assert (f"left out of data/train: 1 {REASON}" in said) == (images == 23)
        assert (f"left out of data/val: 1 {REASON}" in said) == (images == 23)
        written = json.loads(Path(said.splitlines()[-1].removeprefix("written to ")).read_text())
        assert [part["images"] for part in written["data"].values()] == [images, images]


def test_the_flag_is_there_where_folders_are_searched() -> None:
    taking = {name for name, kind in PROTOCOLS.items() if "--follow-links" in flags_of(kind)}
    # Pascal VOC's sets name their images, one by one.
    assert taking == {"linear", "mlp", "knn", "agreement", "retrieval"}


def test_landmarks(data: Path) -> None:
    city, away = data / "city", data / "away"
    for place in (city / "images", city / "gt_files", away):
        place.mkdir(parents=True)
    for name in ("hall_1", "hall_2"):
        (away / f"{name}.png").write_bytes((data / "train/kind1/0001.png").read_bytes())
        (city / f"images/{name}.png").symlink_to(away / f"{name}.png")
    for kind, text in (("query", "oxc1_hall_1 0 0 9 9"), ("good", "hall_1\nhall_2")):
        (city / f"gt_files/hall_1_{kind}.txt").write_text(text + "\n")
    for kind in ("ok", "junk"):
        (city / f"gt_files/hall_1_{kind}.txt").touch()
    with pytest.raises(DataError, match=r"no images: 2 links lead out of it \(--follow-links\)"):
        read_landmarks(city)
    assert read_landmarks(city, follow_links=True).paths == ["hall_1.png", "hall_2.png"]
    (city / "images/hall_1.png").unlink()
    (city / "images/hall_1.png").write_bytes((away / "hall_1.png").read_bytes())
    partly = read_landmarks(city)
    assert list(partly.paths) == ["hall_1.png"]
    assert partly.absent == ["hall_2"]
    for follow, usable in ((False, 1), (True, 2)):
        source = whitening_source(str(city), follow_links=follow)
        assert source is not None
        assert len([one for one in source.find() if one.reason is None]) == usable


@pytest.mark.parametrize("follow", [False, True])
def test_reproduce(data: Path, follow: bool) -> None:
    words = ["--data", "data", "--preset", "small", *(["--follow-links"] if follow else [])]
    asked = flags.read(Reproduce, words, "reproduce uncurated")
    study = STUDIES["uncurated"]
    terms = terms_of_study(asked, study, data / "out", gpu=False, leads=True)
    assert terms.recipe.pixels.follow_links == follow
    figure = flags.read(ReproduceFigure, words, "reproduce fig4")
    drawn = terms_of_figure(FIGURES["fig4"], figure, data / "out", gpu=False, leads=True)
    assert drawn.recipe.pixels.follow_links == follow
    mixed, even = data / "mixed.csv", data / "even.csv"
    write_uncurated(mixed, even, data / "train", data / "train", 0, terms.recipe.pixels)
    assert ("kind0/0000.png" in mixed.read_text() + even.read_text()) == follow


@pytest.mark.parametrize("follow", [False, True])
def test_other_images_are_looked_at_as_the_run_looked_at_its_own(data: Path, follow: bool) -> None:
    settings = {"effective": flat(Run(pixels=Pixels(follow_links=follow)))}
    folder = cast(RunFolder, SimpleNamespace(settings=settings))
    run = ViewedRun(folder, Display(speaks=False), torch.device("cpu"), data / "train")
    assert ("kind0/0000.png" in run.album.names) == follow
    assert len(run.album) == 23 + follow
