"""The verb show: one picture of a run or of its network, with the data beside it."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image

from deepcluster.evaluation.evaluated import of_run, untrained
from deepcluster.evaluation.subject import Shape, begun_run, trained_run
from deepcluster.features.sampled import whitened_rows
from deepcluster.flags import Count, parsed, refuse_unknown, shown_as
from deepcluster.networks import looked_at
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import ResumeError, UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.seeds import generator
from deepcluster.runtime.world import joined
from deepcluster.visuals import plots
from deepcluster.visuals.cluster_sheet import sheet_of
from deepcluster.visuals.filters import first_kernels, grid
from deepcluster.visuals.gradient_ascent import (
    GradientAscent,
    filter_count,
    likelihoods_of,
    shown,
)
from deepcluster.visuals.neighbours import nearest_images
from deepcluster.visuals.run_images import RunImages
from deepcluster.visuals.thumbnails import sheet
from deepcluster.visuals.top_images import top_images

_BATCH = 128
_LOOKED_AT = 5_000  # images among which neighbours are sought


@dataclass(frozen=True)
class Show:
    """Flags of every picture."""

    out: Annotated[Path | None, shown_as("DIR")] = None
    """Where picture and data are written; RUN/figures if not given."""

    layer: Annotated[str | None, shown_as("NAME")] = None
    """top, ascent: the layer, such as conv3; the last convolution if not given."""

    filters: Annotated[tuple[int, ...], shown_as("N ...")] = ()
    """top, ascent: which filters are in the picture."""

    groups: Annotated[tuple[int, ...], shown_as("N ...")] = ()
    """clusters: which groups; the largest if not given."""

    count: Count = None
    """How many rows the picture has (clusters 20, neighbours 8, top 24), or filters (ascent 24)."""

    steps: int = 200
    """ascent: how many steps."""

    beside: Annotated[str | None, shown_as("RUN")] = None
    """sizes: another run to show beside this one, such as one of power iteration."""

    seed: int = 0
    """Names what is chosen at random: queries, images of a group."""

    device: str = "auto"
    """cpu, cuda, or auto: the GPU if there is one."""


_HELP = """usage: deepcluster show RUN WHAT [--out DIR] ...

One picture of a run (PNG), and the data beside it. RUN is a run folder or its name in runs/.

  filters     the kernels of the first layer (paper, figure 3)
  sizes       the sizes of the groups, the largest first; --beside RUN shows another run's too
  curves      loss beside ln k, agreement of the groups, seconds per phase, by epoch
  clusters    contact sheets: the most central, random and most marginal images of groups
  neighbours  images and their 3 nearest neighbours, untrained beside trained
  top         the 9 images that excite each filter of a layer most (paper, figure 4)
  ascent      the image that each filter of a layer wants to see, by gradient ascent (figure 4)

  --out DIR   where to write (RUN/figures)     --layer NAME    of top and ascent: conv1, ...
  --count N   rows of the picture              --filters N ... of top and ascent
  --seed S    names what is chosen at random   --groups N ...  of clusters
  --device D  cpu, cuda or auto                --beside RUN    of sizes
  --steps N   of ascent (200)
"""


@dataclass(frozen=True)
class Easel:
    """What a picture is made with."""

    folder: RunFolder
    asked: Show
    display: Display
    device: torch.device

    def write(self, name: str, content: bytes | Image.Image) -> None:
        """Put a file beside the others, and say so."""
        target = RunFolder(self.asked.out or self.folder.path / "figures")
        if isinstance(content, Image.Image):
            stream = io.BytesIO()
            content.save(stream, "PNG")
            content = stream.getvalue()
        target.write(name, content)
        self.display.say(f"written to {target.path / name}")

    def write_table(
        self, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        """The data of a picture, for other programs."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        self.write(name, text.getvalue().encode())

    @property
    def workers(self) -> int:
        """Threads that crop images."""
        return os.cpu_count() or 1

    def shape(self) -> Shape:
        """Of the run's network."""
        return Shape.of_run(self.folder)


def show(words: list[str]) -> int:
    """Carry out `deepcluster show`; gives the exit code."""
    if not words or {"-h", "--help"} & {*words}:
        Display().say(_HELP)
        return 0
    if len([word for word in words[:2] if not word.startswith("-")]) < 2:
        raise UsageError(f"show what? deepcluster show RUN WHAT; there are {', '.join(PICTURES)}")
    run, what, rest = words[0], words[1], words[2:]
    if what not in PICTURES:
        close = get_close_matches(what, PICTURES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(PICTURES)}"
        raise UsageError(f"no such picture {what!r}; {hint}")
    refuse_unknown(rest, ["--" + entry.name for entry in fields(Show)], "deepcluster show", {})
    asked = parsed(Show, rest, "show")
    if asked.count is not None and asked.count < 1:
        raise UsageError(f"--count {asked.count}: use at least 1")
    if asked.steps < 1:
        raise UsageError(f"--steps {asked.steps}: use at least 1")
    # Curves are of any run; all else needs what the closing pass writes.
    folder = begun_run(run, "show") if what == "curves" else trained_run(run)
    with (
        interruption.noticed(),
        joined(asked.device) as world,
        Display(speaks=world.leads).shown() as display,
    ):
        if world.leads:  # started by torchrun, one process is enough
            PICTURES[what](Easel(folder, asked, display, world.device))
    return 0


def _filters(easel: Easel) -> None:
    kernels = first_kernels(of_run(easel.folder).network)
    easel.write("filters.png", Image.fromarray(grid(kernels, scale=8)))
    stream = io.BytesIO()
    np.save(stream, kernels.numpy(), allow_pickle=False)
    easel.write("filters.npy", stream.getvalue())


def _sizes(easel: Easel) -> None:
    runs = [easel.folder]
    if easel.asked.beside is not None:
        runs.append(trained_run(easel.asked.beside))
    counts = {run.path.name: np.bincount(_known(_grouped(run)[0])) for run in runs}
    easel.write("sizes.png", plots.sizes(counts))
    rows = [(name, group, size) for name, some in counts.items() for group, size in enumerate(some)]
    easel.write_table("sizes.csv", ["run", "group", "images"], rows)


def _curves(easel: Easel) -> None:
    journal = easel.folder.journal()
    if not journal:
        raise ResumeError(f"{easel.folder.path} has no epoch yet, and so no curves")
    easel.write("curves.png", plots.curves(journal))
    names = ["epoch", "loss", "ln_k", "clustering_loss", "nmi_last", "nmi_labels"]
    phases = ["look", "group", "learn"]
    rows = [
        [*(entry.get(name) for name in names), *(entry.get("seconds", {}).get(p) for p in phases)]
        for entry in journal
    ]
    easel.write_table("curves.csv", [*names, *(f"seconds_{phase}" for phase in phases)], rows)


def _clusters(easel: Easel) -> None:
    labels, distances = _grouped(easel.folder)
    counts = np.bincount(_known(labels))
    groups = list(easel.asked.groups)
    for group in groups:
        if not 0 <= group < len(counts) or not counts[group]:
            raise UsageError(
                f"--groups {group}: there is no such group; there are 0 to {len(counts) - 1}"
            )
    largest = np.argsort(-counts, kind="stable")[: easel.asked.count or 20].tolist()
    randomness = np.random.default_rng(easel.asked.seed)
    sheets = [sheet_of(group, labels, distances, 4, randomness) for group in groups or largest]
    images = RunImages.of(easel.folder, easel.shape().input_size)
    pictures = [
        [images.picture(n) for n in (*one.central, *one.random, *one.marginal)] for one in sheets
    ]
    easel.write("clusters.png", sheet(pictures))
    rows = [
        (one.group, one.size, kind, number, images.names[number])
        for one in sheets
        for kind in ("central", "random", "marginal")
        for number in getattr(one, kind)
    ]
    easel.write_table("clusters.csv", ["group", "size", "kind", "id", "path"], rows)


def _neighbours(easel: Easel) -> None:
    shape, seed = easel.shape(), easel.asked.seed
    images = RunImages.of(easel.folder, shape.input_size)
    chosen = torch.randperm(len(images.images), generator=generator(seed, "neighbours"))
    ids = sorted(chosen[:_LOOKED_AT].tolist())
    if len(ids) < 4:
        raise UsageError(f"{easel.folder.path} has {len(ids)} images; neighbours need at least 4")
    effective = easel.folder.settings["effective"]
    before = untrained(shape, int(effective.get("seed", 0))).network
    places = {number: place for place, number in enumerate(ids)}
    queries = [places[number] for number in sorted(chosen[: easel.asked.count or 8].tolist())]
    found = []
    for title, network in (("untrained", before), ("trained", of_run(easel.folder).network)):
        network = network.to(easel.device)
        with easel.display.phase(f"looking, {title}", len(ids), {}, "look") as phase:
            rows = whitened_rows(
                looked_at(network, str(effective.get("network.clustered", "top"))),
                images.images.seen(ids, _BATCH, easel.workers),
                int(effective.get("whitening.dimensions", 256)),
                easel.device,
                phase.advance,
            )
        found.append(nearest_images(rows, queries).tolist())
    table, pictures = [], []
    for query, one, other in zip(queries, *found, strict=True):
        numbers = [ids[place] for place in (query, *one, *other)]
        pictures.append([images.picture(number) for number in numbers])
        for kind, some in (("untrained", numbers[1:4]), ("trained", numbers[4:])):
            for rank, number in enumerate(some, 1):
                table.append((images.names[numbers[0]], kind, rank, number, images.names[number]))
    easel.display.say(
        f"each row: a query, its 3 nearest of {len(ids):,} images untrained, its 3 nearest trained"
    )
    easel.write("neighbours.png", sheet(pictures))
    easel.write_table("neighbours.csv", ["query", "network", "rank", "id", "path"], table)


def _top(easel: Easel) -> None:
    network = of_run(easel.folder).network.to(easel.device)
    layer = easel.asked.layer or _last_convolution(list(network.layers))
    if layer not in network.layers:
        raise UsageError(
            f"--layer {layer}: no layer is called so; there are {', '.join(network.layers)}"
        )
    images = RunImages.of(easel.folder, easel.shape().input_size)
    total = len(images.images)
    with easel.display.phase(f"looking for what {layer} likes", total, {}, "look") as phase:
        top = top_images(
            network,
            images.images,
            range(total),
            layer,
            batch=_BATCH,
            workers=easel.workers,
            advance=phase.advance,
        )
    for number in easel.asked.filters:
        if not 0 <= number < len(top.images):
            last = len(top.images) - 1
            raise UsageError(f"--filters {number}: {layer} has filters 0 to {last}")
    shown = list(easel.asked.filters) or top.most_telling(easel.asked.count or 24)
    rows = [[images.picture(number) for number in top.images[f].tolist()] for f in shown]
    easel.write(f"top-{layer}.png", sheet(rows))
    easel.display.say(f"rows are filters {', '.join(map(str, shown))}")
    table = [
        (number, rank, image, images.names[image], f"{value:.6g}")
        for number, (some, values) in enumerate(
            zip(top.images.tolist(), top.values.tolist(), strict=True)
        )
        for rank, (image, value) in enumerate(zip(some, values, strict=True), 1)
    ]
    easel.write_table(f"top-{layer}.csv", ["filter", "rank", "id", "path", "activation"], table)


def _ascent(easel: Easel) -> None:
    network = of_run(easel.folder).network.to(easel.device)
    layer = easel.asked.layer or _last_convolution(list(network.layers))
    if layer not in network.layers:
        raise UsageError(
            f"--layer {layer}: no layer is called so; there are {', '.join(network.layers)}"
        )
    size, filters = easel.shape().input_size, list(easel.asked.filters)
    ascent = GradientAscent(steps=easel.asked.steps)
    filters = filters or list(
        range(min(easel.asked.count or 24, filter_count(network, layer, size)))
    )
    made = []
    total = ascent.steps * len(filters)
    with easel.display.phase(f"what {layer} wants to see", total, {}, "ascent") as phase:
        for start in range(0, len(filters), _BATCH):
            some = filters[start : start + _BATCH]
            made.append(ascent(network, layer, some, size, easel.asked.seed, phase.advance))
    images = torch.cat(made)
    chances = likelihoods_of(network, layer, images)
    pictures: list[Image.Image | None] = [Image.fromarray(one) for one in shown(images)]
    across = 8
    rows = [pictures[start : start + across] for start in range(0, len(pictures), across)]
    easel.write(f"ascent-{layer}.png", sheet(rows, side=max(96, size)))
    table = [
        (number, place // across + 1, place % across + 1, f"{float(chances[place, number]):.6g}")
        for place, number in enumerate(filters)
    ]
    easel.write_table(f"ascent-{layer}.csv", ["filter", "row", "column", "objective"], table)


PICTURES: dict[str, Callable[[Easel], None]] = {
    "filters": _filters,
    "sizes": _sizes,
    "curves": _curves,
    "clusters": _clusters,
    "neighbours": _neighbours,
    "top": _top,
    "ascent": _ascent,
}


def _last_convolution(names: list[str]) -> str:
    return next((name for name in reversed(names) if name.startswith("conv")), names[0])


def _known(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    return labels[labels >= 0]


def _grouped(folder: RunFolder) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    if folder.finished:
        folder.verified("clusters.parquet")  # an imported network has none, and that is said
    try:
        # Not read_table: its threads, beside torch's, can abort the process when it ends.
        table: Any = pq.ParquetFile(folder.path / "clusters.parquet").read(use_threads=False)
        return table["cluster"].to_numpy().astype(np.int64), table["distance"].to_numpy()
    except (OSError, ValueError, KeyError) as error:
        raise ResumeError(f"{folder.path}/clusters.parquet cannot be read ({error})") from error
