"""The verb train: a command line generated from the typed settings."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import tyro

from deepcluster import flags, reading_flags
from deepcluster.clusters import KMeans
from deepcluster.flags import Count, Place, refuse_unknown, shown_as
from deepcluster.images.source import quick_check
from deepcluster.intake import Intake
from deepcluster.presets import (
    OF_LABELS,
    PRESETS,
    automatic,
    for_labels,
    with_arch,
    with_init,
    with_sobel,
)
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.world import joined
from deepcluster.session import Asked, ended_by_time
from deepcluster.session import train as carry_to_the_end
from deepcluster.settings import Run, flat, suggested_k

SHORT = {
    "--k": "--clustering.k",
    "--arch": "--network.arch",
    "--init": "--network.init",
    "--input-size": "--network.input-size",
    "--dimensions": "--whitening.dimensions",
    "--batch": "--training.batch",
    **reading_flags.SHORT,
    "--device": "--speed.device",
    "--workers": "--speed.workers",
}

_OF_ANY_LABELS = (
    "network.input_size",
    "network.front",
    "network.patches",
    "precision",
    "training.schedule",
)  # choices that are not about clusterings

Folder = Annotated[Path | None, shown_as("DIR")]
File = Annotated[Path | None, shown_as("FILE")]
Name = Annotated[str | None, shown_as("NAME")]
Amount = Annotated[float | None, shown_as("X")]


@dataclass(frozen=True)
class Common:
    """Learn features and groups from a folder of images.

    Images need no labels; folder names, where there are classes, are used for monitoring only
    (or for a supervised network to compare with: --labels folders).
    The same command continues a run that was stopped. --help-all shows every setting.
    """

    images: Place
    """Folder of images, list of paths (.txt, .csv, .parquet) or 'tar/shards/*.tar'."""

    preset: Name = None
    """small, small-alexnet, small-pic, paper-alexnet, paper-vgg16, paper-pic, paper-rgb; else \
    chosen to suit."""

    out: Folder = None
    """Run folder (runs/<images>-<n> if not given)."""

    k: Count = None
    """Number of groups (paper: 10,000 for ImageNet); auto: what suits the number of images."""

    epochs: Count = None
    """Clusterings, each followed by training on its labels (paper: 500)."""

    minutes: Amount = None
    """Time to spend; training ends after the last epoch that fits, or inside the first."""

    labels: Name = None
    """clusters (the method), or folders: a supervised network, to compare with."""

    seed: int = 0
    """Names every random stream of the run."""

    arch: Name = None
    """alexnet, vgg16, or a torchvision network by name, such as resnet18."""

    init: Name = None
    """Weights to begin with: a run, a .safetensors file, or a torchvision or timm weight file."""

    input_size: Count = None
    """Side of the square that the network sees, in pixels (paper: 224)."""

    batch: Count = None
    """Images per step, over all processes together (paper: 256)."""

    precision: Name = None
    """float32 (the paper), tf32 or bfloat16."""

    device: str = "auto"
    """cpu, cuda, or auto: the GPU if there is one."""

    workers: Count = None
    """Threads that decode images; one for each core if not given."""

    max_unusable: float = 0.05
    """Share of unusable files that is still accepted."""

    index: File = None
    """What `deepcluster check IMAGES --index FILE` wrote; files that changed since are noticed."""

    fresh: bool = False
    """Start a new run even if there is one to continue."""


@dataclass(frozen=True)
class Train:
    """Learn features and groups from a folder of images: every setting."""

    images: Place
    """Folder of images, list of paths (.txt, .csv, .parquet) or 'tar/shards/*.tar'."""

    run: Annotated[Run, tyro.conf.arg(name="")]

    out: Folder = None
    """Run folder (runs/<images>-<n> if not given)."""

    max_unusable: float = 0.05
    """Share of unusable files that is still accepted."""

    index: File = None
    """What `deepcluster check IMAGES --index FILE` wrote; files that changed since are noticed."""

    fresh: bool = False
    """Start a new run even if there is one to continue."""


def train(words: list[str]) -> int:
    """Carry out `deepcluster train`; gives the exit code."""
    if {"-h", "--help"} & {*words}:
        tyro.cli(Common, args=["--help"], prog="deepcluster train")
    preset, rest = taken_preset(words)
    k_follows, rest = taken_auto_k(rest)
    if "--help-all" in words:
        start = preset or Run()
        tyro.cli(
            Train,
            args=["--help"],
            prog="deepcluster train",
            default=Train(images=tyro.MISSING, run=start),
            config=(tyro.conf.AvoidSubcommands,),
        )
    first = parsed(rest, preset or Run())  # for what does not depend on the images
    arch, init = first.run.network.arch, first.run.network.init
    quick_check(first.images)
    if not 0 <= first.max_unusable <= 1:
        raise UsageError(f"--max-unusable {first.max_unusable:g}: give a share from 0 to 1")

    if first.index is not None and not first.index.is_file():
        raise UsageError(f"--index {first.index}: no such file; deepcluster check writes it")

    grey = Intake(first.images).in_grey or first.run.pixels.colour == "grey"

    def settle(images: int, gpu: bool) -> tuple[Run, list[str]]:
        if preset is not None:
            labelled = first.run.labels == "folders"
            start = with_sobel(preset) if grey else preset
            start = with_arch(for_labels(start) if labelled else start, arch)
            run = parsed(rest, with_init(start, init)).run
            run, of_k = with_suggested_k(run, images) if k_follows else (run, [])
            return run, [OF_LABELS, *of_k] if labelled else of_k
        timed = first.run.minutes is not None
        start, reasons = automatic(images, gpu, timed, first.run.labels, grey)
        if arch != start.network.arch:
            start = with_arch(start, arch)
            del reasons["network.input_size"]  # it names the other network
            reasons.pop("network.front", None)  # seen of that one
        start = with_init(start, init)
        if not start.network.patches:  # other networks and given weights have none
            reasons.pop("network.patches", None)
        run = parsed(rest, start).run
        ours, chosen = flat(start), flat(run)
        told = _OF_ANY_LABELS if run.labels == "folders" else reasons
        return run, [
            why for name, why in reasons.items() if name in told and chosen[name] == ours[name]
        ]

    asked = Asked(
        images=first.images,
        settle=settle,
        out=first.out,
        fresh=first.fresh,
        max_unusable=first.max_unusable,
        index=first.index,
        words=tuple(words),
        pixels=first.run.pixels,
    )
    with (
        interruption.noticed(),
        joined(first.run.speed.device, first.run.speed.timeout_minutes) as world,
        Display(speaks=world.leads).shown() as display,
    ):
        folder, clusters = carry_to_the_end(asked, world, display)
        if clusters is None:
            display.say(f"already finished: {folder.path}; --fresh starts a new run")
        else:
            learnt = folder.settings["effective"].get("labels") == "folders"
            what = "the folders' classes are learnt; what it sees falls into " if learnt else ""
            display.say(
                f"done: {what}{clusters.count:,} groups of {len(clusters.labels):,} images "
                f"in {folder.path}/clusters.parquet"
            )
        if world.leads and (why := ended_by_time(folder)) is not None:
            display.say(why)
    return 0


def taken_auto_k(words: list[str]) -> tuple[bool, list[str]]:
    """Whether the words ask for `--k auto`, and the words without that."""
    rest: list[str] = []
    for word in words:
        if word == "auto" and rest[-1:] == ["--clustering.k"]:
            rest.pop()
        elif word != "--clustering.k=auto":
            rest.append(word)
    return len(rest) < len(words), rest


def with_suggested_k(run: Run, images: int) -> tuple[Run, list[str]]:
    """The run with as many groups as suit so many images, and why these."""
    if not isinstance(run.clustering, KMeans):
        raise UsageError("--k auto: power iteration finds the number of groups itself")
    k = suggested_k(images)
    why = f"k = {k:,} groups: {images:,}^0.8 / 8, about {images / k:,.0f} images each"
    return replace(run, clustering=replace(run.clustering, k=k)), [why]


def taken_preset(words: list[str]) -> tuple[Run | None, list[str]]:
    """The preset that the words name, if any, and the other words with short names spelled out."""
    rest: list[str] = []
    name = None
    remaining = iter(words)
    for word in remaining:
        flag, equals, value = word.partition("=")
        if flag == "--preset":
            name = value if equals else next(remaining, "")
        else:
            rest.append(SHORT.get(flag, flag) + equals + value if flag.startswith("--") else word)
    if name is None:
        return None, rest
    spelled = name.replace("_", "-")
    if spelled not in PRESETS:
        close = get_close_matches(spelled, PRESETS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(PRESETS)}"
        raise UsageError(f"no such preset {name!r}; {hint}")
    return PRESETS[spelled](), rest


def parsed(words: list[str], start: Run) -> Train:
    """The command's settings: `start`, changed by the flags among the words."""
    own = [entry.name for entry in fields(Train) if entry.name != "run"]
    known = {"--" + name.replace("_", "-") for name in [*own, *flat(start)]}
    if "--clustering.k" not in known and any(
        word.partition("=")[0] == "--clustering.k" for word in words
    ):
        raise UsageError("--k: power iteration finds the number of groups itself")
    refuse_unknown(words, known, "deepcluster train --help-all", SHORT)
    return flags.parsed(
        Train,
        words,
        "train",
        SHORT,
        default=Train(images=tyro.MISSING, run=start),
        config=(tyro.conf.AvoidSubcommands,),
    )
