"""Rows that were trained before: which runs may be taken, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deepcluster.clusters import PowerIteration
from deepcluster.evaluation.bench import Bench
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import DataError, ResumeError, UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.world import World
from deepcluster.session import Asked, train
from deepcluster.settings import Run, flat, restored
from deepcluster.studies import table1
from deepcluster.studies.adoption import ADOPT, BESIDE, adopted, main_of, with_adopted
from deepcluster.studies.study import Row
from deepcluster.studies.terms import Data, Terms
from deepcluster.studies.workshop import Workshop
from deepcluster.training.optimizers import Optimization

pytestmark = pytest.mark.filterwarnings("ignore::deepcluster.runtime.errors.HealthWarning")


@pytest.fixture(scope="module")
def trained(
    two_sets: tuple[Data, Data], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Run, str], Path]:
    """Trains a run on the first data set, unless it was trained."""
    folder = tmp_path_factory.mktemp("runs")

    def made(run: Run, name: str) -> Path:
        out = folder / name
        if not (out / "closing.json").exists():
            asked = Asked(two_sets[0].train, lambda count, gpu: (run, []), out=out)
            train(asked, World(), Display(speaks=False))
        return out

    return made


@pytest.fixture
def ours(terms: Terms, trained: Callable[[Run, str], Path]) -> list[Path]:
    """The recipe's run with two seeds, with other settings than the study would choose."""
    recipe = replace(terms.recipe, epochs=1, training=replace(terms.recipe.training, step=0.02))
    return [trained(replace(recipe, seed=seed), f"ours-{seed}") for seed in (3, 5)]


@pytest.fixture
def of_labels(terms: Terms, trained: Callable[[Run, str], Path]) -> Path:
    return trained(replace(terms.supervised()[0], epochs=1), "of-labels")


def test_a_run_whose_fresh_head_fell_in_an_earlier_version_is_not_taken_for_one_of_now():
    falling = Run(training=Optimization(schedule="cosine"))
    described = flat(falling)
    assert restored(described) == falling
    del described["training.fall"]
    with pytest.raises(KeyError, match=r"training\.fall"):
        restored(described)
    kept = flat(replace(falling, training=Optimization(schedule="cosine", head="matched")))
    del kept["training.fall"]
    assert restored(kept).training.fall == 1


@pytest.mark.parametrize("run", [Run(), Run(seed=3, clustering=PowerIteration(sigma="auto"))])
def test_settings_come_back_from_their_description(run: Run):
    described = json.loads(json.dumps(flat(run)))
    assert restored(described) == run
    del described["training.step"]  # of a version that had no such setting
    assert restored(described) == run
    with pytest.raises(KeyError, match="no such thing"):
        restored({**described, "no such thing": 1})


def test_runs_are_judged_and_left_as_they_are(terms: Terms, ours: list[Path], tmp_path: Path):
    before = {
        path: path.stat().st_mtime_ns for run in ours for path in run.rglob("*") if path.is_file()
    }
    found = adopted(ADOPT, [f"DeepCluster={run}" for run in ours])
    main = main_of(table1.rows(terms), terms, found)
    assert main is not None
    assert tuple(main.folders) == (3, 5)
    (row,) = (r for r in with_adopted(table1.rows(terms), found, {}) if r.name == "DeepCluster")
    assert "training.step 0.02" in row.note
    one = replace(terms, data=terms.data[:1], tasks=())
    workshop = Workshop(tmp_path / "study", one, Bench(workers=1))
    results = workshop.carry_out([row])
    assert [measured.seed for measured in results.measured] == [3, 5]
    for measured, run in zip(results.measured, ours, strict=True):
        assert measured.journal == RunFolder(run).journal()
        assert measured.training is not None
        assert measured.training["from"] == str(run)
    seeds = [measured.top1("first") for measured in results.measured]
    assert not (tmp_path / "study/runs").exists()
    assert before == {path: path.stat().st_mtime_ns for path in before}
    again = workshop.carry_out([row])
    assert [measured.top1("first") for measured in again.measured] == seeds


def test_a_network_that_has_changed_is_not_taken_for_the_one_that_was_judged(
    terms: Terms, ours: list[Path], of_labels: Path, tmp_path: Path
):
    one = replace(terms, data=terms.data[:1], tasks=())
    workshop = Workshop(tmp_path / "study", one, Bench(workers=1))
    run = restored(dict(RunFolder(ours[0]).settings["effective"]))
    workshop.carry_out([Row("ours", run, adopted={3: ours[0]})])
    with pytest.raises(ResumeError, match="adopted: "):
        workshop.carry_out([Row("ours", run, adopted={3: ours[1]})])


def test_the_other_front_is_trained_as_the_adopted_supervised_run(terms: Terms, of_labels: Path):
    rows = with_adopted(table1.rows(terms), adopted(ADOPT, [f"supervised={of_labels}"]), {})
    by_name = {row.name: row for row in rows}
    assert by_name["supervised"].candidates == ()
    workshop = Workshop(Path("never-used"), terms, Bench(workers=1))
    several = replace(by_name["supervised-rgb"], candidates=(terms.recipe, terms.recipe))
    settled = workshop._settled(several, [by_name["supervised"]])
    assert settled.run.training == by_name["supervised"].run.training
    assert settled.run.network.front == "rgb"
    assert "as supervised" in settled.note
    assert "probes" not in settled.note  # of an adopted run nobody has chosen them


def test_a_run_of_other_images_is_refused(
    terms: Terms, ours: list[Path], textures: Callable[..., Path], tmp_path: Path
):
    elsewhere = replace(terms, data=(Data("else", textures(24), textures(8)),), tasks=())
    workshop = Workshop(tmp_path / "study", elsewhere, Bench(workers=1))
    run = restored(dict(RunFolder(ours[0]).settings["effective"]))
    with pytest.raises(DataError, match="was trained on other images"):
        workshop.carry_out([Row("ours", run, adopted={3: ours[0]})])


def test_what_cannot_be_adopted_is_one_sentence(
    terms: Terms, ours: list[Path], of_labels: Path, trained: Callable[[Run, str], Path]
):
    rows = table1.rows(terms)
    longer = trained(replace(terms.recipe, seed=7), "longer")
    for words, said in (
        ([f"{ours[0]}"], "say which row and which run"),
        (["DeepCluster=nowhere"], "there is no run nowhere"),
        ([f"DeepCluster={ours[0]}", f"DeepCluster={ours[0]}"], "it has seed 3, and so has"),
        ([f"DeepCluster={ours[0]}", f"DeepCluster={longer}"], "epochs 2, training.step"),
        ([f"DeepClutser={ours[0]}"], "did you mean 'DeepCluster'"),
        ([f"random={ours[0]}"], "random is not trained"),
        ([f"supervised={ours[0]}"], "trained on clusters, and that row folders"),
        ([f"DeepCluster={of_labels}"], "trained on folders, and that row clusters"),
        ([f"RGB={ours[0]}"], "sees sobel, and that row rgb"),
        ([f"PIC={ours[0]}"], "grouped by KMeans, and that row PowerIteration"),
    ):
        with pytest.raises(UsageError, match=said):
            with_adopted(rows, adopted(ADOPT, words), {})
    with pytest.raises(UsageError, match="the study has a row of that name"):
        with_adopted(rows, {}, adopted(BESIDE, [f"PIC={ours[0]}"]))
    for names, said in (
        (["deepcluster"], "the same as 'DeepCluster'; call it otherwise"),
        (["an hour", "an-hour"], "the same as 'an hour'; call it otherwise"),
        (["-"], "a name with letters or digits"),
    ):
        with pytest.raises(UsageError, match=said):
            with_adopted(rows, {}, adopted(BESIDE, [f"{name}={longer}" for name in names]))
    more = with_adopted(rows, {}, adopted(BESIDE, [f"longer={longer}"]))
    assert [row.name for row in more] == [*(row.name for row in rows), "longer"]
