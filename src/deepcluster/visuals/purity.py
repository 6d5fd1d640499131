"""How many images lie in pure clusters, as in the paper's appendix.

A cluster is pure for a synset if more than 70% of its images are of it. Of every synset: the share
of its images that lie in a cluster pure for it; beside it the share that chance would give, were
the same images dealt out to clusters of the same sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from deepcluster.runtime.errors import UsageError
from deepcluster.visuals.ontology import Ontology

PURE = 0.7
DEPTHS = (6, 9, 13)
ANIMAL, MAMMAL = "n00015388", "n01861778"
_ZOOMS: dict[int, str | None] = {6: None, 9: ANIMAL, 13: MAMMAL}
_SLACK = 1e-9  # 0.7 * 10 is not quite 7


@dataclass(frozen=True)
class Pure:
    """One bar of the figure."""

    synset: str
    name: str
    depth: int | None
    """Below the root; None for a class without an ontology."""
    images: int
    pure: int
    """How many of them lie in a cluster that is pure for it."""
    chance: float
    """The share that dealing at random would give."""
    within: tuple[str, ...] = ()
    """Of animal and mammal, those that it stands under."""

    @property
    def share(self) -> float:
        """Of its images, in clusters pure for it."""
        return self.pure / self.images


@dataclass(frozen=True)
class Panel:
    """One part of the figure."""

    title: str
    bars: list[Pure]


def pure_shares(
    clusters: NDArray[np.int64],
    classes: NDArray[np.int64],
    members: Mapping[str, Sequence[int]],
    pure: float = PURE,
) -> dict[str, tuple[int, int, float]]:
    """Of every synset: its images, those in clusters pure for it, and the share by chance.

    Args:
        clusters: Of every image; -1 where it has none, and so is in no pure one.
        classes: Of every image.
        members: The classes that each synset is made of.
        pure: The share above which a cluster is pure.
    """
    known = clusters >= 0
    k, count = int(clusters.max(initial=-1)) + 1, int(classes.max()) + 1
    table = np.bincount(clusters[known] * count + classes[known], minlength=k * count)
    table = table.reshape(k, count)
    sizes = table.sum(axis=1)
    of_class = np.bincount(classes, minlength=count)
    dealing = _Dealing(sizes, pure)
    found = {}
    for synset, some in members.items():
        within = table[:, list(some)].sum(axis=1)
        good = within > pure * sizes + _SLACK
        images = int(of_class[list(some)].sum())
        by_chance = dealing.expected(int(within.sum())) / max(1, images)
        found[synset] = (images, int(within[good].sum()), by_chance)
    return found


def panels_of(
    clusters: NDArray[np.int64],
    classes: NDArray[np.int64],
    names: Sequence[str],
    ontology: Ontology | None = None,
) -> tuple[list[Panel], list[Pure]]:
    """The paper's three panels (depth 6; 9 among animals; 13 among mammals), and all synsets there.

    Args:
        clusters: Of every image.
        classes: Of every image.
        names: Of the classes, by number; synsets, where there is an ontology.
        ontology: Without one, each class is a bar.
    """
    if ontology is None:
        plain = {name: [number] for number, name in enumerate(names)}
        shares = pure_shares(clusters, classes, plain)
        bars = [Pure(name, name, None, *shares[name]) for name in names]
        return [Panel("classes", bars)], bars
    members: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        for synset in ontology.ancestors(name) if name in ontology.parents else ():
            members.setdefault(synset, []).append(number)
    if not members:
        raise UsageError(
            f"none of the {len(names):,} classes is in {ontology.source}: folders must be called "
            f"by their synset, such as n02084071, and the first is called {names[0]!r}"
        )
    wanted = {s: some for s, some in members.items() if ontology.depths[s] in DEPTHS}
    shares = pure_shares(clusters, classes, wanted)
    bars = []
    for synset in sorted(wanted, key=lambda s: (ontology.depths[s], s)):
        above = ontology.ancestors(synset)
        zooms = tuple(ontology.name(zoom) for zoom in (ANIMAL, MAMMAL) if zoom in above)
        depth = ontology.depths[synset]
        bars.append(Pure(synset, ontology.name(synset), depth, *shares[synset], zooms))
    panels = []
    for depth, zoom in _ZOOMS.items():
        there = [bar for bar in bars if bar.depth == depth]
        title = f"depth {depth}"
        if zoom in members:
            name = ontology.name(zoom)
            there = [bar for bar in there if name in bar.within]
            title += f", within {name}"
        if there:
            panels.append(Panel(title, there))
    if not panels:
        raise UsageError(f"no class has a synset at depth 6, 9 or 13 above it in {ontology.source}")
    return panels, bars


class _Dealing:
    """Members and others dealt out at random to clusters of given sizes.

    Of x members in a cluster of n the mean of x where x > t is n S / N times the chance that a
    hypergeometric draw of n - 1 from N - 1, of which S - 1 are members, has at least t of them.
    What depends on the sizes alone is computed once.
    """

    def __init__(self, sizes: NDArray[np.int64], pure: float) -> None:
        self._total = total = int(sizes.sum())
        self._log_factorial: NDArray[np.float64] = gammaln(np.arange(total + 1) + 1)
        distinct, times = np.unique(sizes[sizes > 0], return_counts=True)
        least = (pure * distinct + _SLACK).astype(np.int64)
        counts = distinct - least
        first = np.cumsum(counts) - counts
        # One entry for each way to draw at least so many members, of each size.
        self._members = np.arange(counts.sum()) + np.repeat(least - first, counts)
        self._others = np.repeat(distinct, counts) - 1 - self._members
        self._log_all = np.repeat(self._log_choose(total - 1, distinct - 1), counts)
        self._weights = np.repeat(times * distinct / max(1, total), counts)

    def expected(self, members: int) -> float:
        """The mean number of so many members in pure clusters."""
        possible = (self._members < members) & (self._others <= self._total - members)
        if not possible.any():
            return 0.0
        chances = np.exp(
            self._log_choose(members - 1, self._members[possible])
            + self._log_choose(self._total - members, self._others[possible])
            - self._log_all[possible]
        )
        return members * float(self._weights[possible] @ chances)

    def _log_choose(self, n: int, some: NDArray[np.int64]) -> NDArray[np.float64]:
        known = self._log_factorial
        found: NDArray[np.float64] = known[n] - known[some] - known[n - some]
        return found
