"""Finding photographs of the same landmark by R-MAC (paper, section 5.3, table 5)."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from deepcluster.evaluation.bench import Bench, frozen
from deepcluster.evaluation.evaluated import Evaluated
from deepcluster.evaluation.landmarks import (
    Landmarks,
    images_of,
    read_landmarks,
)
from deepcluster.evaluation.limits import refuse_beyond
from deepcluster.evaluation.map_layers import channels_of, map_layer, maps_of
from deepcluster.evaluation.retrieval_result import (
    RetrievalResult,
    found_by,
    outcome_of,
    summary,
)
from deepcluster.evaluation.rmac import region_vectors, rmac
from deepcluster.evaluation.transfer import (
    Contender,
    Material,
    Outcome,
    Stages,
    counted,
)
from deepcluster.evaluation.whole_images import LEAST, Wanted, WholeImages
from deepcluster.features import PCA
from deepcluster.features.moments import Moments
from deepcluster.features.whiten import fitted
from deepcluster.images.folder import Found, encoded
from deepcluster.images.kept import Pixels
from deepcluster.images.selection import selected
from deepcluster.images.source import Folder, Source, is_store, quick_check, source_of
from deepcluster.networks import Network
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import DataError, NumericsError, UsageError
from deepcluster.runtime.world import World


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
        refuse_beyond(
            ("--size", self.size, self.size >= LEAST, f"at least {LEAST}"),
            ("--levels", self.levels, self.levels >= 1, "at least 1"),
            ("--batch", self.batch, self.batch >= 1, "at least 1"),
            (
                "--dimensions",
                self.dimensions,
                self.dimensions is None or self.dimensions >= 1,
                "at least 1",
            ),
        )
        if not self.seeds:
            raise UsageError("--seeds: name at least one")

    def __call__(
        self, contender: Contender, material: Material, bench: Bench, stages: Stages
    ) -> Outcome:
        """Search with the network of each seed; what is finished is kept."""
        self.validate()
        images, truth = (place and Path(place) for place in (self.images, self.ground_truth))
        landmarks = read_landmarks(
            material.data, images or None, truth or None, follow_links=bench.follow_links
        )
        other = whitening_source(self.whiten_on, follow_links=bench.follow_links)
        bench.display.say(
            f"{counted(len(landmarks.paths), 'image')} and "
            f"{counted(len(landmarks.queries), 'query', 'queries')}"
            + ("" if other is None else f"; the whitening is learnt on {encoded(str(other.place))}")
        )
        learnt_from = [] if other is None else other.find()
        learnt_on = None if other is None else fingerprint_of(learnt_from)
        common: dict[str, Any] = {
            "data": landmarks.fingerprint,
            "whitening": learnt_on,
            "settings": {**asdict(self), "seeds": None, "batch": None},
        }
        not_asked = self.not_asked(landmarks)
        if not_asked:  # earlier versions cut such boxes: what they have kept is another thing
            common["not_asked"] = not_asked
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
            channels = channels_of(subject.network, found["layer"], bench)
        every = list(results.values())
        outcome = outcome_of(
            contender.name,
            self.size,
            every,
            landmarks,
            other,
            learnt_from,
            dimensions=self.dimensions or channels,
            channels=channels,
        )
        return replace(
            outcome,
            data={
                **outcome.data,
                "whitening_fingerprint": learnt_on,
                "not_asked": [encoded(path) for path in not_asked],
            },
            settled={"layer": every[0]["layer"], "dimensions": every[0]["width"]},
        )

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
        unusable: dict[str, str] = {}  # with reasons
        pca = None
        whitened_on = 0
        unlearnt: dict[str, str] = {}  # of the images for the whitening
        if whiten_on is not None:
            pca, whitened_on = self._whitening(network, layer, whiten_on, bench, unlearnt)
        source = Folder(landmarks.images)
        database = [Wanted(path) for path in landmarks.paths]
        rows, usable = self._described(
            network, layer, source, database, pca, bench, unusable, "describing images"
        )
        query_rows, askable = self._described(
            network,
            layer,
            source,
            self._asked(landmarks),
            pca,
            bench,
            unusable,
            "describing queries",
        )
        left_out = []  # what the ground truth leaves out is said of the one that is there now
        results = []
        known = {int(i) for i in usable.nonzero()}
        damaged = [path for i, path in enumerate(landmarks.paths) if i not in known]
        for query, row, ok in zip(landmarks.queries, query_rows, askable.tolist(), strict=True):
            if not ok:
                why = unusable.get(query.path, "cannot be used")
                left_out.append(f"{query.name}: {encoded(query.path)}: {why}")
                continue
            found = found_by(query, rows @ row, known)
            if not found.levels:
                path = landmarks.paths[min(i for r in query.relevance.values() for i in r.positive)]
                why = f"{encoded(path)}: {unusable.get(path, 'unusable')}"
                left_out.append(f"{query.name}: no image that shows it can be used: {why}")
                continue
            results.append(found)
        if not results:
            place = encoded(str(landmarks.images))
            raise DataError(f"no query can be asked of {place}: {left_out[-1]}")
        levels = {
            level: summary([r.levels[level] for r in results if level in r.levels])
            for level in landmarks.levels
        }
        return RetrievalResult(
            levels=levels,
            queries=results,
            layer=layer,
            width=rows.shape[1],
            images=len(known),
            whitened_on=whitened_on,
            left_out=left_out,
            unusable=[f"{encoded(path)}: {unusable.get(path, 'unusable')}" for path in damaged],
            not_whitened_on=[f"{encoded(path)}: {why}" for path, why in unlearnt.items()],
            seconds=round(time.monotonic() - begun, 3),
        )

    def not_asked(self, landmarks: Landmarks) -> list[str]:
        """The images of the queries whose box reaches beyond their image."""
        images = WholeImages(Folder(landmarks.images), self.size)
        return sorted(one.path for one in images.reaching_beyond(self._asked(landmarks)))

    def _asked(self, landmarks: Landmarks) -> list[Wanted]:
        boxes = self.queries == "box"
        return [Wanted(one.path, one.box if boxes else None) for one in landmarks.queries]

    def _whitening(
        self,
        network: Network,
        layer: str,
        source: Source,
        bench: Bench,
        unusable: dict[str, str],
    ) -> tuple[PCA, int]:
        """The whitening of all regions of these images, and how many images they are of."""
        found = source.find()
        wanted = [Wanted(one.path) for one in found if one.reason is None]
        unusable |= {one.path: one.reason for one in found if one.reason is not None}
        width = channels_of(network, layer, bench)
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
            why = next((f": {encoded(path)}: {reason}" for path, reason in unusable.items()), "")
            raise DataError(
                f"--whiten-on {encoded(str(source.place))}: none of "
                f"{counted(len(found), 'image')} can be used{why}"
            )
        dimensions = self.dimensions or width
        return fitted(moments.over(bench.world), dimensions, bench.world, of="regions"), images

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
        width = channels_of(network, layer, bench) if pca is None else pca.projection.shape[1]
        rows = torch.zeros(len(mine), width, device=world.device)
        usable = torch.zeros(len(mine), dtype=torch.uint8)
        for numbers, vectors in self._vectors(
            network, layer, source, wanted, bench, unusable, title
        ):
            rows[numbers] = rmac(vectors, pca)
            usable[numbers] = 1
        if world.any(not bool(rows.isfinite().all())):  # and no order of them means anything
            raise NumericsError(
                f"what {layer} says of some images is not finite: the network's weights have "
                "overflowed"
            )
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
        """The region vectors of this process's share, and which of its images they are of.

        What cannot be used is known to every process in the end.
        """
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
                maps = maps_of(network, layer, batch.pixels, bench)
                yield batch.numbers, region_vectors(maps, self.levels)
                phase.advance(len(batch.numbers))
                if world.size == 1:
                    interruption.raise_if_asked()
        unusable |= known_to_all(unusable, world)


def known_to_all(reasons: dict[str, str], world: World) -> dict[str, str]:
    """What each process has to say of images, in the order of the ranks."""
    mine = np.frombuffer(f"{json.dumps(reasons)}\n".encode(), dtype=np.uint8)
    every = world.gather(torch.from_numpy(mine.copy())).numpy().tobytes()
    return {path: why for line in every.splitlines() for path, why in json.loads(line).items()}


def whitening_source(place: str | None, *, follow_links: bool = False) -> Source | None:
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
    return selected(source_of(found), Pixels(follow_links=follow_links))


def fingerprint_of(images: Sequence[Found]) -> str:
    """Names these images by their paths and sizes."""
    digest = hashlib.blake2b(digest_size=8)
    for found in images:
        digest.update(f"{found.path} {found.size}\n".encode("utf-8", "replace"))
    return digest.hexdigest()
