"""The verb evaluate: how good a network is, by one of the protocols."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.table import Table

from deepcluster import flags
from deepcluster.evaluate_flags import (
    PROTOCOLS,
    Agreement,
    Common,
    Labelled,
    Landmarks,
    Linear,
    Mlp,
    Nearest,
    Transferred,
    WithRandom,
    flags_of,
    name_of,
)
from deepcluster.evaluation import record
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.evaluated import Evaluated, of_run, untrained
from deepcluster.evaluation.group_agreement import (
    own_agreement,
    predicted_agreement,
    refuse_without_groups,
)
from deepcluster.evaluation.labelled_images import (
    LabelledImages,
    judged_part,
    opened,
    parts_of,
    said_of_both,
    splits,
)
from deepcluster.evaluation.landmarks import images_of
from deepcluster.evaluation.limits import refuse_beyond
from deepcluster.evaluation.linear_probe import LinearProbe, chosen_layers
from deepcluster.evaluation.mlp import hidden_width
from deepcluster.evaluation.probe_result import ProbeResult
from deepcluster.evaluation.subject import UNTRAINED, Shape, begun_run, judged_run
from deepcluster.evaluation.transfer import Contender, Material, Stages, Transfer
from deepcluster.evaluation.voc import find_devkit
from deepcluster.evaluation.voc_segmentation import VOCSegmentation
from deepcluster.flags import refuse_unknown
from deepcluster.images.source import quick_check
from deepcluster.reading_flags import LinkFlags
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.run_folder import RunFolder, refuse_unwritable
from deepcluster.runtime.world import World, joined

_titles = {Linear: "linear probes", Mlp: "fc6 to fc8"}


def evaluate(words: list[str]) -> int:
    """Carry out `deepcluster evaluate`; gives the exit code."""
    name, protocol, rest = _first_words(words)
    kind = PROTOCOLS[protocol]
    prog = f"deepcluster evaluate {name} {protocol}"
    if {"-h", "--help"} & {*rest}:
        tyro.cli(kind, args=["--help"], prog=prog)
    refuse_unknown(rest, flags_of(kind), f"{prog} --help", {})
    asked = flags.parsed(kind, rest, f"evaluate {name} {protocol}")
    if asked.workers is not None and asked.workers < 1:
        raise UsageError(f"--workers {asked.workers}: use at least 1")
    _refuse_writing_among_images(asked)
    folder = None if name in UNTRAINED else judged_run(name)
    if isinstance(asked, WithRandom):
        _refuse_flags_of_random(asked, folder)
    place = record.place_of(asked.out, folder)
    refuse_unwritable(place.path, "--out")
    if isinstance(asked, Transferred):  # which keeps its parts below the result
        refuse_unwritable(place.path / "stages", "--out")
    with (
        interruption.noticed(),
        joined(asked.device) as world,
        Display(speaks=world.leads).shown() as display,
    ):
        bench = _bench(asked, world, display)
        own = {Linear: _probe, Mlp: _probe, Nearest: _nearest, Agreement: _agreement}
        about = own.get(kind, _transfer)(asked, name, folder, bench)  # type: ignore[operator]
        if world.leads:
            record.write(place, name, protocol, folder, about, bench)
    return 0


def subject_of(asked: WithRandom, name: str, folder: RunFolder | None, seed: int) -> Evaluated:
    """The network that the words name."""
    if folder is not None:
        return of_run(folder)
    start = untrained(subject_shape(asked, name, folder), seed)
    if asked.like is None or asked.arch is not None:  # layers are named by their networks
        return start
    return start.grouped_like(begun_run(asked.like, "--like"))


def subject_shape(asked: WithRandom, name: str, folder: RunFolder | None) -> Shape:
    """What the network that the words name is built from."""
    if folder is not None:
        return Shape.of_run(folder)
    shape = Shape() if asked.like is None else Shape.of_run(begun_run(asked.like, "--like"))
    shape = replace(
        shape,
        arch=asked.arch or shape.arch,
        input_size=shape.input_size if asked.input_size is None else asked.input_size,
        width=shape.width if asked.width is None else asked.width,
    )
    if (front := name.removeprefix("random").lstrip("-")) in ("rgb", "sobel"):
        shape = replace(shape, front=front)  # type: ignore[arg-type]
    return shape


def _transfer(
    asked: Transferred, name: str, folder: RunFolder | None, bench: Bench
) -> dict[str, Any]:
    settings: Transfer = asked.settings  # type: ignore[attr-defined]
    settings.validate()

    def network(seed: int) -> Evaluated:
        return subject_of(asked, name, folder, seed).on(bench.world)

    common = {"settings": name_of(settings), **record.conditions(bench)}
    stages = Stages(record.place_of(asked.out, folder), common, bench, asked.fresh)
    material = Material(asked.data, asked.stores)
    outcome = settings(Contender(name, network), material, bench, stages)
    for table in outcome.tables:
        table.on(bench.display)
    for remark in outcome.remarks:
        bench.display.say(remark)
    return {
        "network": asdict(subject_shape(asked, name, folder)),
        "data": outcome.data,
        "settings": {**asdict(settings), **outcome.settled},  # type: ignore[call-overload]
        "result": outcome.result,
        "stages_made": stages.made,
    }


def _probe(
    asked: Linear | Mlp, name: str, folder: RunFolder | None, bench: Bench
) -> dict[str, Any]:
    asked.settings.validate()
    places = splits(asked.data, asked.train, asked.test)
    subject = subject_of(asked, name, folder, asked.settings.seed).on(bench.world)
    settled: dict[str, Any]  # now, since a layer may be refused before images are read
    if isinstance(asked.settings, LinearProbe):
        settled = {"layers": chosen_layers(subject.network, asked.settings.layers)}
    else:
        settled = {"hidden": hidden_width(subject.network, asked.settings.hidden)}
    train, test = _opened(asked, places, subject, bench)
    result = asked.settings(subject.network, train, test, bench)
    _show(probe_table(result, f"{name}: {_titles[type(asked)]} on {train.place}"), bench.display)
    spent = result.seconds
    bench.display.say(
        f"{spent['all']:.1f} s, of which {spent['learn']:.1f} s to learn and {spent['test']:.1f} s "
        "to test"
    )
    choices = len(asked.settings.steps) * len(asked.settings.decays)
    labels = None if folder is None else folder.settings["effective"].get("labels")
    if labels == "folders" and choices > 1:
        bench.display.say(
            "this network has learnt classes: where it has learnt them from these images, step and "
            "decay are chosen by what it knows already; fix them (one of --steps, one of --decays)"
        )
    for remark in result.remarks:
        bench.display.say(remark)
    settings = {**asdict(asked.settings), **settled}
    return _about(subject, settings, result, train, test)


def _nearest(asked: Nearest, name: str, folder: RunFolder | None, bench: Bench) -> dict[str, Any]:
    asked.settings.validate()
    places = splits(asked.data, asked.train, asked.test)
    subject = subject_of(asked, name, folder, asked.seed).on(bench.world)
    if asked.settings.layer is not None:
        chosen_layers(subject.network, (asked.settings.layer,))
    train, test = _opened(asked, places, subject, bench)
    result = asked.settings(subject, train, test, bench)
    title = f"{name}: nearest of {result.rows:,} images ({asked.settings.features})"
    table = _table(title, ["neighbours", "top-1", "top-5"])
    for vote in result.votes:
        table.add_row(f"{vote.neighbours}", _percent(vote.top1), _percent(vote.top5))
    _show(table, bench.display)
    settled = {
        "layer": asked.settings.layer or _grouped(subject),
        # What is clustered may be pooled otherwise than the layer of that name, and of more views.
        "clustered": None if asked.settings.layer else subject.clustered,
        "views": 1 if asked.settings.layer else subject.views,
        "dimensions": result.width,
        "whitening": result.whitening,
        "seed": asked.seed,
    }
    return _about(subject, {**asdict(asked.settings), **settled}, result, train, test)


def _grouped(subject: Evaluated) -> str:
    """The name of the layer that is grouped, or would be."""
    top = list(subject.network.layers)[-1]
    return top if subject.clustered == "top" else subject.clustered


def _agreement(
    asked: Agreement, name: str, folder: RunFolder | None, bench: Bench
) -> dict[str, Any]:
    if folder is None:
        raise UsageError(f"{name} has no groups; agreement needs a run")
    if asked.data is None:
        with bench.display.phase("comparing groups with classes", 1, {}, "compare"):
            result = own_agreement(folder)
        about = {"data": {"images": folder.settings.get("images")}, "result": asdict(result)}
    else:
        place = judged_part(asked.data)
        quick_check(place)
        subject = of_run(folder).on(bench.world)
        refuse_without_groups(subject)  # before images are read
        labelled = opened(place, subject.shape.input_size, subject.colour, asked.stores, bench)
        result = predicted_agreement(subject, labelled, bench)
        about = {"data": {"images": labelled.described()}, "result": asdict(result)}
    of = f"{result.groups:,} groups, {result.classes:,} classes, {result.images:,} images"
    table = _table(f"{name}: {of}", ["figure", "value"])
    for title, value in (
        ("NMI, geometric (the paper's)", result.nmi),
        ("NMI, arithmetic (scikit-learn's)", result.nmi_arithmetic),
        ("AMI", result.ami),
        ("ARI", result.ari),
        ("purity", result.purity),
        ("accuracy, matched one to one", result.accuracy),
    ):
        table.add_row(title, f"{value:.4f}")
    _show(table, bench.display)
    return about


def probe_table(result: ProbeResult, title: str) -> Table:
    """The layers' figures, in percent."""
    ten = any(layer.ten_crops_top1 is not None for layer in result.layers)
    tens = ["10 crops\ntop-1", "10 crops\ntop-5"] if ten else []
    columns = ["layer", "width", "top-1", "top-5", *tens, "held\nout", "step", "decay"]
    table = _table(title, [*columns, "best on\ntest"])
    for layer in result.layers:
        by_ten = [_percent(layer.ten_crops_top1), _percent(layer.ten_crops_top5)] if ten else []
        table.add_row(
            layer.layer,
            f"{layer.width}",
            _percent(layer.top1),
            _percent(layer.top5),
            *by_ten,
            _percent(layer.held_out_top1),
            f"{layer.step:g}",
            f"{layer.decay:g}",
            _percent(layer.best_on_test_top1),
        )
    return table


def _first_words(words: list[str]) -> tuple[str, str, list[str]]:
    """RUN, PROTOCOL and the flags."""
    named = [word for word in words[:2] if not word.startswith("-")]
    if len(named) < 2:
        raise UsageError(
            "which network, and how? deepcluster evaluate RUN PROTOCOL --data DIR, where PROTOCOL "
            f"is {', '.join(PROTOCOLS)}"
        )
    if words[1] not in PROTOCOLS:
        close = get_close_matches(words[1], PROTOCOLS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(PROTOCOLS)}"
        raise UsageError(f"no such protocol {words[1]!r}; {hint}")
    return words[0], words[1], words[2:]


def _refuse_writing_among_images(asked: Common) -> None:
    places: list[Path | None] = []
    if isinstance(asked, Landmarks):
        named = asked.settings.images
        places = [Path(named) if named else asked.data and images_of(asked.data)]
    elif isinstance(asked, Transferred):
        places = [_images_of_devkit(asked)]
    elif isinstance(asked, Labelled | Agreement):
        places = [] if asked.data is None else [*parts_of(asked.data)]
    if isinstance(asked, Labelled):
        places += [asked.train, asked.test]
    stores = None if asked.stores == Common.stores else asked.stores
    for flag, target in (("--out", asked.out), ("--stores", stores)):  # where they are given
        for place in places:
            if target and place and target.resolve().is_relative_to(place.resolve()):
                raise UsageError(
                    f"{flag} {target} lies in {place}, among the images; choose another {flag}, "
                    "nothing was written"
                )


def _images_of_devkit(asked: Transferred) -> Path | None:
    """Where the images of VOC are: its data may hold the devkit beside anything else, or not."""
    settings: Transfer = asked.settings  # type: ignore[attr-defined]
    with suppress(UsageError):  # the protocol says it
        if isinstance(settings, VOCSegmentation):
            return settings.sets(asked.data)[0].folder / "JPEGImages"
        return find_devkit(asked.data).folder / "JPEGImages"
    return None


def _refuse_flags_of_random(asked: WithRandom, folder: RunFolder | None) -> None:
    given = {"--like": asked.like, "--arch": asked.arch, "--input-size": asked.input_size}
    for flag, value in {**given, "--width": asked.width}.items():
        if folder is not None and value is not None:
            raise UsageError(f"{flag} is for random only; {folder.path} has its own network")
    size, width = asked.input_size, asked.width
    refuse_beyond(
        ("--input-size", size, size is None or size >= 64, "at least 64"),
        ("--width", width, width is None or width >= 1, "at least 1"),
    )


def _bench(asked: Common, world: World, display: Display) -> Bench:
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    workers = asked.workers or max(1, (os.cpu_count() or 1) // local)
    low = asked.precision == "bfloat16" or (
        asked.precision == "auto" and world.device.type == "cuda"
    )
    follow = isinstance(asked, LinkFlags) and asked.follow_links
    autocast = torch.bfloat16 if low else None
    return Bench(world, workers, autocast, display, follow_links=follow)


def _opened(
    asked: Labelled, places: tuple[Path, Path], subject: Evaluated, bench: Bench
) -> tuple[LabelledImages, LabelledImages]:
    size = subject.shape.input_size
    train, test = (opened(place, size, subject.colour, asked.stores, bench) for place in places)
    bench.display.say(
        f"{len(train):,} training and {len(test):,} test images of {len(train.names):,} classes"
    )
    if said := said_of_both(train, test):
        bench.display.say(said)
    return train, test


def _about(
    subject: Evaluated,
    settings: dict[str, Any],
    result: Any,
    train: LabelledImages,
    test: LabelledImages,
) -> dict[str, Any]:
    return {
        "network": asdict(subject.shape),
        "data": {"train": train.described(), "test": test.described()},
        "settings": settings,
        "result": asdict(result),
    }


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    return table


def _show(table: Table, display: Display) -> None:
    if display.speaks:
        display.console.print(table)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"
