"""The verb show: one picture of a run or of its network, with the data beside it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from PIL import Image

from deepcluster.evaluation.subject import begun_run, trained_run
from deepcluster.flags import Count, parsed, refuse_unknown, shown_as
from deepcluster.images.threads import in_order
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import ResumeError, UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.seeds import generator
from deepcluster.runtime.world import joined
from deepcluster.viewed_run import ViewedRun, purity_of
from deepcluster.visuals import feature_map, plots, tables
from deepcluster.visuals.cluster_sheet import sheet_of
from deepcluster.visuals.filters import first_kernels, grid
from deepcluster.visuals.panels import Block, in_rows, laid_out, square, strip
from deepcluster.visuals.tables import csv_of
from deepcluster.visuals.thumbnails import SIDE, centred_square, png_of

_MAPPED = 3_000  # images on a map


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
    """How many rows the picture has (clusters 20, neighbours 8, top 24), filters (ascent 24), or
    images (map 3,000)."""

    steps: int = 200
    """ascent: how many steps."""

    beside: Annotated[str | None, shown_as("RUN")] = None
    """sizes: another run to show beside this one, such as one of power iteration."""

    images: Annotated[Path | None, shown_as("IMAGES")] = None
    """top, neighbours: images to look among in the place of the run's own."""

    wordnet: Annotated[Path | None, shown_as("FILE")] = None
    """purity: WordNet's is-a list, such as ImageNet's wordnet.is_a.txt."""

    words: Annotated[Path | None, shown_as("FILE")] = None
    """purity: what synsets are called, such as ImageNet's words.txt."""

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
  purity      how many images lie in groups of one class, or of one synset (appendix)
  map         the images on a map of their features, framed in the colours of their groups

  --out DIR   where to write (RUN/figures)     --layer NAME    of top and ascent: conv1, ...
  --count N   rows of the picture              --filters N ... of top and ascent
  --seed S    names what is chosen at random   --groups N ...  of clusters
  --device D  cpu, cuda or auto                --beside RUN    of sizes
  --steps N   of ascent (200)                  --images IMAGES to look among, of top, neighbours
  --wordnet wordnet.is_a.txt --words words.txt of purity: synsets above the classes
"""


@dataclass(frozen=True)
class Easel:
    """What a picture is made with."""

    run: ViewedRun
    asked: Show

    def write(self, name: str, content: bytes | Image.Image) -> None:
        """Put a file beside the others, and say so."""
        target = RunFolder(self.asked.out or self.run.folder.path / "figures")
        target.write(name, png_of(content) if isinstance(content, Image.Image) else content)
        self.run.display.say(f"written to {target.path / name}")

    def write_table(
        self, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        """The data of a picture, for other programs."""
        self.write(name, csv_of(columns, rows))


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
            viewed = ViewedRun(folder, display, world.device, asked.images)
            PICTURES[what](Easel(viewed, asked))
    return 0


def _filters(easel: Easel) -> None:
    kernels = first_kernels(easel.run.network)
    easel.write("filters.png", Image.fromarray(grid(kernels, scale=8)))
    stream = io.BytesIO()
    np.save(stream, kernels.numpy(), allow_pickle=False)
    easel.write("filters.npy", stream.getvalue())


def _sizes(easel: Easel) -> None:
    runs = [easel.run]
    if easel.asked.beside is not None:
        runs.append(replace(easel.run, folder=trained_run(easel.asked.beside)))
    counts = {run.folder.path.name: run.sizes for run in runs}
    easel.write("sizes.png", plots.sizes(counts))
    easel.write_table("sizes.csv", *tables.sizes(counts))


def _curves(easel: Easel) -> None:
    folder = easel.run.folder
    journal = folder.journal()
    if not journal:
        raise ResumeError(f"{folder.path} has no epoch yet, and so no curves")
    easel.write("curves.png", plots.curves(journal))
    names = ["epoch", "loss", "ln_k", "clustering_loss", "nmi_last", "nmi_labels"]
    phases = ["look", "group", "learn"]
    rows = [
        [*(entry.get(name) for name in names), *(entry.get("seconds", {}).get(p) for p in phases)]
        for entry in journal
    ]
    easel.write_table("curves.csv", [*names, *(f"seconds_{phase}" for phase in phases)], rows)


def _clusters(easel: Easel) -> None:
    with easel.run.display.phase("reading images and groups", 1, {}, "read"):
        labels, distances = easel.run.grouped
        easel.run.album.prepare()
    counts = easel.run.sizes
    groups = list(easel.asked.groups)
    for group in groups:
        if not 0 <= group < len(counts) or not counts[group]:
            raise UsageError(
                f"--groups {group}: there is no such group; there are 0 to {len(counts) - 1}"
            )
    largest = np.argsort(-counts, kind="stable")[: easel.asked.count or 20].tolist()
    randomness = np.random.default_rng(easel.asked.seed)
    sheets = [sheet_of(group, labels, distances, 4, randomness) for group in groups or largest]
    pictures = [
        [
            Block(title, [_strip(easel, some)] if some else [])
            for title, some in (
                (f"group {one.group}, {one.size:,} images", one.central),
                ("", one.random),
                ("", one.marginal),
            )
        ]
        for one in sheets
    ]
    easel.write("clusters.png", laid_out(pictures, ["most central", "at random", "most marginal"]))
    names = easel.run.album.names
    rows = [
        (one.group, one.size, kind, number, names[number])
        for one in sheets
        for kind in ("central", "random", "marginal")
        for number in getattr(one, kind)
    ]
    easel.write_table("clusters.csv", ["group", "size", "kind", "id", "path"], rows)


def _neighbours(easel: Easel) -> None:
    found = easel.run.retrieved(easel.asked.count or 8, easel.asked.seed)
    easel.write("neighbours.png", easel.run.page_of(found, "untrained", "trained"))
    easel.write_table("neighbours.csv", *tables.neighbours(found, easel.run.album.names))


def _top(easel: Easel) -> None:
    layer = easel.run.layer(easel.asked.layer)
    top = easel.run.top(layer, easel.asked.filters)
    shown = list(easel.asked.filters) or top.most_telling(easel.asked.count or 24)
    blocks = [Block(f"filter {f}", [_strip(easel, top.images[f].tolist())]) for f in shown]
    easel.write(f"top-{layer}.png", laid_out(in_rows(blocks, 1)))
    easel.write_table(f"top-{layer}.csv", *tables.top({layer: top}, easel.run.album.names))


def _ascent(easel: Easel) -> None:
    layer = easel.run.layer(easel.asked.layer)
    count = min(easel.asked.count or 24, easel.run.filters(layer))
    filters = list(easel.asked.filters) or list(range(count))
    made = easel.run.ascended(layer, filters, easel.asked.steps, easel.asked.seed)
    across = 8
    side = max(SIDE, easel.run.shape.input_size)
    blocks = [
        Block(f"filter {number}", [square(picture, side)])
        for number, picture in zip(filters, made.pictures, strict=True)
    ]
    easel.write(f"ascent-{layer}.png", laid_out(in_rows(blocks, across)))
    table = [
        (number, place // across + 1, place % across + 1, f"{objective:.6g}")
        for place, (number, objective) in enumerate(zip(filters, made.objectives, strict=True))
    ]
    easel.write_table(f"ascent-{layer}.csv", ["filter", "row", "column", "objective"], table)


def _strip(easel: Easel, numbers: Sequence[int]) -> Image.Image:
    return strip([easel.run.picture(number) for number in numbers])


def _purity(easel: Easel) -> None:
    found = purity_of(easel.run, easel.asked.wordnet, easel.asked.words)
    easel.write("purity.png", plots.purity(found.panels))
    easel.write_table("purity.csv", *tables.purity(found.bars))


def _map(easel: Easel) -> None:
    labels, _ = easel.run.grouped
    features = easel.run.features()
    known = np.flatnonzero(labels >= 0)
    most = easel.asked.count or _MAPPED
    chosen = torch.randperm(len(known), generator=generator(easel.asked.seed, "map"))[:most]
    ids = known[np.sort(chosen.numpy())]
    if len(ids) < feature_map.LEAST:
        raise UsageError(f"a map needs at least {feature_map.LEAST} images; here are {len(ids)}")
    display = easel.run.display
    if len(ids) < len(known):
        display.say(f"a random {len(ids):,} of {len(known):,} images; --count N maps more or fewer")
    how = feature_map.method()
    with display.phase(f"mapping {len(ids):,} images by {how}", 1, {}, "map"):
        places = feature_map.mapped(features[ids].astype(np.float32), easel.asked.seed)
    cells = feature_map.cells_of(places)
    album = easel.run.album
    with display.phase("thumbnails", len(ids), {}, "draw") as phase:
        pictures: list[Image.Image] = []
        for picture in in_order(easel.run.picture, ids.tolist(), easel.run.workers):
            pictures.append(centred_square(picture, feature_map.SIDE))
            phase.advance()
            interruption.raise_if_asked()
    easel.write("map.png", feature_map.drawn(pictures, cells, labels[ids]))
    rows = [
        (number, album.names[number], f"{x:.6g}", f"{y:.6g}", labels[number], column, row)
        for number, (x, y), (column, row) in zip(
            ids.tolist(), places.tolist(), cells.tolist(), strict=True
        )
    ]
    columns = ["id", "path", "x", "y", "cluster", "column", "row"]
    easel.write_table("map.csv", columns, rows)


PICTURES: dict[str, Callable[[Easel], None]] = {
    "filters": _filters,
    "sizes": _sizes,
    "curves": _curves,
    "clusters": _clusters,
    "neighbours": _neighbours,
    "top": _top,
    "ascent": _ascent,
    "purity": _purity,
    "map": _map,
}
