"""The verb reproduce, for figures: one figure of the paper, for any network."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

from deepcluster import flags
from deepcluster.evaluation.subject import trained_run
from deepcluster.flags import Count, shown_as
from deepcluster.images.kept import Pixels
from deepcluster.images.source import quick_check
from deepcluster.intake import Intake
from deepcluster.reading_flags import LinkFlags
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.world import World
from deepcluster.session import Asked, train
from deepcluster.settings import Run
from deepcluster.studies import (
    fig3,
    fig4,
    fig5,
    neighbours,
    purity,
    sizes,
    top100,
    vgg,
)
from deepcluster.studies.catalogue import FIGURES
from deepcluster.studies.claim import claimed
from deepcluster.studies.paper_figure import Choices, Exhibit, PaperFigure, write_figure
from deepcluster.studies.parts import slug
from deepcluster.studies.smoke import smoke_terms
from deepcluster.studies.terms import Data, Terms, changed, recipe_for, refuse_preset
from deepcluster.viewed_run import ViewedRun

BY_NAME: dict[str, PaperFigure] = {
    module.FIGURE.name: module.FIGURE
    for module in (fig3, fig4, fig5, neighbours, sizes, purity, vgg, top100)
}

_SMOKE_STEPS = 60

File = Annotated[Path | None, shown_as("FILE")]
Folder = Annotated[Path | None, shown_as("DIR")]


@dataclass(frozen=True)
class ReproduceFigure(LinkFlags):
    """One figure of the paper: of runs that there are, or of networks trained for it.

    The same command goes on where it was stopped.
    """

    run: Annotated[tuple[str, ...], shown_as("RUN ...")] = ()
    """Show these runs (folders, or names in runs/); nothing is trained."""

    data: Folder = None
    """Train on these images: a folder with train/ in it, or any images that train takes."""

    smoke: bool = False
    """Train a tiny network on images that come along: minutes on two cores."""

    images: Annotated[Path | None, shown_as("IMAGES")] = None
    """Look among these images, in the place of those that the network was trained on."""

    out: Folder = None
    """Where figure.png, caption.md and data are written (reproductions/NAME if not given)."""

    filters: Annotated[tuple[int, ...], shown_as("N ...")] = ()
    """fig5, vgg, top100: which filters; the most telling ones if not given."""

    count: Count = None
    """How many filters (fig4: for each layer), or queries."""

    steps: Count = None
    """fig4, vgg: steps of gradient ascent (400; of --smoke 60)."""

    wordnet: File = None
    """purity: WordNet's is-a list, such as ImageNet's wordnet.is_a.txt."""

    words: File = None
    """purity: what synsets are called, such as ImageNet's words.txt."""

    seed: int = 0
    """Of training, and of what is chosen at random."""

    preset: Annotated[str | None, shown_as("NAME")] = None
    """The recipe; chosen by the number of images if not given."""

    k: Count = None
    """Number of clusters, if not the recipe's."""

    input_size: Count = None
    """Side of the square that the network sees, if not the recipe's."""

    epochs: Count = None
    """Epochs, if not the recipe's."""

    minutes: Annotated[float | None, shown_as("X")] = None
    """Time to train for."""

    device: str = "auto"
    """cpu, cuda, or auto: the GPU if there is one."""

    workers: Count = None
    """Threads that crop images; one for each core if not given."""


def reproduce_figure(words: list[str]) -> int:
    """Carry out `deepcluster reproduce FIGURE ...`; gives the exit code."""
    name, rest = words[0], words[1:]
    figure = BY_NAME[name]
    asked = flags.read(ReproduceFigure, rest, f"reproduce {name}")
    _refuse_contradictions(asked, figure)
    given = [trained_run(run) for run in asked.run]
    # Before hours of training: what the figure cannot do without.
    for file, flag in ((asked.wordnet, "--wordnet"), (asked.words, "--words")):
        if file is not None and not file.is_file():
            raise UsageError(f"{flag} {file}: there is no such file")
    if asked.images is not None:
        quick_check(asked.images)
    out = asked.out or Path("reproductions") / _default_name(name, asked, given)
    with claimed(out, name, asked.device) as (world, display):
        world.wait()
        if given:
            shown = [(folder.path.name, folder) for folder in given]
        else:
            shown = _trained(figure, asked, out, world, display)
        if world.leads:
            exhibits = [
                Exhibit(title, ViewedRun(folder, display, world.device, asked.images))
                for title, folder in shown
            ]
            drawn = figure.draw(exhibits, _choices(asked))
            paths = [folder.path for _, folder in shown]
            command = shlex.join(["deepcluster", "reproduce", *words])
            write_figure(out, figure, drawn, paths, asked.seed, command)
            display.say(drawn.caption)
            files = ", ".join(["figure.png", "caption.md", *sorted(drawn.data)])
            display.say(f"written to {out}: {files}")
    return 0


def _trained(
    figure: PaperFigure, asked: ReproduceFigure, out: Path, world: World, display: Display
) -> list[tuple[str, RunFolder]]:
    """The networks of the figure, trained one after another; what is done is not done again."""
    terms = _terms(figure, asked, out, gpu=world.device.type == "cuda", leads=world.leads)
    made = []
    for row in figure.rows(terms):
        run = replace(row.run, seed=asked.seed)
        folder = RunFolder(out / "runs" / slug(row.name))

        def settle(images: int, gpu: bool, run: Run = run) -> tuple[Run, list[str]]:
            return run, []

        # Not from a store that all share, as tables are: people want to see colours.
        place = terms.data[0].train
        train(Asked(place, settle, out=folder.path, pixels=run.pixels), world, display)
        made.append((row.name, folder))
    return made


def _terms(
    figure: PaperFigure, asked: ReproduceFigure, out: Path, *, gpu: bool, leads: bool
) -> Terms:
    if asked.smoke:
        if not leads:
            raise UsageError("--smoke is for one process")
        terms = smoke_terms(out / "images", (asked.seed,), ten_crops=False)
        recipe = figure.smoke(terms.recipe)
    else:
        assert asked.data is not None  # or it would have been refused
        place = asked.data / "train" if (asked.data / "train").is_dir() else asked.data
        quick_check(place)
        images = Intake(place, how=Pixels(follow_links=asked.follow_links)).most
        recipe = recipe_for(asked.preset, images, gpu, timed=asked.minutes is not None)
        data = Data(asked.data.resolve().name, place, place)
        terms = Terms((data,), images, recipe, out / "lists", (asked.seed,))
    recipe = changed(
        recipe,
        k=asked.k,
        input_size=asked.input_size,
        epochs=asked.epochs,
        minutes=asked.minutes,
        workers=asked.workers,
        follow_links=asked.follow_links,
    )
    return replace(terms, recipe=recipe)


def _choices(asked: ReproduceFigure) -> Choices:
    steps = asked.steps or (_SMOKE_STEPS if asked.smoke else Choices().steps)
    named = {entry.name: getattr(asked, entry.name) for entry in fields(Choices)}
    return Choices(**{**named, "steps": steps})


def _default_name(name: str, asked: ReproduceFigure, given: Sequence[RunFolder]) -> str:
    return "-".join([name, *(["smoke"] if asked.smoke else []), *(run.path.name for run in given)])


def _refuse_contradictions(asked: ReproduceFigure, figure: PaperFigure) -> None:
    ways = [flag for flag, given in _ways(asked).items() if given]
    if len(ways) != 1:
        problem = f"{' and '.join(ways)} do not go together:" if ways else "of which network?"
        raise UsageError(
            f"{problem} deepcluster reproduce {figure.name} --run RUN shows one that there is, "
            "--data DIR trains one on these images, --smoke a tiny one on its own"
        )
    if len(asked.run) > figure.networks:
        most = "one network" if figure.networks == 1 else f"at most {figure.networks} networks"
        raise UsageError(f"{figure.name} shows {most}; --run names {len(asked.run)}")
    if not asked.data:
        for flag in ("preset", "minutes") if asked.smoke else _OF_TRAINING:
            if getattr(asked, flag) is not None:
                shown = "--" + flag.replace("_", "-")
                raise UsageError(f"{shown} is for training on --data; nothing else is trained so")
    refuse_preset(asked.preset)
    for flag in ("count", "steps", "epochs", "workers"):
        value = getattr(asked, flag)
        if value is not None and value < 1:
            raise UsageError(f"--{flag} {value}: use at least 1")


def _ways(asked: ReproduceFigure) -> dict[str, object]:
    return {"--run": asked.run, "--data": asked.data, "--smoke": asked.smoke}


_OF_TRAINING = ("preset", "k", "input_size", "epochs", "minutes")

assert list(BY_NAME) == list(FIGURES)
