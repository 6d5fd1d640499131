"""Every figure of the paper on a run of seconds, and on networks that it trains itself."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import child
import numpy as np
import pytest
from PIL import Image

from deepcluster.figure_command import BY_NAME
from deepcluster.studies.catalogue import FIGURES, STUDIES
from deepcluster.studies.terms import Terms

TINY = "--preset small --epochs 1 --k 4 --input-size 64 --device cpu --workers 1"


@pytest.fixture(scope="module")
def place(textures: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images and a finished run in runs/mine."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(textures(40), folder / "images/train")
    words = "--preset small --epochs 1 --k 4 --batch 16 --network.width 16 --device cpu".split()
    code, output = child.run(["train", "images/train", "--out", "runs/mine", *words], folder)
    assert code == 0, output
    return folder


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


MORE = {
    "fig4": "--steps 2 --count 1",
    "vgg": "--steps 2 --count 3",
    "neighbours": "--count 3",
    "fig5": "--filters 4 0 7",
    "fig3": "--run mine runs/mine",
    "sizes": "--run mine",
    "top100": "--count 12 --images images/train/kind1",
}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_figure_of_a_run_is_a_picture_a_caption_and_data(place: Path, name: str):
    more = MORE.get(name, "")
    run = "" if "--run" in more else "--run mine "
    words = f"reproduce {name} {run}{more} --device cpu --out out-{name}"
    code, output = child.run(words.split(), place)
    assert code == 0, output
    out = place / f"out-{name}"
    data = json.loads((out / "data.json").read_text())
    assert data["figure"] == name
    assert data["command"].startswith(f"deepcluster reproduce {name}")
    assert data["files"]
    assert all((out / file).stat().st_size for file in data["files"])
    caption = (out / "caption.md").read_text()
    assert "In the paper: " in caption
    assert data["caption"] in caption
    with Image.open(out / "figure.png") as figure:
        assert np.ptp(np.asarray(figure.convert("L")).astype(int)) > 100
    assert not (out / "runs").exists()  # nothing was trained


def test_figure_4_pairs_what_filters_want_with_what_they_like(place: Path):
    words = "reproduce fig4 --run mine --steps 2 --count 2 --device cpu --out four"
    code, output = child.run(words.split(), place)
    assert code == 0, output
    ascended = table(place / "four/ascent.csv")
    assert [row["layer"] for row in ascended] == ["conv1"] * 2 + ["conv3"] * 2 + ["conv5"] * 2
    best = table(place / "four/top.csv")
    assert {row["layer"] for row in best} == {"conv1", "conv3", "conv5"}
    liked = [r for r in best if (r["layer"], r["filter"]) == ("conv3", ascended[2]["filter"])]
    assert [int(row["rank"]) for row in liked] == list(range(1, 10))
    assert float(liked[-1]["activation"]) > 0  # a filter that answers
    with Image.open(place / "four/figure.png") as figure:
        assert 2 < figure.width / figure.height < 3


def test_the_figure_shows_the_images_it_names(place: Path):
    """The nine of a filter, three by three, compared with the files themselves."""
    words = "reproduce fig5 --run mine --filters 3 --device cpu --out five"
    code, output = child.run(words.split(), place)
    assert code == 0, output
    named = [row for row in table(place / "five/top.csv") if row["filter"] == "3"]
    with Image.open(place / "five/figure.png") as figure:
        page = np.asarray(figure).astype(float)
    top, left, side, gap = 16 + 20, 16, 64, 2
    for place_of, row in enumerate(named):
        down, across = divmod(place_of, 3)
        y, x = top + down * (side + gap), left + across * (side + gap)
        shown = page[y : y + side, x : x + side]
        with Image.open(place / "images/train" / row["path"]) as original:
            small = np.asarray(original.convert("RGB").resize((side, side), Image.Resampling.BOX))
        assert np.abs(shown - small).mean() < 12, row


def test_a_figure_trains_what_it_shows_and_goes_on(place: Path):
    words = f"reproduce fig5 --data linked --out trained {TINY} --follow-links".split()
    (place / "linked").mkdir()
    (place / "linked/train").mkdir()
    (place / "linked/train/all").symlink_to(place / "images/train")
    code, output = child.run(words, place)
    assert code == 0, output
    data = json.loads((place / "trained/data.json").read_text())
    assert data["runs"] == ["trained/runs/deepcluster"]
    settings = json.loads((place / "trained/runs/deepcluster/settings.json").read_text())
    assert settings["effective"]["clustering.k"] == 4
    before = (place / "trained/figure.png").read_bytes()
    code, output = child.run(words, place)
    assert code == 0, output
    assert "look at it" not in output  # not trained again
    assert (place / "trained/figure.png").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("fig4", ["of which network?", "--run RUN", "--smoke"]),
        ("fig4 --run mine --smoke", ["--run and --smoke do not go together"]),
        ("fig4 --run mine runs/mine", ["fig4 shows one network; --run names 2"]),
        ("fig4 --run yours", ["there is no run yours"]),
        ("fig4 --run mine --epochs 3", ["--epochs is for training on --data"]),
        ("fig4 --run mine --filters 3", ["--filters: fig4 shows three layers"]),
        ("fig5 --run mine --filters 9999", ["--filters 9999: conv5 has filters 0 to 255"]),
        ("fig5 --run mine --images nowhere", ["nowhere"]),
        ("fig5 --data nowhere", ["nowhere"]),
        ("fig5 --data images --preset smal", ["no such preset 'smal'"]),
        ("purity --run mine --wordnet nowhere", ["--wordnet nowhere: there is no such file"]),
        ("neighbours --run mine --count 0", ["--count 0: use at least 1"]),
        ("fig5 --run mine --out images", ["already holds 'train', which is not ours"]),
        ("fig44 --smoke", ["no such study 'fig44'; did you mean fig4?"]),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(
    place: Path, words: str, parts: list[str], tmp_path: Path
):
    out = [] if "--out" in words else ["--out", str(tmp_path / "out")]
    code, output = child.run(["reproduce", *words.split(), *out, "--device", "cpu"], place)
    assert code == 2, output
    assert "Traceback" not in output
    assert len(output.strip().splitlines()) == 1
    for part in parts:
        assert part in output


def test_rows_of_figures_are_those_of_the_paper(terms: Terms):
    rows = {name: [row.run for row in figure.rows(terms)] for name, figure in BY_NAME.items()}
    assert [run.network.front for run in rows["fig3"]] == ["rgb", "sobel"]
    assert [type(run.clustering).__name__ for run in rows["sizes"]] == ["KMeans", "PowerIteration"]
    assert type(rows["neighbours"][0].clustering).__name__ == "PowerIteration"
    assert rows["vgg"][0].network.arch == "vgg16"
    for name in ("fig4", "fig5", "purity", "top100"):
        assert rows[name] == [terms.recipe]
    assert not {*FIGURES} & {*STUDIES}


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_the_smoke_of_a_figure(name: str, tmp_path: Path):
    steps = " --steps 20" if name in ("fig4", "vgg") else ""
    code, output = child.run(f"reproduce {name} --smoke{steps} --device cpu".split(), tmp_path)
    assert code == 0, output
    out = tmp_path / f"reproductions/{name}-smoke"
    assert (out / "caption.md").is_file()
    with Image.open(out / "figure.png") as figure:
        assert np.asarray(figure.convert("L")).std() > 5
