"""The verb reproduce: one table or figure of the paper, paper beside ours."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import torch

from deepcluster import flags
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.labelled_images import judged_part, splits
from deepcluster.evaluation.landmarks import read_landmarks
from deepcluster.evaluation.limits import refuse_beyond
from deepcluster.evaluation.linear_probe import LinearProbe
from deepcluster.evaluation.mlp import MLPProbe
from deepcluster.evaluation.retrieval import Retrieval, whitening_source
from deepcluster.evaluation.shelf import Shelf
from deepcluster.images.kept import Pixels
from deepcluster.intake import Intake
from deepcluster.reproduce_flags import Reproduce
from deepcluster.runtime.errors import UsageError
from deepcluster.settings import Run
from deepcluster.studies import (
    classif,
    depth,
    dimensions,
    draw,
    fig2,
    mlp,
    pic,
    reassign,
    sobel,
    stopping,
    table1,
    table2,
    table3,
    table4,
    table5,
    uncurated,
    variants,
)
from deepcluster.studies.adoption import ADOPT, BESIDE, adopted, main_of, with_adopted
from deepcluster.studies.catalogue import STUDIES
from deepcluster.studies.claim import claimed
from deepcluster.studies.outcome import no_longer_there, show, write
from deepcluster.studies.parts import slug
from deepcluster.studies.smoke import smoke_terms
from deepcluster.studies.study import BY_TASK, Row, Study
from deepcluster.studies.tasks import (
    Task,
    landmark_tasks,
    refuse_broken_devkit,
    validation_task,
    voc_tasks,
)
from deepcluster.studies.terms import Data, Grid, Terms, changed, recipe_for, refuse_preset
from deepcluster.studies.workshop import Workshop

BY_NAME: dict[str, Study] = {
    module.STUDY.name: module.STUDY
    for module in (
        table1,
        table2,
        table3,
        table4,
        table5,
        mlp,
        pic,
        fig2,
        draw,
        reassign,
        sobel,
        dimensions,
        depth,
        stopping,
        uncurated,
        variants,
        classif,
    )
}


def reproduce(words: list[str]) -> int:
    """Carry out `deepcluster reproduce NAME ...`; gives the exit code."""
    name, rest = words[0], words[1:]
    study = BY_NAME[name]
    asked = flags.read(Reproduce, rest, f"reproduce {name}")
    _refuse_contradictions(asked, study)
    out = asked.out or Path("reproductions") / (name + ("-smoke" if asked.smoke else ""))
    command = shlex.join(["deepcluster", "reproduce", *words])
    with claimed(out, name, asked.device) as (world, display):
        gpu = world.device.type == "cuda"
        autocast, follow = torch.bfloat16 if gpu else None, asked.follow_links
        bench = Bench(world, _workers(asked), autocast, display, follow_links=follow)
        terms = _terms(asked, study, out, gpu, leads=world.leads)
        every_task = terms.tasks
        terms = replace(terms, tasks=_chosen_tasks(every_task, asked))
        study.refuse(_rows(asked, study, terms)[0])  # before any images are listed
        shelf = Shelf()
        refuse_broken_devkit(terms.tasks, shelf)  # before anything is trained
        if world.leads:
            study.prepare(terms)
        world.wait()
        terms, rows = _rows(asked, study, terms)
        networks = asked.networks_of
        workshop = Workshop(out, terms, bench, study.judge, networks, shelf=shelf)
        results = workshop.with_done(workshop.carry_out(rows, only=asked.rows), every_task)
        terms = replace(terms, tasks=tuple(t for t in every_task if t.name in results.judged_by))
        if world.leads:
            if lost := no_longer_there(out, study, results):
                display.say(
                    f"no longer in the table: {', '.join(lost)} (not all of it is done with "
                    "these settings, seeds and runs)"
                )
            sections = study.sections(results, terms)
            write(out, study, terms, results, sections, command)
            show(sections, display)
            if asked.smoke:
                display.say("\n--smoke shows that everything works; its figures say nothing else")
            display.say(f"\nwritten to {out}: table.md, data.json, figure.png")
    return 0


def _terms(asked: Reproduce, study: Study, out: Path, gpu: bool, *, leads: bool) -> Terms:
    ten_crops = asked.ten_crops or study.ten_crops
    if asked.smoke:
        if not leads:
            raise UsageError("--smoke is for one process")
        seeds = asked.seeds or (0,)
        terms = smoke_terms(out / "images", seeds, ten_crops, study.judge, deep=study.is_deep)
        return replace(terms, recipe=_changed(terms.recipe, asked))
    assert asked.data is not None  # or it would have been refused
    first = Data("", *_splits("--data", asked.data))
    data = [replace(first, name=asked.data.resolve().name)]
    if asked.second is not None:
        data.append(Data(asked.second.resolve().name, *_splits("--second", asked.second)))
        if slug(data[0].name) == slug(data[1].name):  # by which their parts are told apart
            data[1] = replace(data[1], name=f"{data[1].name}-second")
    images = Intake(first.train, how=Pixels(follow_links=asked.follow_links)).most
    recipe = recipe_for(asked.preset, images, gpu, timed=asked.minutes is not None)
    grid = Grid(asked.supervised_steps, asked.supervised_decays, asked.supervised_epochs)
    if not asked.tune:
        grid = grid.middle
    epochs = asked.probe_epochs or LinearProbe().epochs
    return Terms(
        tuple(data),
        images,
        _changed(recipe, asked),
        out / "lists",
        asked.seeds or (0, 1, 2),
        LinearProbe(ten_crops=ten_crops, epochs=epochs),
        MLPProbe(ten_crops=ten_crops, epochs=epochs),
        grid,
        _tasks(asked, study),
    )


def _splits(flag: str, place: Path) -> tuple[Path, Path]:
    """Where the training and the test images are in the folder that a flag names."""
    if not place.is_dir():
        raise UsageError(f"{flag} {place}: there is no such folder")
    if judged_part(place) == place:
        raise UsageError(
            f"{flag} {place}: it needs folders train/ and val/ (or test/) in it, each with one "
            "folder per class"
        )
    return splits(place, None, None)


def _tasks(asked: Reproduce, study: Study) -> tuple[Task, ...]:
    """The columns of the study; landmarks are looked at before anything is trained."""
    if asked.voc is not None:
        return (validation_task(asked.voc),) if study.takes_voc else voc_tasks(asked.voc)
    if study.judge == "retrieval":
        cities = _cities(asked)
        for name, place in cities.items():
            if not place.exists():
                raise UsageError(f"--{name.lower()} {place}: there is no such folder")
            read_landmarks(place, follow_links=asked.follow_links)
        if asked.whiten_on is not None:
            whitening_source(asked.whiten_on, follow_links=asked.follow_links)
        settings = (
            Retrieval() if asked.retrieval_size is None else Retrieval(size=asked.retrieval_size)
        )
        settings.validate()
        return landmark_tasks(cities, asked.whiten_on, settings)
    return ()


def _cities(asked: Reproduce) -> dict[str, Path]:
    named = {"Oxford": asked.oxford, "Paris": asked.paris}
    return {name: place for name, place in named.items() if place is not None}


def _chosen_tasks(tasks: tuple[Task, ...], asked: Reproduce) -> tuple[Task, ...]:
    """The columns that are asked for."""
    _refuse_absent("--tasks", asked.tasks, [task.name for task in tasks])
    return tuple(task for task in tasks if not asked.tasks or task.name in asked.tasks)


def _changed(recipe: Run, asked: Reproduce) -> Run:
    return changed(
        recipe,
        k=asked.k,
        input_size=asked.input_size,
        epochs=asked.epochs,
        minutes=asked.minutes,
        workers=asked.workers,
        follow_links=asked.follow_links,
    )


def _rows(asked: Reproduce, study: Study, terms: Terms) -> tuple[Terms, list[Row]]:
    """All rows, and the terms as they are with those that are adopted."""
    taken, beside = adopted(ADOPT, asked.adopt), adopted(BESIDE, asked.beside)
    main, own = main_of(study.rows(terms), terms, taken), terms.recipe
    if main is not None:
        recipe = replace(main.run, seed=own.seed, speed=own.speed, pixels=own.pixels)
        seeds = asked.seeds or tuple(main.folders)
        terms = replace(terms, recipe=_changed(recipe, asked), seeds=seeds)
    rows = with_adopted(study.rows(terms), taken, beside)
    _refuse_absent("--rows", asked.rows, [row.name for row in rows])
    return terms, [replace(row, every_seed=row.every_seed or asked.all_seeds) for row in rows]


def _refuse_absent(flag: str, asked: tuple[str, ...], names: list[str]) -> None:
    for name in asked:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}"
            raise UsageError(f"{flag} {name}: no such {flag[2:-1]}; {hint}")


def _refuse_contradictions(asked: Reproduce, study: Study) -> None:
    if asked.smoke and (given := _not_for_smoke(asked)):
        raise UsageError(f"--smoke has its own images, recipe and probes; leave out {given[0]}")
    if not asked.smoke and asked.data is None:
        raise UsageError(
            f"which images? deepcluster reproduce {study.name} --data DIR, where DIR has train/ "
            "and val/ with one folder per class; or --smoke, which brings its own"
        )
    if not asked.smoke and study.needs_second and asked.second is None:
        raise UsageError(f"{study.name} mixes two data sets: give --second DIR, best one of scenes")
    if not asked.smoke and study.judge == "transfer" and asked.voc is None:
        raise UsageError(
            f"{study.name} judges by transfer to Pascal VOC: give --voc DIR, a VOCdevkit folder"
        )
    if asked.voc is not None and not (study.judge == "transfer" or study.takes_voc):
        raise UsageError(f"--voc is for studies of transfer; {study.name} does without it")
    _refuse_about_landmarks(asked, study)
    if asked.tasks and study.judge not in BY_TASK:
        raise UsageError(f"--tasks is for studies of transfer; {study.name} has no tasks")
    for place in asked.networks_of:
        if not (place / "study.json").is_file():
            raise UsageError(f"--networks-of {place}: no study was carried out there")
    refuse_preset(asked.preset)
    if len({*asked.seeds}) < len(asked.seeds):
        raise UsageError("--seeds: the same seed twice is the same run")
    steps, decays = asked.supervised_steps, asked.supervised_decays
    epochs = asked.supervised_epochs
    refuse_beyond(
        ("--supervised-steps", steps, steps and min(steps) > 0, "numbers above 0"),
        ("--supervised-decays", decays, decays and min(decays) >= 0, "numbers from 0 on"),
        ("--supervised-epochs", epochs, epochs and min(epochs) >= 1, "numbers from 1 on"),
        *(
            (flag, count, count is None or count >= 1, "at least 1")
            for flag, count in (
                ("--workers", asked.workers),
                ("--epochs", asked.epochs),
                ("--probe-epochs", asked.probe_epochs),
            )
        ),
    )


def _not_for_smoke(asked: Reproduce) -> list[str]:
    """The flags that were given and say what --smoke says itself."""
    names = ["data", "second", "preset", "voc", "oxford", "paris", "probe_epochs", "tune"]
    names += ["supervised_steps", "supervised_decays", "supervised_epochs"]
    plain = Reproduce()
    return [
        ("--no-" if name == "tune" else "--") + name.replace("_", "-")
        for name in names
        if getattr(asked, name) != getattr(plain, name)
    ]


def _refuse_about_landmarks(asked: Reproduce, study: Study) -> None:
    cities = _cities(asked)
    if study.judge != "retrieval":
        for flag, given in (
            ("--oxford", asked.oxford),
            ("--paris", asked.paris),
            ("--whiten-on", asked.whiten_on),
            ("--retrieval-size", asked.retrieval_size),
        ):
            if given is not None:
                raise UsageError(f"{flag} is for table5; {study.name} does without it")
    elif asked.smoke:
        if asked.whiten_on is not None or asked.retrieval_size is not None:
            raise UsageError("--smoke has its own images; leave out what is said of others")
    elif not cities:
        raise UsageError(
            f"{study.name} judges by retrieval: give --oxford DIR, --paris DIR or both, each with "
            "images/ and gt_files/ in it"
        )
    elif len(cities) == 1 and asked.whiten_on is None:
        raise UsageError(
            "the whitening is learnt on other images than those that are searched: give the other "
            "city too, or --whiten-on DIR, or --whiten-on none to leave it out, which is not the "
            "paper's protocol"
        )


def _workers(asked: Reproduce) -> int:
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return asked.workers or max(1, (os.cpu_count() or 1) // local)


assert list(BY_NAME) == list(STUDIES)
