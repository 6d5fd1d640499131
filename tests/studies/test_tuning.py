"""What trials are chosen by and rows are judged on, told by a probe that looks at nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.candidates import Candidate
from deepcluster.evaluation.labelled_images import LabelledImages
from deepcluster.evaluation.linear_probe import LinearProbe
from deepcluster.evaluation.probe_result import ProbeResult, layer_result
from deepcluster.settings import Run
from deepcluster.studies.row_networks import RowNetworks
from deepcluster.studies.study import Row
from deepcluster.studies.terms import Grid, Terms, middle_of
from deepcluster.studies.tuning import Tuning, _choice, _Trial, _tuned_by
from deepcluster.studies.workshop import Workshop
from deepcluster.training.optimizers import Optimization

CHOSEN = Candidate(1.0, 0.0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Where the images are that a probe is to learn from, and those that it is to test on.

    No network is trained: in its place is the step of its run. That is its accuracy on the images
    held out, half of it at the next layer; on the test images, what is missing to 1.
    """
    places: list[tuple[str, str]] = []

    def probed(
        _probe: LinearProbe, step: float, train: LabelledImages, test: LabelledImages, _bench: Bench
    ) -> ProbeResult:
        places.append((train.place, test.place))
        layers = [
            layer_result([CHOSEN], name, 1, 0, [held], [(1, (1 - held, 1.0))], None)
            for name, held in (("conv1", step), ("conv2", step / 2))
        ]
        return ProbeResult(layers, len(train), 0, len(test), {"all": 0.0})

    monkeypatch.setattr(LinearProbe, "__call__", probed)
    monkeypatch.setattr(RowNetworks, "trained", lambda _networks, row, run: {})
    monkeypatch.setattr(
        RowNetworks,
        "subject",
        lambda _networks, row, run: SimpleNamespace(network=run.training.step),
    )
    return places


def test_a_trial_is_chosen_by_images_held_out_whatever_the_test_images_say(
    terms: Terms, asked: list[tuple[str, str]], tmp_path: Path
):
    terms = replace(terms, grid=Grid((0.1, 0.6, 0.3), (1e-3,), (1,)))
    workshop = Workshop(tmp_path / "study", terms, Bench(workers=1))
    row = workshop._settled(Row.tuned("supervised", terms.supervised()), [])
    assert row.run.training.step == 0.6  # by the test images it would be 0.1
    assert row.note.startswith("best of 3 on held-out images (45.0): step 0.6,")  # 60 and 30
    assert row.choices == {"conv1": CHOSEN, "conv2": CHOSEN}
    assert asked == 3 * [(str(terms.data[0].train), str(terms.data[0].test))]


@pytest.mark.parametrize(
    ("steps", "decays", "said"),
    [
        ((0.1, 0.6, 0.3), (1e-3,), " (the largest step of those tried)"),
        ((0.1, 0.6, 0.9), (1e-3, 0.0), " (the largest step and the largest decay of those tried)"),
        ((0.6,), (1e-3, 1e-4, 1e-2), ""),
    ],
)
def test_a_choice_at_the_edge_of_what_was_tried_is_said(
    steps: tuple[float, ...], decays: tuple[float, ...], said: str
):
    tried = [
        replace(Run(), training=Optimization(step=step, weight_decay=decay))
        for step in steps
        for decay in decays
    ]
    trials = [_Trial(run, run.training.step, None) for run in tried]  # the first of equal ones
    note = _tuned_by(Row.tuned("supervised", tuple(tried)), trials).note
    assert note.endswith(f"{_choice(tried[steps.index(max(steps)) * len(decays)])}{said}")


def test_one_thing_is_tuned_after_another(
    terms: Terms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made: list[Run] = []

    def held_out(_tuning: Tuning, trial: Row) -> tuple[float, None]:
        made.append(trial.run)
        training = trial.run.training  # best with 0.1, 5e-3 and 90
        short = abs(training.step - 0.1) + abs(training.weight_decay - 5e-3)
        return trial.run.epochs / 100 - short, None

    monkeypatch.setattr(Tuning, "_held_out", held_out)
    grid = Grid((0.1, 0.02, 0.05), (2e-3, 1e-3, 5e-3), (30, 60, 90))
    workshop = Workshop(tmp_path / "study", replace(terms, grid=grid), Bench(workers=1))
    row = workshop._settled(Row.tuned("supervised", workshop.terms.supervised()), [])
    tried = [(one.training.step, one.training.weight_decay, one.epochs) for one in made]
    assert sorted(tried[:3]) == [(step, 2e-3, 60) for step in (0.02, 0.05, 0.1)]
    assert sorted(tried[3:5]) == [(0.1, decay, 60) for decay in (1e-3, 5e-3)]
    assert sorted(tried[5:]) == [(0.1, 5e-3, epochs) for epochs in (30, 90)]
    assert row.run == replace(made[6], seed=row.run.seed)
    assert row.note.startswith("best of 7 on held-out images (90.0): step 0.1, decay 0.005, 90")
    logged = json.loads((tmp_path / "study" / "trials" / "supervised.json").read_text())
    assert {one["settings"] for one in logged} == {_choice(run) for run in made}
    assert len(logged) == 7


def test_all_trials_of_an_older_study_count(
    terms: Terms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reached = {(0.02, 5e-4): 0.41, (0.05, 5e-4): 0.40, (0.02, 1e-3): 0.30, (0.05, 1e-3): 0.45}

    def held_out(_tuning: Tuning, trial: Row) -> tuple[float, None]:
        return reached[trial.run.training.step, trial.run.training.weight_decay], None

    monkeypatch.setattr(Tuning, "_held_out", held_out)
    grid = Grid((0.02, 0.05), (5e-4, 1e-3), (30,))
    workshop = Workshop(tmp_path / "study", replace(terms, grid=grid), Bench(workers=1))
    row = Row.tuned("supervised", workshop.terms.supervised())
    assert workshop._settled(row, []).note.startswith("best of 3 on held-out images (41.0)")
    for number in range(1, 5):  # when every combination was a trial
        part = tmp_path / "study" / "parts" / f"supervised-trial-{number}-held-out.json"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text("{}")
    assert workshop._settled(row, []).note.startswith("best of 4 on held-out images (45.0)")


@pytest.mark.parametrize(
    ("values", "middle"), [((5,), 5), ((60, 120), 60), ((0.1, 0.02, 0.05), 0.05)]
)
def test_the_middle(values: tuple[float, ...], middle: float):
    assert middle_of(values) == middle
    assert Grid(values, values, (30, 10, 20)).middle == Grid((middle,), (middle,), (20,))


def test_a_row_learns_from_the_training_images_and_is_tested_on_the_others(
    terms: Terms, asked: list[tuple[str, str]], tmp_path: Path
):
    workshop = Workshop(tmp_path / "study", replace(terms, tasks=()), Bench(workers=1))
    (measured,) = workshop.carry_out([Row("random", terms.recipe, trained=False)]).measured
    assert asked == [(str(data.train), str(data.test)) for data in terms.data]
    for data, images, tests in zip(terms.data, (32, 24), (16, 12), strict=True):
        part = measured.judged[data.name]
        assert (part["result"]["trained_on"], part["result"]["tested_on"]) == (images, tests)
        assert part["data"]["train"] != part["data"]["test"]
