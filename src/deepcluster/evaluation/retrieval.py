"""Finding photographs of the same landmark by R-MAC (paper, section 5.3, table 5)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from deepcluster.evaluation.bench import Bench, frozen
from deepcluster.evaluation.evaluated import Evaluated
from deepcluster.evaluation.landmarks import (
    Landmarks,
    Query,
    Relevance,
    images_of,
    read_landmarks,
)
from deepcluster.evaluation.linear_probe import chosen_layers
from deepcluster.evaluation.ranking import Ranking
from deepcluster.evaluation.rmac import region_vectors, rmac
from deepcluster.evaluation.transfer import (
    Contender,
    Material,
    Outcome,
    Shown,
    Stages,
    percent,
)
from deepcluster.evaluation.whole_images import LEAST, Wanted, WholeImages
from deepcluster.features import PCA
from deepcluster.features.moments import Moments
from deepcluster.features.whiten import fitted
from deepcluster.images.crops import normalize
from deepcluster.images.folder import encoded
from deepcluster.images.source import Folder, Source, is_store, quick_check, source_of
from deepcluster.networks import Network
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import DataError, UsageError

PRECISIONS = (1, 5, 10)
"""How many first images the revisited protocol looks at."""


@dataclass(frozen=True)
class Retrieval:
    """The mean average precision of R-MAC vectors, compared by cosine."""

    whiten_on: str | None = None
    """Images the whitening is learnt on: the other city, any folder or list; none: not whitened."""

    images: str | None = None
    """The images that are searched, if not data/images."""

    ground_truth: str | None = None
    """Folder of *_query.txt files, or the revisited ground truth as JSON, if not in data."""

    layer: str | None = None
    """A layer by name; the last convolution (or last layer of maps) if not given."""

    size: int = 1024
    """Pixels of the longer side of every image; smaller ones are enlarged."""

    levels: int = 3
    """Sizes of regions."""

    dimensions: int | None = None
    """Dimensions of the whitening; as many as the layer has channels if not given."""

    queries: Literal["box", "image"] = "box"
    """box: what a query's box shows. image: its whole image."""

    batch: int = 8
    """Images of equal shape that the network sees at once."""

    seeds: tuple[int, ...] = (0,)
    """Of random: one figure for each, and their spread. A trained network has but one."""

    def validate(self) -> None:
        """Refuse what cannot be carried out."""
        for flag, value, good, bounds in (
            ("--size", self.size, self.size >= LEAST, f"at least {LEAST}"),
            ("--levels", self.levels, self.levels >= 1, "at least 1"),
            ("--batch", self.batch, self.batch >= 1, "at least 1"),
            (
                "--dimensions",
                self.dimensions,
                self.dimensions is None or self.dimensions >= 1,
                "at least 1",
            ),
        ):
            if not good:
                raise UsageError(f"{flag} {value}: use {bounds}")
        if not self.seeds:
            raise UsageError("--seeds: name at least one")

    def __call__(
        self, contender: Contender, material: Material, bench: Bench, stages: Stages
    ) -> Outcome:
        """Search with the network of each seed; what is finished is kept."""
        self.validate()
        images, truth = (place and Path(place) for place in (self.images, self.ground_truth))
        landmarks = read_landmarks(material.data, images or None, truth or None)
        other = whitening_source(self.whiten_on)
        bench.display.say(
            f"{len(landmarks.paths):,} images and {len(landmarks.queries):,} queries"
            + ("" if other is None else f"; the whitening is learnt on {encoded(str(other.place))}")
        )
        common = {
            "data": landmarks.fingerprint,
            "whitening": None if other is None else _fingerprint(other),
            "settings": {**asdict(self), "seeds": None, "batch": None},
        }
        results: dict[str, dict[str, Any]] = {}  # a trained network is the same for every seed
        for seed in self.seeds:
            subject = contender.network(seed)
            name = subject.fingerprint
            if name in results:
                continue

            def judge(subject: Evaluated = subject) -> dict[str, Any]:
                return asdict(self.judged(subject, landmarks, other, bench))

            found = stages("retrieval", {**common, "network": name}, judge)
            results[name] = {"seed": seed, **found}
        return _outcome(contender.name, self, list(results.values()), landmarks, other)

    def judged(
        self, subject: Evaluated, landmarks: Landmarks, whiten_on: Source | None, bench: Bench
    ) -> RetrievalResult:
        """How well each query finds the other photographs of its landmark.

        Args:
            subject: The network; it stays as it is.
            landmarks: The images that are searched, and the queries.
            whiten_on: Other images, by which regions are whitened; None leaves that out.
            bench: Device, threads and arithmetic.
        """
        self.validate()
        begun = time.monotonic()
        network = subject.network
        layer = map_layer(network, self.layer, bench)
        unusable: dict[str, str] = {}  # of this process's share, with reasons
        pca = None
        whitened_on = 0
        unlearnt: dict[str, str] = {}  # of the images for the whitening, of this share too
        if whiten_on is not None:
            pca, whitened_on = self._whitening(network, layer, whiten_on, bench, unlearnt)
        source = Folder(landmarks.images)
        database = [Wanted(path) for path in landmarks.paths]
        rows, usable = self._described(
            network, layer, source, database, pca, bench, unusable, "describing images"
        )
        boxes = self.queries == "box"
        asked = [Wanted(q.path, q.box if boxes else None) for q in landmarks.queries]
        query_rows, askable = self._described(
            network, layer, source, asked, pca, bench, unusable, "describing queries"
        )
        left_out = list(landmarks.left_out)
        results = []
        known = {int(i) for i in usable.nonzero()}
        damaged = [path for i, path in enumerate(landmarks.paths) if i not in known]
        for query, row, ok in zip(landmarks.queries, query_rows, askable.tolist(), strict=True):
            if not ok:
                why = unusable.get(query.path, "cannot be used")
                left_out.append(f"{query.name}: {encoded(query.path)}: {why}")
                continue
            results.append(_found(query, rows @ row, known))
        if not results:
            raise DataError(f"no query can be asked: {left_out[0]}")
        levels = {
            level: _summary([r.levels[level] for r in results if level in r.levels])
            for level in landmarks.levels
        }
        return RetrievalResult(
            levels=levels,
            queries=results,
            layer=layer,
            width=rows.shape[1],
            images=len(known),
            whitened_on=whitened_on,
            absent=landmarks.absent,
            left_out=left_out,
            unusable=[f"{encoded(path)}: {unusable.get(path, 'unusable')}" for path in damaged],
            not_whitened_on=[f"{encoded(path)}: {why}" for path, why in unlearnt.items()],
            seconds=round(time.monotonic() - begun, 3),
        )

    def _whitening(
        self,
        network: Network,
        layer: str,
        source: Source,
        bench: Bench,
        unusable: dict[str, str],
    ) -> tuple[PCA, int]:
        """The whitening of all regions of these images, and how many images they are of."""
        wanted = [Wanted(found.path) for found in source.find() if found.reason is None]
        width = _channels(network, layer, bench)
        moments = Moments(width, bench.world.device)
        images = 0
        title = "learning the whitening"
        for numbers, vectors in self._vectors(
            network, layer, source, wanted, bench, unusable, title
        ):
            rows = vectors.flatten(0, 1)
            moments.add(rows[rows.isfinite().all(dim=1)])
            images += len(numbers)
        images = sum(bench.world.counts(images))
        if not images:
            raise DataError(f"--whiten-on {encoded(str(source.place))}: no image can be used")
        return fitted(moments.over(bench.world), self.dimensions or width, bench.world), images

    def _described(
        self,
        network: Network,
        layer: str,
        source: Source,
        wanted: Sequence[Wanted],
        pca: PCA | None,
        bench: Bench,
        unusable: dict[str, str],
        title: str,
    ) -> tuple[Tensor, Tensor]:
        """One row for each image, on every process, and which of them are usable (CPU)."""
        world = bench.world
        share = world.share(len(wanted))
        mine = wanted[share.start : share.stop]
        width = _channels(network, layer, bench) if pca is None else pca.projection.shape[1]
        rows = torch.zeros(len(mine), width, device=world.device)
        usable = torch.zeros(len(mine), dtype=torch.uint8)
        for numbers, vectors in self._vectors(
            network, layer, source, wanted, bench, unusable, title
        ):
            rows[numbers] = rmac(vectors, pca)
            usable[numbers] = 1
        return world.gather(rows), world.gather(usable)

    def _vectors(
        self,
        network: Network,
        layer: str,
        source: Source,
        wanted: Sequence[Wanted],
        bench: Bench,
        unusable: dict[str, str],
        title: str,
    ) -> Iterator[tuple[list[int], Tensor]]:
        """The region vectors of this process's share, and which of its images they are of."""
        world = bench.world
        share = world.share(len(wanted))
        mine = wanted[share.start : share.stop]
        images = WholeImages(source, self.size)
        with (
            frozen(network),
            torch.no_grad(),
            bench.display.phase(title, len(mine), {}, "look") as phase,
        ):
            for batch in images.batches(mine, self.batch, bench.workers, unusable):
                maps = _maps(network, layer, batch.pixels, bench)
                yield batch.numbers, region_vectors(maps, self.levels)
                phase.advance(len(batch.numbers))
                if world.size == 1:
                    interruption.raise_if_asked()


@dataclass(frozen=True)
class QueryResult:
    """What one query finds, for each level of difficulty at which something can be found."""

    name: str
    landmark: str
    levels: dict[str, Found]


@dataclass(frozen=True)
class Found:
    """Average precision, and precision at 1, 5 and 10; from 0 to 1."""

    average_precision: float
    precision_at: dict[int, float]


@dataclass(frozen=True)
class RetrievalResult:
    """The means over the queries, and every query's own."""

    levels: dict[str, dict[str, float]]
    """Of each level: map, precision at 1, 5 and 10, and the number of queries."""
    queries: list[QueryResult]
    layer: str
    width: int
    images: int
    whitened_on: int
    """Images that the whitening was learnt on; 0 where there is none."""
    absent: list[str]
    left_out: list[str]
    unusable: list[str]
    not_whitened_on: list[str]
    """Images that the whitening should have been learnt on and that cannot be used."""
    seconds: float


def whitening_source(place: str | None) -> Source | None:
    """The images that the user names to learn the whitening on; `none` leaves it out."""
    if place is None:
        raise UsageError(
            "whitening is learnt on other images than those that are searched: give --whiten-on "
            "DIR (the other city, or any folder or list of images), or --whiten-on none to leave "
            "it out, which is not the paper's protocol"
        )
    if place == "none":
        return None
    if is_store(place):
        raise UsageError(
            f"--whiten-on {place}: a packed store has small copies only; name the images themselves"
        )
    named = Path(place)
    found = images_of(named) if named.is_dir() else named
    quick_check(found)
    return source_of(found)


def map_layer(network: Network, asked: str | None, bench: Bench) -> str:
    """The layer asked for, or the last one that has maps."""
    if asked is not None:
        chosen_layers(network, (asked,))
        _channels(network, asked, bench)
        return asked
    for name in reversed(list(network.layers)):
        try:
            _channels(network, name, bench)
        except UsageError:
            continue
        return name
    raise UsageError("no layer of this network has maps, which R-MAC needs")


def _channels(network: Network, layer: str, bench: Bench) -> int:
    """How many maps a layer has."""
    side = 2 * LEAST  # images of other sizes must do, or the layer has no use here
    blank = torch.zeros(1, 3, side, side, dtype=torch.uint8)
    try:
        with frozen(network), torch.no_grad():
            maps = _maps(network, layer, blank, bench)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"--layer {layer}: this layer takes images of one size only; choose one before it"
        ) from error
    if maps.ndim != 4:
        raise UsageError(f"--layer {layer}: this layer has no maps, which R-MAC needs")
    return maps.shape[1]


def _maps(network: Network, layer: str, pixels: Tensor, bench: Bench) -> Tensor:
    device, autocast = bench.world.device, bench.autocast
    inputs = normalize(pixels.to(device, non_blocking=True))
    if device.type == "cuda":
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    with torch.autocast(device.type, autocast, enabled=autocast is not None):
        return network.activations(inputs, [layer])[layer]


def _found(query: Query, scores: Tensor, usable: set[int]) -> QueryResult:
    """What a query finds among the usable images; of equal scores the first path comes first."""
    order = torch.argsort(scores, descending=True, stable=True).cpu().numpy()
    order = order[np.isin(order, list(usable))]
    levels = {}
    for level, relevance in query.relevance.items():
        there = Relevance(relevance.positive & usable, relevance.ignored & usable)
        if not there.positive:
            continue  # nothing can be found: no figure, as the revisited protocol has it
        ranking = Ranking.of(order, there.positive, there.ignored)
        precisions = {count: ranking.precision_at(count) for count in PRECISIONS}
        levels[level] = Found(ranking.average_precision, precisions)
    return QueryResult(query.name, query.landmark, levels)


def _summary(found: Sequence[Found]) -> dict[str, float]:
    if not found:
        return {"queries": 0}
    precisions = {
        f"precision_at_{count}": float(np.mean([one.precision_at[count] for one in found]))
        for count in PRECISIONS
    }
    mean = float(np.mean([one.average_precision for one in found]))
    return {"map": mean, **precisions, "queries": len(found)}


def _fingerprint(source: Source) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for found in source.find():
        digest.update(f"{found.path} {found.size}\n".encode("utf-8", "replace"))
    return digest.hexdigest()


def _outcome(
    name: str,
    settings: Retrieval,
    results: Sequence[dict[str, Any]],
    landmarks: Landmarks,
    other: Source | None,
) -> Outcome:
    first = results[0]
    spread = len(results) > 1
    levels: dict[str, dict[str, float]] = {}
    rows = []
    for level, figures in first["levels"].items():
        every = [result["levels"][level] for result in results]
        levels[level] = {key: float(np.mean([one[key] for one in every])) for key in figures}
        if not figures["queries"]:
            continue
        if spread:
            levels[level]["spread"] = float(np.std([one["map"] for one in every], ddof=1))
        mean = levels[level]
        precisions = [percent(mean[f"precision_at_{count}"]) for count in PRECISIONS]
        row = [level, percent(mean["map"]), *precisions, f"{mean['queries']:.0f}"]
        rows.append([*row[:2], percent(mean["spread"]), *row[2:]] if spread else row)
    columns = ["level", "mAP"]
    columns += ["spread"] if spread else []
    columns += [f"P@{count}" for count in PRECISIONS] + ["asked"]
    title = f"{name}: R-MAC of {first['layer']} at {settings.size} px, {first['images']:,} images"
    return Outcome(
        data={**landmarks.described(), "whitening": other and encoded(str(other.place))},
        result={"levels": levels, "seeds": list(results)},
        tables=[Shown(title, columns, rows), _landmark_table(results, list(levels))],
        remarks=_remarks(first, landmarks, other),
    )


def _landmark_table(results: Sequence[dict[str, Any]], levels: Sequence[str]) -> Shown:
    """The mean average precision of each landmark's queries, over seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for query in (query for result in results for query in result["queries"]):
        places = found.setdefault(query["landmark"], {level: [] for level in levels})
        for level, one in query["levels"].items():
            places[level].append(one["average_precision"])
    rows = [
        [name, *(percent(float(np.mean(every))) if every else "-" for every in places.values())]
        for name, places in sorted(found.items())
    ]
    return Shown("mAP by landmark", ["landmark", *levels], rows)


def _remarks(result: dict[str, Any], landmarks: Landmarks, other: Source | None) -> list[str]:
    said = []
    if landmarks.absent:
        names = _some([encoded(name) for name in landmarks.absent])
        said.append(
            f"{_counted(landmarks.absent, 'image')} that the ground truth names "
            f"{'are' if len(landmarks.absent) > 1 else 'is'} not there: {names}; figures are of "
            "those that are"
        )
    if result["unusable"]:
        left = result["unusable"]
        said.append(f"{_counted(left, 'image')} cannot be used and left out: {_some(left)}")
    if result["not_whitened_on"]:
        left = result["not_whitened_on"]
        said.append(
            f"{_counted(left, 'image')} to learn the whitening on cannot be used: {_some(left)}"
        )
    if result["left_out"]:
        left = result["left_out"]
        verb = "are" if len(left) > 1 else "is"
        noun = "queries" if len(left) > 1 else "query"
        said.append(f"{len(left)} {noun} {verb} not asked: {_some(left)}")
    if other is None:
        said.append("regions are not whitened, as the paper's are: figures are no protocol's")
    elif other.place.resolve() == landmarks.images.resolve():
        said.append(
            f"the whitening was learnt on {encoded(str(other.place))}, which are the images that "
            "are searched; the paper's is learnt on others"
        )
    return said


def _counted(things: Sequence[str], noun: str) -> str:
    return f"{len(things):,} {noun}{'s' if len(things) > 1 else ''}"


def _some(things: Sequence[str]) -> str:
    return ", ".join(things[:3]) + (", ..." if len(things) > 3 else "")
