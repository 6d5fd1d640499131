"""A finished run being looked at: its network, images, and what pictures need of both."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from deepcluster.evaluation.evaluated import of_run, untrained
from deepcluster.evaluation.subject import Shape
from deepcluster.features.sampled import whitened_rows
from deepcluster.images.album import Album, selection_of
from deepcluster.networks import Network, looked_at
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import ResumeError, UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.seeds import generator
from deepcluster.visuals.gradient_ascent import GradientAscent, filter_count, likelihoods_of, shown
from deepcluster.visuals.neighbours import Retrieved, nearest_images
from deepcluster.visuals.ontology import Ontology
from deepcluster.visuals.panels import Block, laid_out, named_tile, strip
from deepcluster.visuals.purity import Panel, Pure, panels_of
from deepcluster.visuals.top_images import TopImages, top_images

_BATCH = 128
_LARGER = 112  # pixels: there are few of them
_LOOKED_AT = 5_000  # images among which neighbours are sought


class Ascended(NamedTuple):
    """The images that filters want to see, row i for filter i of those asked for."""

    pictures: list[Image.Image]
    objectives: list[float]
    """The log-probability of each filter among those of its layer."""


class Purity(NamedTuple):
    """How pure the groups are, by classes or by the synsets above them."""

    panels: list[Panel]
    bars: list[Pure]


@dataclass(frozen=True)
class ViewedRun:
    """A run, who is told of progress, and what computes."""

    folder: RunFolder
    display: Display
    device: torch.device
    elsewhere: Path | None = None
    """Images to look at in the place of the run's own."""

    @cached_property
    def shape(self) -> Shape:
        """Of the run's network."""
        return Shape.of_run(self.folder)

    @cached_property
    def network(self) -> Network:
        """What the run has learned."""
        return of_run(self.folder).network.to(self.device)

    @cached_property
    def album(self) -> Album:
        """The images that are looked at; image i of the run's own is image i of its tables."""
        size = self.shape.input_size
        if self.elsewhere is None:
            if "imported" in self.folder.closing:
                raise UsageError(
                    f"{self.folder.path} was imported and has no images of its own; give --images "
                    "IMAGES to look among"
                )
            return Album.of_run(self.folder, size)
        with self.display.phase("reading the images", 1, {}, "read") as phase:
            how = selection_of(self.folder)
            album = Album.of_images(self.elsewhere, size, self.workers, phase.reached, how)
        if not len(album):
            raise UsageError(f"{self.elsewhere}: no usable image is there")
        return album

    def picture(self, number: int) -> Image.Image:
        """An image of the album; a grey tile with its name where the file is gone."""
        return self.album.picture(number) or named_tile(self.album.names[number])

    @property
    def workers(self) -> int:
        """Threads that crop images."""
        return os.cpu_count() or 1

    @cached_property
    def grouped(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The group of every image, -1 for none, and the distance to its centre."""
        path = self.folder.verified("clusters.parquet")
        try:
            # Not read_table: its threads, beside torch's, can abort the process when it ends.
            table = pq.ParquetFile(path).read(use_threads=False)
            return table["cluster"].to_numpy().astype(np.int64), table["distance"].to_numpy()
        except (OSError, ValueError, KeyError) as error:
            raise ResumeError(f"{path} cannot be read ({error})") from error

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Of the groups, by their number."""
        labels, _ = self.grouped
        return np.bincount(labels[labels >= 0])

    def features(self) -> NDArray[np.float16]:
        """The whitened features of every image, mapped from the disk."""
        path = self.folder.verified("features.npy")
        try:
            rows: NDArray[np.float16] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ResumeError(f"{path} cannot be read ({error})") from error
        if rows.ndim != 2 or len(rows) != len(self.grouped[0]):
            raise ResumeError(f"{path} does not have one row for each image of clusters.parquet")
        return rows

    def layer(self, name: str | None) -> str:
        """The layer of this name; the last convolution if none is given."""
        names = list(self.network.layers)
        if name is None:
            return next((each for each in reversed(names) if each.startswith("conv")), names[0])
        if name not in names:
            raise UsageError(f"--layer {name}: no layer is called so; there are {', '.join(names)}")
        return name

    def filters(self, layer: str) -> int:
        """How many filters a layer has."""
        return filter_count(self.network, layer, self.shape.input_size)

    def top(self, layer: str, wanted: Sequence[int] = ()) -> TopImages:
        """The nine images that excite each filter most; refuses filters that are not there."""
        self._refuse_filters(layer, wanted)
        total = len(self.album)
        with self.display.phase(f"looking for what {layer} likes", total, {}, "look") as phase:
            return top_images(
                self.network,
                self.album.images,
                range(total),
                layer,
                batch=_BATCH,
                workers=self.workers,
                advance=phase.advance,
            )

    def ascended(self, layer: str, filters: Sequence[int], steps: int, seed: int) -> Ascended:
        """What each of these filters wants to see, by gradient ascent."""
        self._refuse_filters(layer, filters)
        ascent, size, made = GradientAscent(steps=steps), self.shape.input_size, []
        total = steps * len(filters)
        with self.display.phase(f"what {layer} wants to see", total, {}, "ascent") as phase:
            for start in range(0, len(filters), _BATCH):
                some = filters[start : start + _BATCH]
                made.append(ascent(self.network, layer, some, size, seed, phase.advance))
        images: Tensor = torch.cat(made)
        chances = likelihoods_of(self.network, layer, images)
        return Ascended(
            [Image.fromarray(one) for one in shown(images)],
            [float(chances[place, number]) for place, number in enumerate(filters)],
        )

    def retrieved(self, count: int, seed: int) -> Retrieved:
        """Random queries and their three nearest images, by the network untrained and trained."""
        chosen = torch.randperm(len(self.album), generator=generator(seed, "neighbours"))
        ids = sorted(chosen[:_LOOKED_AT].tolist())
        if len(ids) < 4:
            raise UsageError(f"{self.folder.path} has {len(ids)} images; neighbours need 4 or more")
        effective = self.folder.settings["effective"]
        before = untrained(self.shape, int(effective.get("seed", 0))).network
        places = {number: place for place, number in enumerate(ids)}
        queries = [places[number] for number in sorted(chosen[:count].tolist())]
        found = []
        for title, network in (("untrained", before), ("trained", self.network)):
            with self.display.phase(f"looking, {title}", len(ids), {}, "look") as phase:
                rows = whitened_rows(
                    looked_at(
                        network.to(self.device),
                        str(effective.get("network.clustered", "top")),
                        int(effective.get("network.views", 1)),
                    ),
                    self.album.images.seen(ids, _BATCH, self.workers),
                    int(effective.get("whitening.dimensions", 256)),
                    self.device,
                    phase.advance,
                )
            nearest = nearest_images(rows, queries).tolist()
            found.append([[ids[place] for place in some] for some in nearest])
        return Retrieved([ids[query] for query in queries], found[0], found[1], len(ids))

    def page_of(self, found: Retrieved, before: str, after: str) -> Image.Image:
        """Row by row: a query, its nearest untrained, its nearest trained, under these titles."""

        def shown(numbers: list[int]) -> Block:
            return Block("", [strip([self.picture(number) for number in numbers], _LARGER)])

        lines = [
            [shown([query]), shown(untrained), shown(trained)]
            for query, untrained, trained in zip(
                found.queries, found.untrained, found.trained, strict=True
            )
        ]
        return laid_out(lines, ["query", before, after])

    def _refuse_filters(self, layer: str, wanted: Sequence[int]) -> None:
        last = self.filters(layer) - 1 if wanted else 0
        for number in wanted:
            if not 0 <= number <= last:
                raise UsageError(f"--filters {number}: {layer} has filters 0 to {last}")


def purity_of(run: ViewedRun, wordnet: Path | None, words: Path | None) -> Purity:
    """By the folders that the images lie in; with a list of WordNet's, by synsets above them."""
    if words is not None and wordnet is None:
        raise UsageError("--words: give --wordnet, WordNet's is-a list, too")
    ontology = None if wordnet is None else Ontology.read(wordnet, words)
    index = Album.of_run(run.folder).index
    if index.labels is None or index.classes is None:
        raise UsageError(
            f"purity needs classes: the images of {run.folder.path} are not all in folders, two "
            "of them at least"
        )
    labels, _ = run.grouped
    if ontology is not None:
        unknown = [name for name in index.classes if name not in ontology.parents]
        if unknown and len(unknown) < len(index.classes):
            run.display.say(
                f"{len(unknown):,} of {len(index.classes):,} classes are not in {wordnet} "
                f"(the first is {unknown[0]}); their images count as others"
            )
    return Purity(*panels_of(labels, index.labels, index.classes, ontology))
