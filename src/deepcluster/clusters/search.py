"""The nearest centroid of every row, and what the clusters so found sum to."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from deepcluster.clusters.bounds import Bounds
from deepcluster.clusters.neighbours import Neighbours, Prepared, full_float32
from deepcluster.clusters.rows import Rows
from deepcluster.clusters.shares import for_each_share
from deepcluster.clusters.totals import Totals, add_to_groups
from deepcluster.runtime.world import World

# Below this share of what it is the difference of, a spread is measured, not told from sums.
_CANCELLED = 1e-6
_BLOCK = {"cpu": 2**20, "cuda": 2**27}  # numbers summed at once


class Search(Protocol):
    """The same rows, searched again and again for the nearest of other centroids."""

    path: str
    """How it is done, for the record."""

    def totals(self, centroids: Tensor) -> Totals:
        """The totals of the clusters of the rows nearest to each centroid."""
        ...

    def two_nearest(self, centroids: Tensor) -> Neighbours:
        """This process's rows, each with its two nearest centroids (one, if there is one)."""
        ...


class Accounts:
    """Sums of the clusters that are filled block by block, and closed over all processes.

    Everything is about the mean of all rows, so that a large offset costs no digits.
    """

    def __init__(self, rows: Rows, world: World) -> None:
        self._rows, self._world = rows, world
        total = sum(world.counts(len(rows)))
        sums = torch.zeros(rows.width, dtype=torch.float64, device=rows.device)
        largest = torch.zeros((), device=rows.device)
        for _, block in rows.blocks(self.block):
            sums += block.sum(dim=0, dtype=torch.float64)
            largest = torch.maximum(largest, torch.stack(block.aminmax()).abs().amax())
        self.mean = (world.sum(sums) / total).float()
        self.largest = float(largest)  # of this process's numbers, without their signs

    @property
    def block(self) -> int:
        """How many rows to sum at once."""
        numbers = _BLOCK.get(self._rows.device.type, 2**22)
        return max(1, numbers // max(1, self._rows.width))

    def squares(self) -> Tensor:
        """(n,) float64: the squared length of each row less the mean."""
        squares = torch.empty(len(self._rows), dtype=torch.float64, device=self._rows.device)
        for place, block in self._rows.blocks(self.block):
            squares[place] = (block.double() - self.mean).square_().sum(dim=1)
        return squares

    def closed(
        self, sums: Tensor, squares: Tensor, sizes: Tensor, centroids: Tensor, labels: Tensor
    ) -> Totals:
        """The totals of the clusters of all processes.

        Args:
            sums: (k, d) float64, of this process's rows less the mean.
            squares: (k,) float64, of their squared lengths.
            sizes: (k,) int64, how many they are.
            centroids: (k, d) float32.
            labels: (n,) the cluster of each of them.
        """
        world = self._world
        sums, squares, sizes = world.sum(sums), world.sum(squares), world.sum(sizes)
        count = sizes.clamp(min=1)
        about = sums / count[:, None]
        # About the mean of its own rows, and of that mean about the centroid.
        within = (squares - count * about.square().sum(dim=1)).clamp(min=0) * (sizes > 1)
        offset = about + (self.mean.double() - centroids.double())
        told_badly = (within < _CANCELLED * squares) & (sizes > 1)
        if bool(told_badly.any()):
            measured = world.sum(self._measured(about + self.mean, labels, told_badly))
            within = torch.where(told_badly, measured, within)
        spread = within + sizes * offset.square().sum(dim=1)
        means = torch.where(sizes[:, None] > 0, about + self.mean, 0.0)
        return Totals(sizes, means, spread, within)

    def _measured(self, means: Tensor, labels: Tensor, which: Tensor) -> Tensor:
        """(k,) float64: squared distances to the means, of the rows of some clusters."""
        spread = torch.zeros(len(means), dtype=torch.float64, device=means.device)
        here = which[labels].nonzero()[:, 0]
        for part in here.split(max(1, self.block // 4)):
            mine = labels[part].long()
            distance = (self._rows.at(part).double() - means[mine]).square().sum(dim=1)
            add_to_groups(spread, mine, distance)
        return spread


class ExactSearch:
    """Every row finds its nearest centroid: screened by products, measured where in doubt.

    What a search has found out bounds what the next one can find, by how far the centroids have
    moved since: rows that provably keep their centroid are passed over.
    """

    def __init__(self, rows: Rows, world: World) -> None:
        self.path = f"float32 products on {rows.device.type}"
        self._rows = rows
        self._accounts = Accounts(rows, world)
        self._squares = self._accounts.squares()
        self._labels = torch.full((len(rows),), -1, device=rows.device)
        self._sums = torch.zeros(0, rows.width, dtype=torch.float64, device=rows.device)
        self._bounds = Bounds(len(rows), rows.device)

    def totals(self, centroids: Tensor) -> Totals:
        """The totals of the clusters of the rows nearest to each centroid, exactly."""
        k, prepared = len(centroids), Prepared.of(centroids, self._accounts.mean)
        if len(self._sums) != k:
            self._labels.fill_(-1)
            self._sums = centroids.new_zeros(centroids.shape, dtype=torch.float64)
        doubted = self._bounds.renewed(centroids, self._labels)
        moved = self._bounds.fastest(prepared, doubted)
        if moved is None and bool(doubted.all()):  # summed anew: a row that left leaves no rounding
            self._labels.fill_(-1)
            self._sums.zero_()

        unsure = torch.zeros_like(doubted)

        def screened(share: Rows, first: int) -> Tensor:
            """What the sums change by."""
            change, room = torch.zeros_like(self._sums), prepared.room()
            for place, block in share.blocks(self._at_once(prepared)):
                number = doubted[first + place.start :][: len(block)].nonzero()[:, 0]
                rows = block if len(number) == len(block) else block[number]
                number += first + place.start
                if moved is not None and len(number):
                    still = self._bounds.in_question(
                        prepared, moved, rows, number, self._squares[number], self._labels[number]
                    )
                    rows, number = rows[still], number[still]
                if len(number):
                    found = prepared.nearest_one(rows, self._squares[number], room)
                    self._bounds.keep(prepared, number, self._squares[number], found)
                    self._relabel(number, rows, found.index, change)
                    unsure[number] = ~found.certain
            return change

        with full_float32():
            for change in for_each_share(self._rows, screened, each_holds=8 * centroids.numel()):
                self._sums += change
        self._settle(unsure.nonzero()[:, 0], prepared)
        sizes = torch.bincount(self._labels, minlength=k)
        sums = self._sums - sizes[:, None] * self._accounts.mean.double()
        squares = sums.new_zeros(k)
        add_to_groups(squares, self._labels, self._squares)
        return self._accounts.closed(sums, squares, sizes, centroids, self._labels)

    def _settle(self, doubtful: Tensor, prepared: Prepared) -> None:
        """Measure the rows in doubt, all at once, and put those right that were counted wrongly."""
        for part in doubtful.split(self._accounts.block):
            rows = self._rows.at(part)
            self._relabel(part, rows, prepared.nearest(rows, 1).index[:, 0], self._sums)

    def _relabel(self, number: Tensor, rows: Tensor, labels: Tensor, sums: Tensor) -> None:
        """Give rows their labels, and move those that had another from sum to sum."""
        before = self._labels[number]
        other = (labels != before).nonzero()[:, 0]
        if not len(other):
            return
        moved = (rows if len(other) == len(rows) else rows[other]).double()
        add_to_groups(sums, labels[other], moved)
        if bool((before[other] >= 0).all()):  # none, or all, had one
            add_to_groups(sums, before[other], -moved)
        self._labels[number[other]] = labels[other]

    def two_nearest(self, centroids: Tensor) -> Neighbours:
        """The two nearest centroids of each row, exactly."""
        prepared = Prepared.of(centroids)
        count = min(2, len(centroids))
        index = torch.empty((len(self._rows), count), dtype=torch.int64, device=centroids.device)
        distance = torch.empty(index.shape, dtype=torch.float64, device=centroids.device)

        def measured(share: Rows, first: int) -> None:
            for place, block in share.blocks(self._at_once(prepared)):
                here = slice(first + place.start, first + place.start + len(block))
                found = prepared.nearest(block, count)
                index[here], distance[here] = found.index, found.distance

        with full_float32():
            for_each_share(self._rows, measured)
        return Neighbours(index, distance)

    def _at_once(self, prepared: Prepared) -> int:
        return min(prepared.at_once(), self._accounts.block)
