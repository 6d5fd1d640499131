from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deepcluster import session
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.labelled_images import opened, split
from deepcluster.evaluation.retrieval import Retrieval
from deepcluster.evaluation.retrieval_result import RetrievalResult
from deepcluster.evaluation.shelf import Shelf
from deepcluster.images.kept import Pixels
from deepcluster.images.packing import pack
from deepcluster.images.source import Folder
from deepcluster.loop import Sitting
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import DataError, ResumeError, UsageError
from deepcluster.studies import mlp, row_networks, stopping, table1
from deepcluster.studies.image_lists import write_kept_part
from deepcluster.studies.outcome import markdown
from deepcluster.studies.row_networks import RowNetworks
from deepcluster.studies.study import Figured, Measured, Row
from deepcluster.studies.tasks import Task
from deepcluster.studies.terms import Data, Grid, Terms
from deepcluster.studies.tuning import Tuning
from deepcluster.studies.workshop import Workshop

# Networks of a minute learn nothing, and say so.
pytestmark = pytest.mark.filterwarnings("ignore::deepcluster.runtime.errors.HealthWarning")


@pytest.fixture
def workshop(terms: Terms, tmp_path: Path) -> Workshop:
    one = replace(terms, data=terms.data[:1], tasks=())
    return Workshop(tmp_path / "study", one, Bench(workers=1))


@pytest.fixture
def elsewhere(workshop: Workshop, tmp_path: Path) -> Workshop:
    """The same with images of its own, which may be changed."""
    data = workshop.terms.data[0]
    own = Data("own", tmp_path / "own/train", tmp_path / "own/val")
    shutil.copytree(data.train, own.train)
    shutil.copytree(data.test, own.test)
    return replace(workshop, terms=replace(workshop.terms, data=(own,)))


def changed(folder: Path) -> Path:
    """Where the images were put that others have taken the place of, those of another class."""
    aside = folder.rename(folder.with_name("aside"))
    shutil.copytree(aside, folder)
    for path, other in zip(
        sorted((folder / "kind0").iterdir()), sorted((folder / "kind1").iterdir()), strict=True
    ):
        shutil.copy(other, path)
    return aside


def again(workshop: Workshop) -> Workshop:
    """The same command in a new process, which looks at the images anew."""
    return replace(workshop, shelf=Shelf())


def times_of_parts(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (out / "parts").iterdir()}


def test_what_is_done_is_not_done_again(workshop: Workshop):
    recipe = workshop.terms.recipe
    rows = [Row("random", recipe, trained=False), Row("trained", recipe, every_seed=True)]
    workshop = replace(workshop, terms=replace(workshop.terms, seeds=(0, 1)))
    results = workshop.carry_out(rows)
    assert [(one.row, one.seed) for one in results.measured] == [
        ("random", 0),
        ("trained", 0),
        ("trained", 1),
    ]
    before = times_of_parts(workshop.out)
    (workshop.out / "parts" / "trained-seed1-linear-first.json").unlink()
    again = workshop.carry_out(rows)
    after = times_of_parts(workshop.out)
    assert [name for name in after if after[name] != before[name]] == [
        "trained-seed1-linear-first.json"
    ]
    for one, other in zip(results.measured, again.measured, strict=True):
        assert one.top1("first") == other.top1("first")
    assert set(results.top1("trained", "first")) == {f"conv{i}" for i in range(1, 6)}
    assert results.top1("trained", "first")["conv3"].seeds == 2
    assert results.top1("not run", "first") == {}


def without(setting: str, parts: Path) -> None:
    """Make parts as a version of the program wrote them that did not have this setting."""
    for path in parts.iterdir():
        part = json.loads(path.read_text())
        del part["settings"][setting]
        path.write_text(json.dumps(part))


def test_a_study_of_an_earlier_version_goes_on_and_lends(workshop: Workshop, tmp_path: Path):
    rows = [
        Row("trained", workshop.terms.recipe),
        Row("random", workshop.terms.recipe, trained=False),
    ]
    results = workshop.carry_out(rows, only=["trained"])
    without("training.fall", workshop.out / "parts")
    before = times_of_parts(workshop.out)
    again = workshop.carry_out(rows, only=["trained"])
    assert again.top1("trained", "first") == results.top1("trained", "first")
    assert workshop.carry_out(rows, only=["random"]).names == ["trained", "random"]
    borrowed = replace(workshop, out=tmp_path / "second", networks_of=(workshop.out,))
    borrowed.carry_out(rows, only=["trained"])
    part = json.loads((borrowed.out / "parts" / "trained-seed0-training.json").read_text())
    assert part["from"] == str(workshop.out / "runs" / "trained-seed0")
    after = times_of_parts(workshop.out)
    assert {name: after[name] for name in before} == before


def test_a_head_whose_step_fell_in_an_earlier_version_is_another(workshop: Workshop):
    recipe = workshop.terms.recipe
    row = Row("falling", replace(recipe, training=replace(recipe.training, schedule="cosine")))
    workshop.carry_out([row])
    without("training.fall", workshop.out / "parts")
    with pytest.raises(ResumeError, match=r"training\.fall: absent there, 1\.0 now"):
        workshop.carry_out([row])


def test_a_part_that_says_nothing_of_its_settings_is_done_anew(workshop: Workshop):
    row = Row("random", workshop.terms.recipe, trained=False)
    results = workshop.carry_out([row])
    part = workshop.out / "parts" / "random-seed0-linear-first.json"
    for broken in ("{}", "[1]", '{"settings": 3}', '{"sett'):
        part.write_text(broken)
        anew = workshop.carry_out([row])
        assert anew.top1("random", "first") == results.top1("random", "first")
        assert json.loads(part.read_text())["settings"]


def test_rows_that_are_done_stay_and_those_that_are_not_are_left(workshop: Workshop):
    recipe = workshop.terms.recipe
    rows = [Row(f"random {number}", recipe, trained=False) for number in range(3)]
    workshop.carry_out(rows, only=["random 2"])
    before = times_of_parts(workshop.out)
    assert [*before] == ["random-2-seed0-linear-first.json"]
    results = workshop.carry_out(rows, only=["random 0"])
    assert results.names == ["random 0", "random 2"]
    assert [one.row for one in results.measured] == results.names
    after = times_of_parts(workshop.out)
    assert {name: after[name] for name in before} == before
    assert len(after) == 2
    probe = replace(workshop.terms.probe, epochs=2)
    other = replace(workshop, terms=replace(workshop.terms, probe=probe))
    assert other.carry_out(rows, only=["random 1"]).names == ["random 1"]


def test_tasks_that_are_done_for_every_row_stay(
    workshop: Workshop, terms: Terms, landmarks: tuple[Task, ...]
):
    oxford, paris = landmarks
    rows = [
        Row(f"random {number}", terms.recipe, trained=False, every_seed=True) for number in range(2)
    ]

    def judging(task: Task, seeds: tuple[int, ...] = (0, 1)) -> Workshop:
        these = replace(workshop.terms, tasks=(task,), seeds=seeds)
        return replace(workshop, terms=these, judge="retrieval")

    first = judging(oxford).carry_out(rows)
    assert judging(oxford).with_done(first, landmarks) == first  # of Paris nothing is done
    before = times_of_parts(workshop.out)
    second = judging(paris)
    results = second.with_done(second.carry_out(rows), landmarks)
    assert {*results.judged_by} == {"Oxford", "Paris"}
    for name in ("random 0", "random 1"):
        assert results.transferred(name, ["Oxford"]) == first.transferred(name, ["Oxford"])
        assert results.transferred(name, ["Paris"])[0].seeds == 2
    after = times_of_parts(workshop.out)
    assert {name: after[name] for name in before} == before
    assert len(after) == 2 * len(before)
    # Nor is it in the table where a row, a seed or the same settings are missing.
    more = judging(paris, (0, 1, 2))
    assert more.with_done(more.carry_out(rows), landmarks).judged_by == ["Paris"]
    other = replace(oxford, protocol=replace(oxford.protocol, size=64))
    assert second.with_done(second.carry_out(rows), [other, paris]).judged_by == ["Paris"]
    (workshop.out / "parts/random-1-seed1-oxford.json").unlink()
    assert second.with_done(second.carry_out(rows), landmarks).judged_by == ["Paris"]
    assert not (workshop.out / "parts/random-1-seed1-oxford.json").exists()
    alone = second.with_done(second.carry_out(rows[:1]), landmarks)
    assert {*alone.judged_by} == {"Oxford", "Paris"}


def test_what_the_first_seed_chose_in_a_task_is_known_where_it_is_done(
    workshop: Workshop, terms: Terms
):
    tasks = [task for task in terms.tasks if task.name.startswith("classification")]
    tasks[0] = replace(tasks[0], protocol=replace(tasks[0].protocol, steps=(0.001, 0.01)))
    rows = [Row("random", terms.recipe, trained=False, every_seed=True)]
    for task in tasks:
        these = replace(workshop.terms, tasks=(task,), seeds=(0, 1))
        place = replace(workshop, terms=these, judge="transfer")
        results = place.with_done(place.carry_out(rows), tasks)
    assert [{*one.judged} for one in results.measured] == [{task.name for task in tasks}] * 2


def test_what_another_study_has_trained_is_taken_from_there(workshop: Workshop, tmp_path: Path):
    recipe = workshop.terms.recipe
    (lent,) = workshop.carry_out([Row("DeepCluster", recipe)]).measured
    second = replace(workshop, out=tmp_path / "second", networks_of=(workshop.out,))
    shorter = replace(recipe, epochs=1)
    rows = [Row("called otherwise", recipe), Row("shorter", shorter)]
    same, other = second.carry_out(rows).measured
    assert same.top1("first") == lent.top1("first")
    assert same.training is not None
    assert same.training["from"] == str(workshop.out / "runs" / "deepcluster-seed0")
    assert same.journal == lent.journal
    assert other.training is not None
    assert "from" not in other.training  # one epoch is not two
    again = replace(second, networks_of=()).carry_out(rows).measured
    assert [one.top1("first") for one in again] == [one.top1("first") for one in (same, other)]
    for name in ("model.safetensors", "journal.jsonl"):
        copies = [
            workshop.out / "runs/deepcluster-seed0",
            second.out / "runs/called-otherwise-seed0",
        ]
        assert len({(copy / name).read_bytes() for copy in copies}) == 1


def test_figures_of_the_same_network_are_taken_from_another_study(
    workshop: Workshop,
    landmarks: tuple[Task, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Tasks judged side by side, each in a folder of its own, are one table in the end."""
    rows = [Row("random", workshop.terms.recipe, trained=False)]

    def judging(name: str, tasks: tuple[Task, ...], *lenders: str) -> Workshop:
        return replace(
            workshop,
            out=tmp_path / name,
            terms=replace(workshop.terms, tasks=tasks),
            judge="retrieval",
            networks_of=tuple(tmp_path / one for one in lenders),
        )

    for task in landmarks:
        judging(task.name, (task,)).carry_out(rows)
    judged: list[Retrieval] = []
    compute = Retrieval.judged

    def counted(self: Retrieval, *args: Any) -> RetrievalResult:
        judged.append(self)
        return compute(self, *args)

    monkeypatch.setattr(Retrieval, "judged", counted)
    both = judging("both", landmarks, *(task.name for task in landmarks))
    (found,) = both.carry_out([replace(rows[0], name="called otherwise")]).measured
    assert not judged
    for task in landmarks:
        name = f"random-seed0-{task.name.lower()}.json"
        part = json.loads((tmp_path / task.name / "parts" / name).read_text())
        assert found.judged[task.name]["figures"] == part["figures"]
    colours = Row("random", workshop.terms.with_front("rgb"), trained=False)
    both.carry_out([colours])  # another network
    assert len(judged) == len(landmarks)


def test_regions_that_another_study_has_found_are_taken_from_there(
    workshop: Workshop, tmp_path: Path
):
    for study, name, said in (
        ("first", "regions-a", "a"),
        ("first", "regions-b", "b"),
        ("second", "regions-b", "own"),
    ):
        (tmp_path / study / "stores" / name).mkdir(parents=True)
        (tmp_path / study / "stores" / name / "block-00000.safetensors").write_text(said)
    (tmp_path / "first/stores/regions-a/lock").touch()
    (tmp_path / "first/stores/train-c").mkdir()
    by_task = replace(
        workshop, out=tmp_path / "second", judge="transfer", networks_of=(tmp_path / "first",)
    )
    by_task.carry_out([])
    found = {
        str(path.relative_to(by_task.out)): path.read_text()
        for path in (by_task.out / "stores").rglob("*")
        if path.is_file()
    }
    assert found == {
        "stores/regions-a/block-00000.safetensors": "a",
        "stores/regions-b/block-00000.safetensors": "own",
    }


def test_lists_of_two_studies_that_name_the_same_images_are_the_same(
    workshop: Workshop, tmp_path: Path
):
    recipe, train = workshop.terms.recipe, workshop.terms.data[0].train
    files = sorted(path for path in train.rglob("*") if path.is_file())
    lists = {name: tmp_path / f"{name}.csv" for name in ("lent", "same", "other")}
    for name, place in lists.items():
        named = files[1:] if name == "other" else files
        place.write_text("path,label\n" + "".join(f"{one},{one.parent.name}\n" for one in named))
    workshop.carry_out([Row("lent", recipe, images=lists["lent"])])
    second = replace(workshop, out=tmp_path / "second", networks_of=(workshop.out,))
    rows = [Row(name, recipe, images=lists[name]) for name in ("same", "other")]
    same, other = second.carry_out(rows).measured
    assert same.training is not None
    assert same.training["from"] == str(workshop.out / "runs" / "lent-seed0")
    assert other.training is not None
    assert "from" not in other.training


def test_parts_made_with_other_settings_are_refused(workshop: Workshop):
    recipe = workshop.terms.recipe
    workshop.carry_out([Row("random", recipe, trained=False)])
    probe = replace(workshop.terms.probe, epochs=2)
    other = replace(workshop, terms=replace(workshop.terms, probe=probe))
    with pytest.raises(ResumeError, match=r"probe.epochs: 1 there, 2 now"):
        other.carry_out([Row("random", recipe, trained=False)])


@pytest.mark.parametrize("part", ["train", "val"])
def test_figures_of_images_that_have_changed_are_not_put_beside_others(
    elsewhere: Workshop, tmp_path: Path, part: str
):
    terms = elsewhere.terms
    rows = [
        Row("random", terms.recipe, trained=False),
        Row("random-rgb", terms.with_front("rgb"), trained=False),
    ]
    before = elsewhere.carry_out(rows[:1])
    aside = changed(tmp_path / "own" / part)
    said = f"the images of .*own/{part} have changed since .*random-seed0-linear-own.json was made"
    with pytest.raises(ResumeError, match=said):
        again(elsewhere).carry_out(rows)
    assert again(elsewhere).carry_out(rows, only=["random-rgb"]).names == ["random-rgb"]
    with pytest.raises(ResumeError, match=said):  # now that there is a store of the new ones, too
        again(elsewhere).carry_out(rows)
    # What an older version has left says nothing of its images.
    place = elsewhere.out / "parts/random-seed0-linear-own.json"
    kept = place.read_text()
    old = json.loads(kept)
    del old["data"]
    place.write_text(json.dumps(old))
    assert again(elsewhere).carry_out(rows).names == ["random", "random-rgb"]
    place.write_text(kept)
    shutil.rmtree(tmp_path / "own" / part)
    shutil.copytree(aside, tmp_path / "own" / part, copy_function=shutil.copyfile)  # other times
    assert again(elsewhere).carry_out(rows[:1]) == before


def test_what_changes_no_image_is_no_change(elsewhere: Workshop, tmp_path: Path):
    """A file that was never usable may go, and another set may differ from this one in such."""
    damaged = tmp_path / "own/train/kind0/damaged.png"
    damaged.write_bytes(b"no picture")
    (own,) = elsewhere.terms.data
    twin = Data("twin", tmp_path / "twin/train", tmp_path / "twin/val")
    for here, there in ((own.train, twin.train), (own.test, twin.test)):
        shutil.copytree(here, there)
    (twin.train / "kind0/damaged.png").unlink()
    two = replace(elsewhere, terms=replace(elsewhere.terms, data=(own, twin)))
    rows = [Row("random", two.terms.recipe, trained=False)]
    before = two.carry_out(rows)
    assert again(two).carry_out(rows) == before
    damaged.unlink()
    assert again(two).carry_out(rows) == before


def test_a_network_whose_images_nobody_knows_is_not_lent(elsewhere: Workshop, tmp_path: Path):
    rows = [Row("trained", replace(elsewhere.terms.recipe, epochs=1))]
    elsewhere.carry_out(rows)
    (elsewhere.out / "runs/trained-seed0/index.parquet").write_bytes(b"nothing")
    second = replace(again(elsewhere), out=tmp_path / "second", networks_of=(elsewhere.out,))
    (own,) = second.carry_out(rows).measured
    assert own.training is not None
    assert "from" not in own.training


def test_networks_of_images_that_have_changed_are_neither_judged_nor_lent(
    elsewhere: Workshop, tmp_path: Path
):
    rows = [Row("trained", replace(elsewhere.terms.recipe, epochs=1))]
    elsewhere.carry_out(rows)
    changed(tmp_path / "own/train")
    (elsewhere.out / "parts/trained-seed0-linear-own.json").unlink()
    with pytest.raises(ResumeError, match=r"have changed since .*trained-seed0-training.json"):
        again(elsewhere).carry_out(rows)
    second = replace(again(elsewhere), out=tmp_path / "second", networks_of=(elsewhere.out,))
    (own,) = second.carry_out(rows).measured
    assert own.training is not None
    assert "from" not in own.training


def test_the_same_images_may_be_named_from_the_root_or_from_here(
    elsewhere: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (data,) = elsewhere.terms.data
    here = Data("own", Path("own/train"), Path("own/val"))
    rows = [Row("trained", replace(elsewhere.terms.recipe, epochs=1))]
    first = replace(elsewhere, terms=replace(elsewhere.terms, data=(here,))).carry_out(rows)
    assert elsewhere.carry_out(rows) == first
    other = replace(elsewhere.terms, data=(replace(data, test=Path("own/train")),))
    with pytest.raises(ResumeError, match="test: own/val there, own/train now"):
        replace(elsewhere, terms=other).carry_out(rows)


def test_test_images_that_are_training_images_are_said_once(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
):
    workshop = replace(workshop, bench=Bench(workers=1, display=Display()))
    workshop.carry_out(
        [Row(f"random {number}", workshop.terms.recipe, trained=False) for number in range(2)]
    )
    said = "first: 16 of 16 test images are training images too (the same files), so that figures"
    assert capsys.readouterr().out.count(said) == 1


def test_images_that_can_judge_nothing_are_refused_before_training(
    workshop: Workshop, textures: Callable[..., Path], tmp_path: Path
):
    terms = workshop.terms
    other = Data("other", textures(24, 3), textures(16, 4))  # a class more to test on
    lone = tmp_path / "lone"
    shutil.copytree(terms.data[0].train, lone)
    for path in sorted((lone / "kind0").iterdir())[1:]:
        path.unlink()
    for data, said in (
        (other, "the classes differ: 'kind3'"),
        (Data("lone", lone, terms.data[0].test), "class 'kind0' has 1 image"),
    ):
        also = replace(workshop, terms=replace(terms, data=(*terms.data, data)))
        with pytest.raises(DataError, match=said):
            also.carry_out([Row("trained", terms.recipe)])
    assert not (workshop.out / "runs").exists()


def test_the_supervised_baseline_is_tuned_on_images_no_trial_has_seen(workshop: Workshop):
    terms = replace(workshop.terms, grid=Grid((1e-9, 0.05), (1e-4,), (2,)))
    workshop = replace(workshop, terms=terms)
    rows = [
        Row.tuned("supervised", terms.supervised()),
        Row.tuned("supervised-rgb", terms.supervised("rgb"), tuned_like="supervised"),
    ]
    results = workshop.carry_out(rows)
    chosen, colours = (row.run for row in results.rows)
    assert colours == replace(chosen, network=replace(chosen.network, front="rgb"))
    assert not list((workshop.out / "parts").glob("supervised-rgb-trial*"))
    assert results.note("supervised-rgb").endswith("as supervised; its probes' too")
    trials = json.loads((workshop.out / "trials" / "supervised.json").read_text())
    assert [trial["settings"] for trial in trials] == [
        "step 1e-09, decay 0.0001, 2 epochs",
        "step 0.05, decay 0.0001, 2 epochs",
    ]
    best = max(trials, key=lambda trial: trial["held_out_top1"])
    assert best["settings"] in results.note("supervised")
    held_out = json.loads((workshop.out / "parts" / "supervised-trial-1-held-out.json").read_text())
    assert "test" not in json.dumps(held_out["held_out"])
    # The network has learnt the labels of the images held out; the trial, which chooses, has not.
    number = 1 + trials.index(best)
    trial = json.loads(
        (workshop.out / "parts" / f"supervised-trial-{number}-held-out.json").read_text()
    )
    for name in ("supervised", "supervised-rgb"):
        part = json.loads((workshop.out / "parts" / f"{name}-seed0-linear-first.json").read_text())
        assert part["settings"]["probe.choices"] == trial["choices"]
        layers = part["result"]["layers"]
        tested = {layer["layer"]: [layer["step"], layer["decay"]] for layer in layers}
        assert tested == trial["choices"]
        assert "classes it had learnt" not in results.note(name)
    with (workshop.out / "trials" / "first-kept.csv").open() as file:
        listed = {row["path"] for row in csv.DictReader(file)}
    trial = json.loads(
        (workshop.out / "parts" / "supervised-trial-1-seed0-training.json").read_text()
    )
    assert trial["settings"]["images"].endswith("first-kept.csv")
    assert len(listed) == 28  # of 32 one of each of the four classes is held out
    assert not list((workshop.out / "runs").glob("supervised-trial*"))
    second = replace(workshop, out=workshop.out.with_name("second"), networks_of=(workshop.out,))
    again = second.carry_out(rows[:1])
    assert again.rows[0].run == chosen
    assert again.of("supervised")[0].top1("first") == results.of("supervised")[0].top1("first")
    assert not list((second.out / "parts").glob("supervised-trial*-training.json"))
    assert (second.out / "trials" / "supervised.json").read_text() == json.dumps(
        trials, indent=2
    ) + "\n"


def test_a_trial_whose_part_is_deleted_is_made_again(workshop: Workshop):
    terms = replace(workshop.terms, grid=Grid((0.02, 0.05), (1e-4,), (1,)))
    tuning = Tuning(replace(workshop, terms=terms)._networks)
    row = Row.tuned("supervised", terms.supervised())
    listed = workshop.out / "trials/first-kept.csv"
    listed.parent.mkdir(parents=True)
    listed.write_text("path,label\n")  # of images that were there once
    settled = tuning.settled(row, [])
    assert len(listed.read_text().splitlines()) == 1 + 28
    (workshop.out / "parts/supervised-trial-1-held-out.json").unlink()
    assert tuning.settled(row, []) == settled
    assert not list((workshop.out / "runs").iterdir())


def test_a_trial_on_images_that_have_changed_chooses_nothing(elsewhere: Workshop, tmp_path: Path):
    terms = replace(elsewhere.terms, grid=Grid((0.02, 0.05), (1e-4,), (1,)))
    tuning = Tuning(replace(elsewhere, terms=terms)._networks)
    row = Row.tuned("supervised", terms.supervised())
    tuning.settled(row, [])
    changed(tmp_path / "own/train")
    tuning = Tuning(replace(again(elsewhere), terms=terms)._networks)
    with pytest.raises(ResumeError, match=r"have changed since .*supervised-trial-1-held-out"):
        tuning.settled(row, [])


def test_a_store_cannot_be_tuned_on_and_is_refused_before_training(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first = workshop.terms.data[0]
    store = tmp_path / "packed"
    pack(Folder(first.train), store, "grey", Pixels(), workers=1)
    terms = replace(
        workshop.terms, data=(replace(first, train=store),), grid=Grid((0.05, 0.1), (1e-3,), (1,))
    )
    rows = [Row("trained", terms.recipe), Row.tuned("supervised", terms.supervised())]
    with pytest.raises(UsageError, match=r"tuning supervised needs a folder .*--no-tune"):
        replace(workshop, terms=terms).carry_out(rows)
    assert not (workshop.out / "runs").exists()
    # A row that takes another's choice makes no trials.
    monkeypatch.setattr(
        Workshop, "_measured", lambda _self, row, seed, first=None: Measured(row.name, seed, {})
    )
    rows = [
        Row("supervised", terms.supervised()[0], adopted={0: tmp_path}),
        Row.tuned("supervised-rgb", terms.supervised("rgb"), tuned_like="supervised"),
    ]
    monkeypatch.setattr(RowNetworks, "refuse_adopted", lambda _self, row: None)
    results = replace(workshop, terms=terms).carry_out(rows)
    assert results.names == ["supervised", "supervised-rgb"]


def test_a_row_that_was_tuned_by_itself_stays_as_it_was(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
):
    terms = replace(workshop.terms, grid=Grid((0.05, 0.1), (1e-3,), (1,)))
    workshop = replace(workshop, terms=terms)
    best = {"supervised": 0.05, "supervised-rgb": 0.1}

    def held_out(_tuning: Tuning, trial: Row) -> tuple[float, None]:
        return float(trial.run.training.step == best[trial.name.split()[0]]), None

    monkeypatch.setattr(Tuning, "_held_out", held_out)
    first = workshop._settled(Row.tuned("supervised", terms.supervised()), [])
    other = Row.tuned("supervised-rgb", terms.supervised("rgb"), tuned_like="supervised")
    assert workshop._settled(other, [first]).run.training.step == 0.05
    part = workshop.out / "parts" / "supervised-rgb-trial-1-held-out.json"
    part.parent.mkdir(parents=True)
    part.write_text("{}")  # the row was trained alone, before the other
    assert workshop._settled(other, [first]).run.training.step == 0.1


def test_what_is_chosen_by_images_it_knows_is_noted_where_it_is(workshop: Workshop, terms: Terms):
    terms = replace(terms, tasks=(), grid=Grid((0.05,), (1e-4,), (1,)))
    workshop = replace(workshop, terms=terms)
    results = workshop.carry_out([Row.tuned("supervised", terms.supervised(), note="a note")])
    said = "its probes on first were chosen by images whose classes it had learnt"
    first, second = (
        section.lines[0].note
        for section in table1.sections(results, terms)
        if section.title.startswith("top-1")
    )
    assert said in first
    assert second == "a note"
    assert results.note("supervised") == first


def test_other_seeds_take_the_choice_that_was_made(workshop: Workshop):
    terms = replace(workshop.terms, grid=Grid((0.02, 0.05), (1e-4,), (1,)))
    row = Row.tuned("supervised", terms.supervised())

    def with_seeds(*seeds: int) -> Workshop:
        return replace(workshop, terms=replace(terms, seeds=seeds))

    (chosen,) = with_seeds(0).carry_out([row]).rows
    before = times_of_parts(workshop.out)
    for seeds in ((1,), (1, 0)):
        results = with_seeds(*seeds).carry_out([row])
        assert results.rows == (chosen,)
        assert [one.seed for one in results.measured] == [1]
    after = times_of_parts(workshop.out)
    assert {name: after[name] for name in before} == before
    # A trial that is missing is made like those that are there.
    (workshop.out / "parts/supervised-trial-1-held-out.json").unlink()
    assert with_seeds(1).carry_out([row]).rows == (chosen,)
    part = json.loads((workshop.out / "parts/supervised-trial-1-held-out.json").read_text())
    assert part["settings"]["seed"] == 0


def test_the_kept_part_is_what_the_probe_learns_from(terms: Terms, tmp_path: Path):
    place = terms.data[0].train
    images = opened(place, 64, "grey", tmp_path / "stores", Bench(workers=1))
    write_kept_part(tmp_path / "kept.csv", place, images, 0.25, seed=3)
    kept, held = split(images, 0.25, seed=3)
    with (tmp_path / "kept.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [Path(row["path"]).relative_to(place).as_posix() for row in rows] == [
        images.images.names[i] for i in kept
    ]
    assert all(Path(row["path"]).parent.name == row["label"] for row in rows)
    assert len(held) == 8


def test_a_growing_run_is_judged_on_its_way_and_never_too_late(workshop: Workshop):
    rows = stopping.rows(workshop.terms)
    assert [row.name for row in rows] == ["0 epochs", "1 epoch", "2 epochs"]
    results = workshop.carry_out(rows)
    assert [len(one.journal) for one in results.measured] == [0, 1, 2]
    first, last = (results.of(name)[0].journal for name in ("1 epoch", "2 epochs"))
    assert first[0] == last[0]  # the same run
    assert [path.name for path in (workshop.out / "runs").iterdir()] == ["growing-seed0"]
    for part in (workshop.out / "parts").glob("1-epoch-*"):
        part.unlink()
    with pytest.raises(ResumeError, match="2 epochs already"):
        workshop.carry_out(rows)


def test_a_station_is_judged_by_its_own_network_however_late(
    workshop: Workshop, terms: Terms, tmp_path: Path
):
    rows = stopping.rows(workshop.terms)
    workshop.carry_out(rows)
    both = replace(workshop, terms=replace(workshop.terms, data=terms.data))
    later = both.carry_out(rows)  # another data set, when the run has gone on to its end
    at_once = replace(both, out=tmp_path / "at once").carry_out(rows)
    for one, other in zip(later.measured, at_once.measured, strict=True):
        for data in ("first", "second"):
            assert one.judged[data]["result"]["layers"] == other.judged[data]["result"]["layers"]
    (workshop.out / "parts/1-epoch-seed0-linear-first.json").unlink()
    assert both.carry_out(rows).top1("1 epoch", "first") == at_once.top1("1 epoch", "first")


def as_an_older_version(out: Path) -> None:
    """Make a study of a growing run as a version left it that kept the last network only."""
    shutil.rmtree(out / "stations")
    for path in (out / "parts").glob("*-linear-*"):
        part = json.loads(path.read_text())
        part.pop("network", None)
        path.write_text(json.dumps(part))
        os.utime(path, times=(0, 0))


def test_a_station_whose_network_was_not_kept_is_refused(workshop: Workshop, terms: Terms):
    rows = stopping.rows(workshop.terms)
    before = workshop.carry_out(rows)
    as_an_older_version(workshop.out)
    after = workshop.carry_out(rows)  # its figures are right
    assert [one.training for one in after.measured] == [one.training for one in before.measured]
    assert after.top1("1 epoch", "first") == before.top1("1 epoch", "first")
    both = replace(workshop, terms=replace(workshop.terms, data=terms.data))
    with pytest.raises(
        ResumeError, match=r"the network of .1 epoch. is not there: .*growing-seed0"
    ):
        both.carry_out(rows)
    # The last one is there, and is kept before the run goes on.
    results = both.carry_out(rows, only=["2 epochs"])
    assert results.names == ["0 epochs", "2 epochs"]
    longer = replace(workshop.terms, recipe=replace(workshop.terms.recipe, epochs=4))
    grown = replace(both, terms=replace(longer, data=terms.data))
    grown.carry_out(stopping.rows(longer), only=["4 epochs"])
    (workshop.out / "parts/2-epochs-seed0-linear-second.json").unlink()
    anew = grown.carry_out(stopping.rows(longer), only=["2 epochs"])
    assert anew.top1("2 epochs", "second") == results.top1("2 epochs", "second")


def test_what_an_older_version_judged_too_late_is_refused(workshop: Workshop):
    rows = stopping.rows(workshop.terms)
    workshop.carry_out(rows)
    as_an_older_version(workshop.out)
    late = workshop.out / "parts/1-epoch-seed0-linear-first.json"
    os.utime(late, times=(2e9, 2e9))
    with pytest.raises(ResumeError, match=r"1-epoch-seed0-linear-first\.json was made by an older"):
        workshop.carry_out(rows)


def test_a_layer_that_diverged_is_said_and_in_the_table(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
):
    steps = replace(workshop.terms.mlp, steps=(1e20, 1e25), epochs=2)
    speaks = replace(workshop.bench, display=Display())
    mlps = replace(workshop, terms=replace(workshop.terms, mlp=steps), bench=speaks, judge="mlp")
    results = mlps.carry_out([Row("random", workshop.terms.recipe, trained=False)])
    said = "fc8: learning diverged with every step tried"
    assert f"    {said}" in capsys.readouterr().out
    text = markdown(mlp.STUDY, results, [], {"command": "reproduce mlp"})
    assert f"- first: {said}; with smaller ones it may not (random, seed 0)" in text.splitlines()


def test_of_how_many_images_figures_are_is_in_the_table(elsewhere: Workshop):
    tests = elsewhere.terms.data[0].test
    broken = sorted(tests.rglob("*.png"))[:2] or sorted(tests.rglob("*.jpg"))[:2]
    for path in broken:
        path.write_bytes(b"no image")
    count = sum(path.is_file() for path in tests.rglob("*"))
    results = elsewhere.carry_out([Row("random", elsewhere.terms.recipe, trained=False)])
    text = markdown(table1.STUDY, results, [], {"command": "reproduce table1"})
    said = f"figures rest on {count - 2} of {count} test images: 2 cannot be used (not an image)"
    assert f"- own: {said} (random, seed 0)" in text.splitlines()


class StoppedError(Exception):
    """Of a run that has gone as far as it is looked at."""


def test_the_row_of_no_epochs_is_the_run_before_its_first_step(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
):
    """Its first filters may be no drawn ones, which are no training either."""
    begun: dict[str, Tensor] = {}

    def stopped(sitting: Sitting) -> None:
        begun.update(sitting.course.network.trunk.state_dict())
        raise StoppedError

    monkeypatch.setattr(session, "alternate", stopped)
    terms = workshop.terms
    network = replace(terms.recipe.network, patches=1)
    terms = replace(terms, recipe=replace(terms.recipe, network=network))
    networks = RowNetworks(workshop._parts, terms, "linear")
    first, second, *_ = stopping.rows(terms)
    with pytest.raises(StoppedError):
        networks.trained(second, second.run)
    judged = networks.subject(first, first.run).network
    monkeypatch.delattr(row_networks, "network_begun")  # it is looked for once
    again = networks.subject(first, first.run).network
    for parameter in judged.parameters():
        parameter.data.zero_()  # whatever the first judge has taught its own
    found = again.trunk.state_dict()
    assert found.keys() == begun.keys()
    assert all(torch.equal(found[name], begun[name]) for name in found)
    drawn = networks.subject(replace(first, begun=False), first.run).network.trunk.state_dict()
    assert not all(torch.equal(drawn[name], begun[name]) for name in drawn)
    assert networks.settings(first, first.run)["network.patches"] == 1


def test_drawn_beside_a_recipe_of_patches_is_noted(terms: Terms, tmp_path: Path):
    network = replace(terms.recipe.network, patches=2)
    terms = replace(terms, recipe=replace(terms.recipe, network=network), tasks=())
    terms = replace(terms, data=terms.data[:1])
    rows = [row for row in table1.rows(terms) if row.name == "random"]
    results = Workshop(tmp_path / "study", terms, Bench(workers=1)).carry_out(rows)
    assert results.note("random").startswith("its filters are drawn; the recipe begins with")


def test_figures_over_seeds():
    values = [1.0, 2.0, 4.0]
    figured = Figured.of(values)
    assert figured.mean == pytest.approx(np.mean(values))
    assert figured.spread == pytest.approx(np.std(values, ddof=1))
    assert Figured.of([3.0]) == Figured(3.0, None, 1)
