"""Every study on terms of seconds: its rows, its table, its data and its figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from PIL import Image

from deepcluster.clusters import PowerIteration
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.transfer import UNKNOWN
from deepcluster.evaluation.voc_classification import VOCClassification
from deepcluster.presets import paper_pic
from deepcluster.reproduce_command import BY_NAME
from deepcluster.runtime.errors import DataError
from deepcluster.settings import Run
from deepcluster.studies import (
    classif,
    depth,
    mlp,
    paper,
    pic,
    reassign,
    table1,
    table2,
    table3,
    table4,
    table5,
    uncurated,
)
from deepcluster.studies.drawing import accuracy_by_layer, bars_of_first_data
from deepcluster.studies.outcome import markdown, write
from deepcluster.studies.paper import TABLE1
from deepcluster.studies.smoke import smoke_terms
from deepcluster.studies.study import Figured, Line, Measured, Results, Row
from deepcluster.studies.tasks import Task, landmark_tasks, validation_task, voc_tasks
from deepcluster.studies.terms import Data, Terms
from deepcluster.studies.workshop import Workshop

# Networks of seconds learn nothing, and say so.
pytestmark = pytest.mark.filterwarnings("ignore::deepcluster.runtime.errors.HealthWarning")

QUICK = {"stopping"}
QUICK_VOC = VOCClassification(epochs=1, batch=16, steps=(0.01,), decays=(0.0,), hidden=8)
DEEP = {"depth", "table4", "table5"}  # with VGG-16, so on fewer images and tasks


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in BY_NAME]
)
def test_a_study_leaves_table_data_and_figure(
    name: str,
    terms: Terms,
    landmarks: tuple[Task, ...],
    devkit: Path,
    textures: Callable[..., Path],
    tmp_path: Path,
):
    study = BY_NAME[name]
    if name in DEEP:
        tasks = {task.name: task for task in terms.tasks}
        terms = replace(
            terms,
            data=(Data("few", textures(12), textures(8)),),
            images=12,
            recipe=replace(terms.recipe, epochs=1),
            tasks=(tasks["detection all"], tasks["segmentation fc6-8"]),
        )
    if study.judge == "retrieval":
        terms = replace(terms, tasks=landmarks)
    elif study.judge != "transfer":
        terms = replace(terms, tasks=(validation_task(devkit, QUICK_VOC),) * study.takes_voc)
    if study.ten_crops:
        terms = replace(terms, probe=replace(terms.probe, ten_crops=True))
    study.refuse(terms)
    study.prepare(terms)
    out = tmp_path / "study"
    rows = study.rows(terms)
    if name in ("classif", "pic"):  # power iteration makes one group of so few; variants has it
        rows = [row for row in rows if "PIC" not in row.name]
    results = Workshop(out, terms, Bench(workers=1), study.judge).carry_out(rows)
    sections = study.sections(results, terms)
    write(out, study, terms, results, sections, "the command")

    data = json.loads((out / "data.json").read_text())
    assert list(data["rows"]) == [row.name for row in rows]
    assert data["command"] == "the command"
    assert data["seeds"] == [0]
    assert len(data["measured"]) == len(rows)
    assert data["versions"]["torch"]
    table = (out / "table.md").read_text()
    assert "| | paper | ours | note |" in table
    for section in sections:
        assert section.lines
        assert section.title in table
        for line in section.lines:
            assert len(line.ours) == len(section.columns)
    if study.takes_voc:
        assert all("VOC 2007 val" in one["judged"] for one in data["measured"])
        assert "VOC 2007 val" in table
    with Image.open(out / "figure.png") as figure:
        assert np.asarray(figure.convert("L")).std() > 5  # something is drawn


def test_of_a_recipe_whose_step_falls_late_every_row_can_be_trained(terms: Terms):
    late = replace(terms.recipe.training, schedule="cosine", fall=0.3)
    falling = replace(terms, recipe=replace(terms.recipe, training=late))
    uncurated.prepare(falling)
    for study in BY_NAME.values():
        for row in study.rows(falling):
            row.run.validate(10_000)
            labels = row.run.labels == "folders"
            assert not (labels and row.run.training.fall != 1), (study.name, row.name)


def test_rows_differ_in_what_is_studied_alone(terms: Terms):
    uncurated.prepare(terms)
    by_name = {
        name: {row.name: row.run for row in study.rows(terms) if row.trained}
        for name, study in BY_NAME.items()
    }
    recipe = terms.recipe
    draws = by_name["draw"]
    assert {name: run.draw.kind for name, run in draws.items()} == {
        "uniform": "uniform",
        "natural": "natural",
        "weighted": "weighted",
    }
    assert all(replace(run, draw=recipe.draw) == recipe for run in draws.values())
    seen = recipe.epochs * recipe.draw.reassign
    for run in by_name["reassign"].values():
        assert run.epochs * run.draw.reassign == pytest.approx(seen)
    assert len(by_name["reassign"]) < len(reassign.PASSES)  # never longer than the recipe
    assert by_name["dimensions"]["no PCA"].whitening.kind == "none"
    assert by_name["depth"]["VGG-16"].network.arch == "vgg16"
    listed = len(terms.uncurated.read_text().splitlines()) - 1
    assert 0 < listed < terms.images
    assert replace(terms, lists=terms.lists / "none").on_fewer(terms.lists / "none") == recipe
    few = by_name["variants"]["uncurated"]
    assert few.draw.reassign * listed == pytest.approx(recipe.draw.reassign * terms.images)
    assert replace(few, draw=recipe.draw) == recipe
    for name in ("uncurated", "table3", "classif"):
        runs = [run for run in by_name[name].values() if run.labels == "clusters"]
        assert {run.draw for run in runs} == {few.draw}
    assert [row.images for row in classif.rows(terms)][:4] == [terms.curated] * 2 + [
        terms.uncurated
    ] * 2
    ks = [run.clustering.k for run in by_name["fig2"].values()]  # type: ignore[union-attr]
    assert len({*ks}) == len(ks) >= 3
    supervised = by_name["table1"]["supervised"]
    assert supervised.labels == "folders"
    assert supervised.network == recipe.network
    plain = by_name["table1"]["paper values"]
    assert plain == replace(
        Run(),
        epochs=recipe.epochs,
        clustering=recipe.clustering,
        speed=recipe.speed,
        network=replace(Run().network, input_size=64, width=16),
    )
    timed = replace(terms, recipe=replace(recipe, minutes=4.0))
    assert timed.paper_values() == replace(plain, epochs=500, minutes=4.0)


def test_shares_of_the_gap_are_those_of_the_paper(terms: Terms):
    """Fed the paper's own figures as ours, the table must print its shares on both sides."""

    def measured(name: str, theirs: str) -> Measured:
        judged = {}
        for place, data in enumerate(terms.data):
            layers = [
                {"layer": f"conv{i}", "top1": (value or 0) / 100, "ten_crops_top1": None}
                for i, value in enumerate(TABLE1[theirs][place], 1)
            ]
            judged[data.name] = {"result": {"layers": layers, "tested_on": 50_000}}
        return Measured(name, 0, judged)

    names = {"random": "random", "supervised": "ImageNet labels", "DeepCluster": "DeepCluster"}
    rows = [row for row in table1.rows(terms) if row.name in names]
    results = Results(tuple(rows), tuple(measured(*pair) for pair in names.items()))
    shares = [s for s in table1.sections(results, terms) if s.title.startswith("share")]
    for section in shares:
        ours = [value.mean for value in section.lines[0].ours]  # type: ignore[union-attr]
        assert ours == pytest.approx(section.lines[0].paper)
    assert [round(value) for value in shares[0].lines[0].paper] == [17, 63, 78, 73, 60]  # type: ignore[arg-type]


def test_the_best_layer_is_the_best_on_held_out_images():
    layers = [
        {"layer": "conv1", "top1": 0.3, "held_out_top1": 0.5},
        {"layer": "conv2", "top1": 0.4, "held_out_top1": 0.4},
    ]
    assert Measured("one", 0, {"first": {"result": {"layers": layers}}}).best_layer("first") == 30


def test_where_passes_do_not_divide_clusterings_are_whole(terms: Terms):
    odd = replace(terms.recipe, epochs=7, draw=replace(terms.recipe.draw, reassign=2.0))
    rows = reassign.rows(replace(terms, recipe=odd))
    assert [row.run.epochs for row in rows] == [28, 14, 7, 4, 2]
    assert {row.run.epochs * row.run.draw.reassign for row in rows} == {14}
    assert [row.name for row in rows][2:] == [
        "every 2 passes",
        "every 3.5 passes",
        "every 7 passes",
    ]


def test_power_iteration_says_where_its_sigma_is_not_the_papers(terms: Terms):
    def of(run: Run) -> Row:
        rows = table1.rows(replace(terms, recipe=run))
        return next(row for row in rows if row.name == "PIC")

    said = of(terms.recipe)
    assert said.run.clustering == PowerIteration(sigma="auto")
    assert said.note == "sigma is the median distance to the 5th neighbour (paper: 0.2)"
    own = of(paper_pic())
    assert own.run.clustering == PowerIteration(sigma=0.2)
    assert own.note == ""


def test_a_bar_in_a_figure_is_a_spread_that_is_known(terms: Terms):
    judged = [
        {
            "first": {
                "result": {
                    "layers": [
                        {
                            "layer": "conv1",
                            "top1": share,
                            "held_out_top1": share,
                            "ten_crops_top1": 0.9,
                        }
                    ]
                }
            }
        }
        for share in (0.2, 0.3, 0.4)
    ]
    rows = (Row("one", terms.recipe), Row("two", terms.recipe))
    measured = (
        Measured("one", 0, judged[0]),
        Measured("two", 0, judged[1]),
        Measured("two", 1, judged[2]),
    )
    results, first = Results(rows, measured), replace(terms, data=terms.data[:1])
    for ten_crops, means in ((False, [20, 35]), (True, [90, 90])):
        figure = Figure()
        accuracy_by_layer(figure, results, first, ten_crops=ten_crops)
        drawn = figure.axes[0].containers
        assert [one.lines[0].get_ydata() for one in drawn] == pytest.approx(means)  # type: ignore[attr-defined]
        assert [one.has_yerr for one in drawn] == [False, True]  # type: ignore[attr-defined]
        assert ("10 crops" in figure.axes[0].get_title()) is ten_crops
    figure = Figure()
    bars_of_first_data(figure, results, first)
    (bars,) = (one for one in figure.axes[0].containers if isinstance(one, ErrorbarContainer))
    ends = [one[:, 1] for one in bars.lines[2][0].get_segments() if len(one)]
    assert [float(np.ptp(one)) for one in ends] == pytest.approx([2 * 10 / 2**0.5])


def test_the_papers_figures_on_places_stand_beside_ours_on_the_second_data(terms: Terms):
    judged = {
        data.name: {"result": {"layers": [{"layer": "conv1", "top1": 0.2, "held_out_top1": 0.2}]}}
        for data in terms.data
    }
    results = Results((Row("curated", terms.recipe),), (Measured("curated", 0, judged),))
    theirs = [section.lines[0].paper for section in uncurated.sections(results, terms)]
    assert theirs == [
        "13.4 / 32.3 / 41.0 / 39.6 / 38.2 (ImageNet, 10 crops)",
        "19.6 / 33.2 / 39.2 / 39.8 / 34.7 (Places, 10 crops)",
    ]


def test_shares_have_a_spread_and_the_ends_of_their_own_front(terms: Terms):
    first = replace(terms, data=terms.data[:1])
    reached = {
        "random": (10.0, 14.0),
        "supervised": (52.0,),
        "DeepCluster": (32.0, 37.0),
        "RGB": (30.0,),
        "random-rgb": (20.0,),
        "supervised-rgb": (40.0,),
    }
    rows = [row for row in table1.rows(first) if row.name in reached]
    measured = [
        Measured(
            name,
            seed,
            {
                "first": {
                    "result": {"layers": [{"layer": "conv1", "top1": value / 100}], "tested_on": 80}
                }
            },
        )
        for name, values in reached.items()
        for seed, value in enumerate(values)
    ]

    def lines(rows: list[Row]) -> dict[str, Line]:
        results = Results(tuple(rows), tuple(measured))
        (share,) = (s for s in table1.sections(results, first) if s.title.startswith("share"))
        return {line.name: line for line in share.lines}

    both = lines(rows)
    (ours,) = both["DeepCluster"].ours
    assert isinstance(ours, Figured)
    assert (ours.mean, ours.seeds) == (pytest.approx(56.25), 2)  # 50 and 62.5 of a gap of 40
    assert ours.spread == pytest.approx(12.5 / 2**0.5)
    assert both["RGB"].note == "between random-rgb and supervised-rgb"
    assert both["RGB"].ours[0].mean == pytest.approx(50)  # type: ignore[union-attr]
    alone = lines([row for row in rows if row.name != "supervised-rgb"])
    assert alone["RGB"].note == "no random and supervised with its front"
    assert alone["RGB"].ours == [None]
    assert alone["DeepCluster"] == both["DeepCluster"]
    colours = lines([row for row in rows if row.name not in ("random", "supervised")])
    assert colours["RGB"] == both["RGB"]
    assert colours["DeepCluster"].ours == [None]


@pytest.mark.parametrize(
    ("tested_on", "supervised", "share"),
    [(80, 21.25, None), (80, 27.5, None), (80, 30.0, 70), (5000, 22.6, 269), (5000, 20.9, None)],
)
def test_no_share_of_a_gap_that_may_be_chance(
    tested_on: int, supervised: float, share: int | None, terms: Terms
):
    """Of table 1 and of mlp; one image of 80 is 1.25 points."""
    first = replace(terms, data=terms.data[:1])
    reached = {"random": 20.0, "DeepCluster": 27.0}

    def shared(study: Any, best: str) -> float | None:
        figures = {**reached, best: supervised}
        rows = [row for row in study.rows(first) if row.name in figures]
        measured = []
        for name, value in figures.items():
            layers = [{"layer": "fc8", "top1": value / 100, "held_out_top1": 0.5}]
            judged = {"first": {"result": {"layers": layers, "tested_on": tested_on}}}
            measured.append(Measured(name, 0, judged))
        sections = study.sections(Results(tuple(rows), tuple(measured)), first)
        (section,) = (one for one in sections if one.title.startswith("share"))
        (ours,) = section.lines[0].ours
        return ours.mean if isinstance(ours, Figured) else ours

    for study, best in ((table1, "supervised"), (mlp, "supervised Sobel")):
        found = shared(study, best)
        assert (found if found is None else round(found)) == share


def test_vgg_has_few_images_in_a_smoke(tmp_path: Path):
    assert depth.STUDY.is_deep
    terms = smoke_terms(tmp_path, (0,), ten_crops=False, deep=True)
    for data in terms.data:
        for place in (data.train, data.test):
            assert 0 < len(list(place.rglob("*.png"))) <= 60


def test_a_table_names_every_circumstance_its_parts_came_about_in(terms: Terms):
    def made(device: str) -> dict[str, Any]:
        return {"commit": f"of {device}", "versions": {"torch": "2"}, "device": device}

    def measured(name: str, seed: int, trained: str, judged: str) -> Measured:
        return Measured(name, seed, {"first": {"made": made(judged)}}, {"made": made(trained)})

    rows = (Row("own", terms.recipe), Row("before", terms.recipe, adopted={0: Path("there")}))
    found = (
        measured("own", 0, "GPU", "CPU"),
        measured("own", 1, "GPU", "GPU"),
        measured("before", 0, "reader", "GPU"),
    )
    text = markdown(table1.STUDY, Results(rows, found), [], {"command": "the command"})
    assert "Commit of GPU, torch 2, GPU; Commit of CPU, torch 2, CPU; seeds" in text
    assert "seeds 0, 1 (own); 0 (before)." in text
    assert "reader" not in text


def test_a_table_names_where_stages_came_about_and_not_where_they_were_put_down(terms: Terms):
    here = {"commit": "here", "versions": {"torch": "2"}, "device": "GPU"}
    part = {"made": here, "stages_made": [{**here, "commit": "lender"}, UNKNOWN]}
    found = (Measured("random", 0, {"a task": part}),)
    results = Results((Row("random", terms.recipe, trained=False),), found)
    text = markdown(table1.STUDY, results, [], {"command": "the command"})
    assert "Commit lender, torch 2, GPU; Commit unknown, unknown device; seeds 0." in text
    assert "Commit here" not in text


PARTS = ("fc6-8", "all")


def fed_with(printed: Mapping[str, paper.Tasks], rows: list[Row], terms: Terms) -> Results:
    """Results in which every row has reached what the paper prints, or nothing."""

    def measured(name: str) -> Measured:
        theirs = printed.get(name, {})
        shares = {task.name: (theirs.get(task.name) or 0) / 100 for task in terms.tasks}
        judged = {
            task: {"figures": {"eleven_point": share, "plain": share}}
            for task, share in shares.items()
        }
        return Measured(name, 0, judged)

    return Results(tuple(rows), tuple(measured(row.name) for row in rows))


def test_table4_is_the_papers_where_ours_is(terms: Terms):
    rows = table4.rows(terms)
    assert {row.run.network.arch for row in rows if "VGG-16" in row.name} == {"vgg16"}
    main, _, share, _ = table4.sections(fed_with(table4.PRINTED, rows, terms), terms)
    place = main.columns.index("detection all")
    reached = {line.name: line.ours[place].mean for line in main.lines}  # type: ignore[union-attr]
    assert reached == pytest.approx(
        {name: printed["detection all"] for name, printed in table4.PRINTED.items()}
    )
    shallow, deep = share.lines
    assert shallow.ours[place] == pytest.approx(100 * (55.4 - 47.8) / (56.8 - 47.8))
    assert deep.ours[place] == pytest.approx(100 * (65.9 - 39.7) / (67.3 - 39.7))
    assert deep.paper[place] == pytest.approx(deep.ours[place])


def test_table5_is_the_papers_where_ours_is(terms: Terms, landmarks: tuple[Task, ...]):
    terms = replace(terms, tasks=landmarks)
    rows = table5.rows(terms)
    colours = next(row for row in rows if row.name == "supervised RGB VGG-16")
    assert colours.run.network.front == "rgb"
    main, share, filters = table5.sections(fed_with(table5.PRINTED, rows, terms), terms)
    assert list(main.columns) == ["Oxford", "Paris"]
    deep = next(line for line in share.lines if line.name == "DeepCluster VGG-16")
    wanted = [100 * (61.0 - 6.9) / (72.4 - 6.9), 100 * (72.0 - 22.0) / (81.5 - 22.0)]
    assert deep.ours == pytest.approx(wanted)
    assert deep.paper == pytest.approx(wanted)
    (line,) = filters.lines
    assert line.ours[0] == pytest.approx(5.5)
    assert line.paper == (5.5, None)


def test_whitening_is_learnt_on_the_other_city(tmp_path: Path):
    cities = {"Oxford": tmp_path / "o", "Paris": tmp_path / "p"}

    def whitening(*arguments: Any) -> list[str | None]:
        return [task.with_seed(3).whiten_on for task in landmark_tasks(*arguments)]  # type: ignore[attr-defined]

    assert whitening(cities) == [str(tmp_path / "p"), str(tmp_path / "o")]
    assert whitening(cities, "photos") == ["photos", "photos"]
    assert whitening({"Oxford": tmp_path / "o"}, "none") == ["none"]


def test_the_figure_of_a_revisited_ground_truth_is_that_of_medium(tmp_path: Path):
    (task,) = landmark_tasks({"Oxford": tmp_path}, "none")
    levels = {"easy": {"map": 0.5}, "medium": {"map": 0.4}, "hard": {"queries": 0}}
    figures = task.figures({"levels": levels})
    assert list(figures.items()) == [("medium", 0.4), ("easy", 0.5)]
    with pytest.raises(DataError, match="no query has an image"):
        task.figures({"levels": {"all": {"queries": 0}}})


def test_the_share_of_mlp_is_the_papers(terms: Terms):
    uncurated.prepare(terms)
    rows = mlp.rows(terms)

    def measured(name: str) -> Measured:
        layers = [{"layer": "fc8", "top1": mlp.PRINTED[name] / 100, "held_out_top1": 0.5}]
        result = {"layers": layers, "tested_on": 50_000}
        return Measured(name, 0, {data.name: {"result": result} for data in terms.data})

    results = Results(tuple(rows), tuple(measured(row.name) for row in rows))
    main, share = mlp.sections(results, terms)
    assert {line.name: line.ours[0].mean for line in main.lines} == pytest.approx(mlp.PRINTED)  # type: ignore[union-attr]
    wanted = 100 * (44.0 - 12.0) / (57.8 - 12.0)
    assert share.lines[0].ours == pytest.approx([wanted, wanted])
    assert share.lines[0].paper == pytest.approx((wanted,))
    alone = replace(terms, data=terms.data[:1])
    assert "DeepCluster, uncurated" not in [row.name for row in mlp.rows(alone)]


def test_table2_is_the_papers_where_ours_is(terms: Terms):
    """Fed the paper's own figures as ours, the table must print them, and its share, twice."""

    results = fed_with(table2.PRINTED, table2.rows(terms), terms)
    main, plain, share, plain_share = table2.sections(results, terms)
    tasks = ("classification", "detection", "segmentation")
    columns = [f"{task} {part}" for task in tasks for part in PARTS]
    assert list(main.columns) == columns
    for section in (main, plain):
        for line in section.lines:
            printed = [value or 0.0 for value in line.paper]  # not every cell has a figure
            assert [found.mean for found in line.ours] == pytest.approx(printed)  # type: ignore[union-attr]
    (line,) = share.lines
    both = [pair for pair in zip(line.ours, line.paper, strict=True) if pair[1] is not None]
    assert len(both) == 4
    assert [ours for ours, _ in both] == pytest.approx([paper for _, paper in both])
    assert line.ours[0] == pytest.approx(100 * (70.4 - 29.0) / (78.9 - 29.0))
    assert list(plain_share.columns) == [f"classification {part}" for part in PARTS]
    (line,) = plain_share.lines
    assert line.ours[0] == line.paper[0] == pytest.approx(100 * (70.4 - 29.0) / (78.9 - 29.0))


@pytest.mark.parametrize(
    ("study", "best", "share"), [(table3, "curated", 86), (pic, "k-means", 86)]
)
def test_table3_and_pic_have_shares_of_the_gap(study: Any, best: str, share: int, terms: Terms):
    """Of classification by fc6 to fc8, the paper's figures on both sides."""
    uncurated.prepare(terms)
    results = fed_with(study.PRINTED, study.rows(terms), terms)
    shares = study.sections(results, terms)[2]
    line = next(line for line in shares.lines if line.name == best)
    place = list(shares.columns).index("classification fc6-8")
    assert round(line.ours[place]) == round(line.paper[place]) == share
    assert line.note == "between random and supervised"


def test_what_tasks_have_to_say_is_in_the_table_once(terms: Terms):
    bound = "their recall of 95.2 % at an overlap of 0.5 bounds the mAP"
    parts = [{"figures": {"mean": 0.1}, "remarks": [bound]}, {"figures": {"mean": 0.2}}]
    parts += [{"figures": {"mean": 0.3}, "remarks": [bound]}]
    measured = tuple(
        Measured("random", seed, {"detection all": part}) for seed, part in enumerate(parts)
    )
    rows = (Row("random", terms.recipe, trained=False),)
    about = {"command": "deepcluster reproduce table2"}
    text = markdown(table2.STUDY, Results(rows, measured), [], about)
    assert f"- detection all: {bound} (random, seed 0; random, seed 2)" in text.splitlines()


def test_how_long_a_task_took_is_not_in_the_table(terms: Terms):
    def said(*remarks: str) -> list[str]:
        part = {"figures": {"mean": 0.1}, "remarks": remarks}
        measured = (Measured("random", 0, {"classification all": part}),)
        rows = (Row("random", terms.recipe, trained=False),)
        text = markdown(table2.STUDY, Results(rows, measured), [], {"command": "reproduce"})
        return [line for line in text.splitlines() if line.startswith(("## ", "- "))]

    times = [
        "0.6 s to learn and test with 1 seeds",
        "12,345.0 s to learn and test with 3 seeds",
        "3 min 20 s to learn and test with 3 seeds",
    ]
    assert said(*times) == []
    others = [
        "step 0.01, chosen on val (0.01: 12.3)",
        "3 images cannot be used and left out: a, b, c",
        "2 queries are not asked: a, b",
        "0.6 s to learn with 1 seeds; the mean is over the others",
    ]
    assert said(*times, *others) == [
        "## What is to be said of these figures",
        *(f"- classification all: {other} (random, seed 0)" for other in others),
    ]


def test_the_first_seed_chooses_for_the_others():
    tasks = {task.name: task for task in voc_tasks(Path("devkit"))}
    chosen = {"step": 0.3, "decay": 0.7, "choice": {"step": 0.3}}
    for name, task in tasks.items():
        alone, after = task.with_seed(4), task.with_seed(4, chosen)
        assert alone == replace(task.protocol, seeds=(4,))
        assert len(alone.steps) > 1
        assert (after.seeds, after.steps) == ((4,), (0.3,)), name
        assert after.train == name.split()[1]
    assert tasks["classification all"].with_seed(4, chosen).decays == (0.7,)
    (oxford,) = landmark_tasks({"Oxford": Path("oxford")}, "none")
    assert oxford.with_seed(4, chosen) == oxford.with_seed(4)
