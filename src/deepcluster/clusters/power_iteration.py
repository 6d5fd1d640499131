"""Power iteration clustering: groups as hills of a graph, their number not set beforehand."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Literal, get_args, get_type_hints

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from deepcluster.clusters.clusters import ALONE, Clusters
from deepcluster.clusters.gate import checked
from deepcluster.clusters.graph import nearest_others
from deepcluster.clusters.neighbours import Neighbours, nearest
from deepcluster.clusters.totals import group_means
from deepcluster.runtime.errors import ManySingletons, UsageError
from deepcluster.runtime.world import World


@dataclass(frozen=True)
class PowerIteration:
    """Groups of the rows that climb to the same peak of a graph of neighbours (supplement)."""

    neighbours: int = 5
    """How many nearest rows each row is joined to."""
    sigma: float | Literal["auto"] = 0.2
    """Bandwidth: w = exp(-distance^2 / sigma^2); auto: median distance to the last neighbour."""
    alpha: float = 1e-3
    """How much of a row's height comes from its neighbours in one iteration."""
    iterations: int = 200
    """How often the heights are updated."""
    update: Literal["paper", "released"] = "paper"
    """The paper's update and graph, or those of the authors' released code."""
    merge_singletons: bool = False
    """Put a row left alone into the group of its nearest neighbour that is not (released code)."""

    def __call__(
        self, rows: Tensor, world: World = ALONE, generator: torch.Generator | None = None
    ) -> Clusters:
        """The groups of the rows of all processes, numbered in the order of first appearance.

        Each process finds the neighbours of its own rows among all; the graph, a few numbers a row,
        is then the same everywhere. Nothing is random: the generator is not used.
        """
        self._check()
        read = checked(rows, world)[0]
        rows = read.whole()
        everyone = world.gather(rows)
        count = min(self.neighbours, len(everyone) - 1)
        if world.size == 1:
            near = nearest_others(rows, count)
        else:
            near = nearest(rows, everyone, count, skip_self_from=world.offset(len(rows)))
        graph = Neighbours(world.gather(near.index.cpu()), world.gather(near.distance.cpu()))
        labels = in_order_of_appearance(self.components(graph))
        if self.merge_singletons:
            labels = in_order_of_appearance(_singletons_merged(labels, graph.index))
        sizes = torch.bincount(labels)
        alone = int((sizes == 1).sum())
        if alone > len(labels) / 3:
            warnings.warn(
                ManySingletons(
                    f"{alone} of {len(labels)} rows are alone in their cluster: sigma = "
                    f"{self.sigma} is small beside the distances between neighbours; "
                    'use sigma="auto", a larger sigma, or merge_singletons'
                ),
                stacklevel=2,
            )
        found = _described(rows, labels, sizes, world)
        return replace(found, centroids=read.placed(found.centroids.to(read.device)).cpu())

    def components(self, graph: Neighbours) -> Tensor:
        """(n,) int64: the connected component of each row in the subgraph of steepest edges."""
        n, count = graph.index.shape
        sigma = _typical_distance(graph) if self.sigma == "auto" else self.sigma
        width = min(max(float(sigma) * float(sigma), sys.float_info.min), sys.float_info.max)
        weights = torch.exp(-graph.distance / width).flatten().numpy()
        places = graph.index.flatten().numpy(), np.arange(0, n * count + 1, count)
        G = csr_array((weights, *places), shape=(n, n), copy=True)  # whose order is now its own
        G.sort_indices()  # sums are taken in the order of the rows, whichever neighbour is nearer
        both_ways = csr_array(G + G.T)
        heights = self._heights(both_ways)
        uphill = steepest_edges(G if self.update == "paper" else both_ways, heights)
        climbs = (uphill >= 0).nonzero()[:, 0]
        edges = np.ones(len(climbs), dtype=bool), (climbs.numpy(), uphill[climbs].numpy())
        # Every edge leads to a strictly greater height, so the edges close no cycle: they are
        # trees, and each component has one peak, the row from which no edge starts.
        _, labels = connected_components(csr_array(edges, shape=(n, n)), directed=False)
        return torch.from_numpy(labels).long()

    def _heights(self, both_ways: csr_array) -> Tensor:
        """(n,) float64: n times v after the last iteration, less what all rows have in common.

        Heights are compared, never added up. Where neighbours are far apart beside sigma, rows rise
        by 1e-16 of what they begin with and less, and v itself would not tell them apart: v is
        `common` + `rise`, and what tells rows apart stays as exact as a float64 is.
        """
        common, rise = 1.0, np.zeros(both_ways.shape[0])
        # On the CPU, where sums are always taken in the same order, so that ties fall the same way.
        for _ in range(self.iterations):
            gained = self.alpha * (both_ways @ (common + rise))
            match self.update:
                case "paper":
                    common, rise = (1 - self.alpha) * common, (1 - self.alpha) * rise + gained
                case "released":
                    common, rise = 1 - self.alpha, gained
            norm = (common + rise.mean()) or 1.0  # L1; nothing is below zero
            common, rise = common / norm, rise / norm
        return torch.from_numpy(rise)

    def _check(self) -> None:
        for name, value, least in (
            ("neighbours", self.neighbours, 1),
            ("iterations", self.iterations, 0),
        ):
            if not isinstance(value, Integral):
                raise UsageError(f"{name} = {value!r}: a whole number is needed")
            if value < least:
                raise UsageError(f"{name} = {value}: at least {least} is needed")
        known = get_args(get_type_hints(type(self))["update"])
        if self.update not in known:
            raise UsageError(f"update = {self.update!r}: use {' or '.join(known)}")
        if self.sigma != "auto" and not (isinstance(self.sigma, Real) and self.sigma > 0):
            raise UsageError(f'sigma = {self.sigma!r}: it must be above 0, or "auto"')
        if not (isinstance(self.alpha, Real) and 0 <= self.alpha <= 1):
            raise UsageError(f"alpha = {self.alpha!r}: it must be from 0 to 1")


def steepest_edges(graph: csr_array, heights: Tensor) -> Tensor:
    """(n,) int64: argmax_j w_ij (v_j - v_i), the lowest j of equals, or -1 at a local maximum."""
    edges = graph.tocoo()
    source, target = (torch.from_numpy(np.asarray(c)).long() for c in (edges.row, edges.col))
    gain = torch.from_numpy(edges.data) * (heights[target] - heights[source])
    best = torch.zeros_like(heights).scatter_reduce_(0, source, gain, "amax")
    wins = (gain == best[source]) & (gain > 0)
    n = len(heights)
    uphill = torch.full((n,), n).scatter_reduce_(0, source[wins], target[wins], "amin")
    return torch.where(uphill < n, uphill, -1)


def in_order_of_appearance(labels: Tensor) -> Tensor:
    """The same groups, numbered 0, 1, ... as they are first met."""
    kinds, which = torch.unique(labels, return_inverse=True)
    first = torch.full((len(kinds),), len(labels))
    first.scatter_reduce_(0, which, torch.arange(len(labels)), "amin")
    return first.argsort().argsort()[which]


def _typical_distance(graph: Neighbours) -> float:
    """The median distance to the last neighbour; rows with only equal rows near say nothing."""
    last = graph.distance[:, -1].sqrt()
    last = last[last > 0]
    return float(last.median()) if len(last) else 1.0


def _singletons_merged(labels: Tensor, index: Tensor) -> Tensor:
    """Labels where a row left alone takes that of its nearest neighbour that is not."""
    alone = torch.bincount(labels)[labels] == 1
    joined = ~alone[index]  # (n, neighbours), nearest first
    first = index.gather(1, joined.to(torch.uint8).argmax(dim=1, keepdim=True))[:, 0]
    return torch.where(alone & joined.any(dim=1), labels[first], labels)


def _described(rows: Tensor, labels: Tensor, sizes: Tensor, world: World) -> Clusters:
    """The groups with their means; a row need not be nearest to its own: its margin may be < 0."""
    offset = world.offset(len(rows))
    mine = labels[offset : offset + len(rows)].to(rows.device)
    means = group_means(rows, mine, sizes.to(rows.device), world).float()
    squared = (rows.double() - means[mine].double()).square().sum(dim=1)
    own = squared.sqrt()
    if len(sizes) > 1:
        near = nearest(rows, means, 2)
        other = near.distance.gather(1, (near.index[:, :1] == mine[:, None]).long())[:, 0].sqrt()
    else:
        other = torch.full_like(own, torch.inf)
    return Clusters(
        labels=labels,
        count=len(sizes),
        sizes=sizes,
        objective=[float(world.sum(squared.sum())) / len(labels)],
        repaired=0,
        centroids=means.cpu(),
        distances=world.gather(own.float().cpu()),
        margins=world.gather((other - own).float().cpu()),
    )
