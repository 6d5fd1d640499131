"""How groups come together, from many to few: Ward's tree over their middles, weighed by size.

Of all pairs, those two are joined next whose union raises the sum of squared distances of images
to the middle of their group least. Built by chains of nearest neighbours (Murtagh 1983), which
need no matrix of all pairs and give the tree that joining the best pair at every step would.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_CROWDED = 0.97
"""Share of rows that are still alone, below which the others are left out."""


@dataclass(frozen=True)
class MergeTree:
    """Leaf i is one of the groups; step s joins two nodes into node `leaves + s`."""

    sizes: NDArray[np.int64]
    """(k,) how many images each leaf has."""
    joined: NDArray[np.int64]
    """(k - 1, 2) the two nodes of each step."""
    costs: NDArray[np.float64]
    """(k - 1,) by how much each step raises the sum of squared distances; never falls."""
    within: float
    """That sum before the first step."""

    @staticmethod
    def of(
        middles: NDArray[np.float64], sizes: NDArray[np.int64], within: float = 0.0
    ) -> MergeTree:
        """The tree of groups with these middles (k, d) and sizes (k,), none of them empty."""
        steps = _chained(middles - np.average(middles, axis=0, weights=sizes), sizes)
        # A rounded cost must not put a node before those that it is made of.
        costs = np.zeros(len(steps))
        for number, (one, other, cost) in enumerate(steps):
            below = [costs[node - len(sizes)] for node in (one, other) if node >= len(sizes)]
            costs[number] = max([cost, *below])
        order = np.argsort(costs, kind="stable")
        place = np.empty(len(steps), dtype=np.int64)
        place[order] = np.arange(len(steps))
        renamed = np.concatenate([np.arange(len(sizes)), len(sizes) + place])
        pairs = np.array([step[:2] for step in steps], dtype=np.int64).reshape(-1, 2)
        return MergeTree(sizes, np.sort(renamed[pairs[order]], axis=1), costs[order], within)

    def __len__(self) -> int:
        return len(self.sizes)

    def cut(self, count: int) -> list[NDArray[np.int64]]:
        """The leaves of each of `count` groups, the group with most images first."""
        nodes = self._nodes(count)
        leaves = [self._leaves(node) for node in nodes]
        return sorted(leaves, key=lambda some: (-int(self.sizes[some].sum()), int(some[0])))

    def kept(self, count: int) -> float:
        """How much of what tells the images apart still does so between `count` groups, 0 to 1.

        The share of the spread of all images that lies between the groups.
        """
        total = self.within + float(self.costs.sum())
        lost = self.within + float(self.costs[: len(self) - count].sum())
        return 1 - lost / total if total > 0 else 0.0

    def crown(self, most: int) -> tuple[list[NDArray[np.int64]], list[tuple[int, int, float]]]:
        """The upper part of the tree: the leaves of at most `most` nodes, and how those join.

        The nodes stand in an order in which no two branches cross.
        """
        count = min(most, len(self))
        first = len(self) - count  # steps that are already made
        order: list[int] = []
        waiting = [len(self) + len(self.joined) - 1 if len(self.joined) else 0]
        while waiting:
            node = waiting.pop()
            if node < len(self) + first:
                order.append(node)
            else:
                waiting += self.joined[node - len(self)].tolist()[::-1]
        numbers = {node: place for place, node in enumerate(order)}
        steps: list[tuple[int, int, float]] = []
        for step in range(first, len(self.joined)):
            one, other = (numbers[node] for node in self.joined[step].tolist())
            numbers[len(self) + step] = count + len(steps)
            steps.append((one, other, float(self.costs[step])))
        return [self._leaves(node) for node in order], steps

    def _nodes(self, count: int) -> list[int]:
        steps = len(self) - count
        inner = {*self.joined[:steps].ravel().tolist()}
        return [node for node in range(len(self) + steps) if node not in inner]

    def _leaves(self, node: int) -> NDArray[np.int64]:
        found, waiting = [], [node]
        while waiting:
            one = waiting.pop()
            if one < len(self):
                found.append(one)
            else:
                waiting += self.joined[one - len(self)].tolist()
        return np.sort(np.array(found, dtype=np.int64))


def _chained(
    middles: NDArray[np.float64], sizes: NDArray[np.int64]
) -> list[tuple[int, int, float]]:
    """The steps in the order in which chains find them: two nodes, and the cost to join them."""
    middles, weights = middles.copy(), sizes.astype(np.float64)
    squares = np.square(middles).sum(axis=1)
    node = np.arange(len(sizes))
    alone = np.ones(len(sizes), dtype=bool)
    steps: list[tuple[int, int, float]] = []
    chain: list[int] = []
    while len(steps) < len(sizes) - 1:
        if not chain:
            chain.append(int(alone.argmax()))
        last = chain[-1]
        apart = squares + squares[last] - 2 * (middles @ middles[last])
        cost = np.maximum(apart, 0) * weights * weights[last] / (weights + weights[last])
        cost[~alone] = np.inf
        cost[last] = np.inf
        nearest = int(cost.argmin())
        # Of equally near ones the one before, or the chain would run in a circle.
        if len(chain) > 1 and cost[chain[-2]] <= cost[nearest]:
            one, other = chain.pop(), chain.pop()
            steps.append((int(node[one]), int(node[other]), float(cost[other])))
            whole = weights[one] + weights[other]
            middles[other] = (weights[one] * middles[one] + weights[other] * middles[other]) / whole
            weights[other] = whole
            squares[other] = np.square(middles[other]).sum()
            node[other] = len(sizes) + len(steps) - 1
            alone[one] = False
            if alone.sum() < _CROWDED * len(alone):  # what is joined costs no time any more
                left = np.flatnonzero(alone)
                chain = np.searchsorted(left, chain).tolist()
                middles, weights, squares = middles[left], weights[left], squares[left]
                node, alone = node[left], alone[left]
        else:
            chain.append(nearest)
    return steps
