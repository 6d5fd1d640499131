"""How much two labelings of the same rows say about each other, all from one table of counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching
from scipy.special import gammaln
from torch import Tensor

from deepcluster.runtime.errors import UsageError

Normalizer = Literal["geometric", "arithmetic"]
Labels = Tensor | ArrayLike


@dataclass(frozen=True)
class Contingency:
    """How many rows have label i in one labeling and label j in the other, where any has both."""

    labels_a: NDArray[np.int64]
    """(count_a,): the labels met in the first, ascending; places below count along these."""
    labels_b: NDArray[np.int64]
    """(count_b,): likewise of the second."""
    sizes_a: NDArray[np.int64]
    """(count_a,): the rows with each label of the first, never 0."""
    sizes_b: NDArray[np.int64]
    """(count_b,): likewise of the second."""
    place_a: NDArray[np.int64]
    """(cells,): of each pair of labels that is met, the place of the first in `labels_a`."""
    place_b: NDArray[np.int64]
    """(cells,): likewise in `labels_b`."""
    together: NDArray[np.int64]
    """(cells,): the rows with both labels of the pair, never 0."""

    @staticmethod
    def of(a: Labels, b: Labels) -> Contingency:
        """The table of two labelings; rows with a negative label on either side are left out."""
        first, second = _as_array(a), _as_array(b)
        if first.shape != second.shape:
            raise UsageError(
                f"labels of {len(first)} rows cannot be compared with those of {len(second)}"
            )
        both = (first >= 0) & (second >= 0)
        if not both.any():
            raise UsageError("no row has a label in both labelings, so they cannot be compared")
        labels_a, place_a = np.unique(first[both], return_inverse=True)
        labels_b, place_b = np.unique(second[both], return_inverse=True)
        ones = np.ones(len(place_a), dtype=np.int64)
        shape = (len(labels_a), len(labels_b))
        table = csr_array((ones, (place_a, place_b)), shape=shape).tocoo()
        return Contingency(
            labels_a=labels_a,
            labels_b=labels_b,
            sizes_a=np.bincount(place_a),
            sizes_b=np.bincount(place_b),
            place_a=table.row.astype(np.int64),
            place_b=table.col.astype(np.int64),
            together=table.data,
        )

    @property
    def rows(self) -> int:
        """How many rows have both labels."""
        return int(self.together.sum())

    @property
    def same(self) -> bool:
        """Whether the labelings differ in nothing but names."""
        return len(self.together) == len(self.sizes_a) == len(self.sizes_b)

    def normalized_mutual_information(self, normalizer: Normalizer = "geometric") -> float:
        """I(A; B) / sqrt(H(A) H(B)), as the paper defines it (Section 4.1): from 0 to 1.

        "arithmetic" divides by (H(A) + H(B)) / 2 instead. Of two labelings without information,
        both constant, it is 1; of one such, 0.
        """
        entropy_a, entropy_b = _entropy(self.sizes_a), _entropy(self.sizes_b)
        match normalizer:
            case "geometric":
                limit = (entropy_a * entropy_b) ** 0.5
            case "arithmetic":
                limit = (entropy_a + entropy_b) / 2
            case _:
                raise UsageError(
                    f"no normalizer {normalizer!r}; there are geometric and arithmetic"
                )
        if len(self.sizes_a) == 1 or len(self.sizes_b) == 1:
            return float(self.same)
        return min(1.0, max(0.0, self._information / limit))

    def adjusted_mutual_information(self) -> float:
        """(I - E[I]) / ((H(A) + H(B)) / 2 - E[I]): 1 for the same groups, about 0 by chance.

        The expectation is over all labelings with the same sizes (Vinh, Epps and Bailey, 2010).
        """
        if self.same:
            return 1.0  # also where every row is its own group, which is 0 / 0
        expected = _expected_information(self.sizes_a, self.sizes_b)
        limit = (_entropy(self.sizes_a) + _entropy(self.sizes_b)) / 2
        return min(1.0, (self._information - expected) / (limit - expected))

    def adjusted_rand_index(self) -> float:
        """How often two rows are together in both or apart in both: 1 is always, 0 is chance."""
        if self.same:
            return 1.0  # also where there is no pair of rows, or none apart
        pairs, both, in_a, in_b = (
            int((count * (count - 1) // 2).sum())
            for count in (np.array([self.rows]), self.together, self.sizes_a, self.sizes_b)
        )
        # The numbers are whole, so nothing is rounded before the division.
        return 2 * (both * pairs - in_a * in_b) / ((in_a + in_b) * pairs - 2 * in_a * in_b)

    def purity(self) -> float:
        """The share of rows that are of the most frequent `b` of their `a`."""
        return int(self._most.sum()) / self.rows

    def purity_of_each(self) -> NDArray[np.float64]:
        """(count_a,): the share of each group's rows that are of its most frequent `b`."""
        return self._most / self.sizes_a

    def matching(self) -> NDArray[np.int64]:
        """(count_a,): the label of `b` that each label of `a` becomes, -1 if none.

        No two become the same, and as many rows as possible keep their label.
        """
        matched = np.full(len(self.labels_a), -1)
        matched[self.place_a[self._kept]] = self.labels_b[self.place_b[self._kept]]
        return matched

    def accuracy(self) -> float:
        """The share of rows whose `a` becomes their `b` under the best one-to-one matching."""
        return int(self.together[self._kept].sum()) / self.rows

    def changed(self) -> float:
        """The share of rows that changed group, beyond what a matching of names explains."""
        return 1 - self.accuracy()

    @cached_property
    def _information(self) -> float:
        expected = self.sizes_a[self.place_a] * (self.sizes_b[self.place_b] / self.rows)
        return float((self.together * np.log(self.together / expected)).sum()) / self.rows

    @cached_property
    def _most(self) -> NDArray[np.int64]:
        """(count_a,): the rows of each group's most frequent `b`."""
        most = np.zeros(len(self.sizes_a), dtype=np.int64)
        np.maximum.at(most, self.place_a, self.together)
        return most

    @cached_property
    def _kept(self) -> NDArray[np.int64]:
        """The cells of the one-to-one matching that holds most rows (the assignment problem)."""
        places, counts = (self.place_a, self.place_b), (len(self.sizes_a), len(self.sizes_b))
        if counts[0] > counts[1]:
            places, counts = places[::-1], counts[::-1]  # the fewer to be matched, the faster
        # Each label of the shorter side may also go to a column of its own, which stands for no
        # partner: so all of them can be matched, as the solver demands. The solver knows no weight
        # of zero; one more everywhere changes no order, since each label has exactly one partner.
        short, long = counts
        alone = np.arange(short)
        weights = np.concatenate([self.together + 1.0, np.ones(short)])
        row, column = np.concatenate([places, (alone, long + alone)], axis=1)
        graph = csr_array((weights, (row, column)), shape=(short, long + short))
        _, partner = min_weight_full_bipartite_matching(graph, maximize=True)
        return np.flatnonzero(partner[places[0]] == places[1])


def normalized_mutual_information(
    a: Labels, b: Labels, normalizer: Normalizer = "geometric"
) -> float:
    """I(A; B) / sqrt(H(A) H(B)), from 0 to 1: see the method of `Contingency`."""
    return Contingency.of(a, b).normalized_mutual_information(normalizer)


def cluster_purity(labels: Labels, classes: Labels) -> Tensor:
    """(count,) float64: the share of each cluster's rows that are of its most frequent class.

    Rows with a negative label or class are left out; a cluster without any other is NaN.
    """
    table = Contingency.of(labels, classes)
    count = int(_as_array(labels).max()) + 1
    purity = torch.full((count,), torch.nan, dtype=torch.float64)
    purity[torch.from_numpy(table.labels_a)] = torch.from_numpy(table.purity_of_each())
    return purity


def _as_array(labels: Labels) -> NDArray[np.int64]:
    given = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
    whole = given.dtype.kind in "iub"
    if given.dtype.kind == "f":
        whole = bool(((given == np.rint(given)) & (np.abs(given) < 2.0**63)).all())
    if given.ndim != 1 or not whole:
        raise UsageError(
            f"labels of {given.dtype} in the shape {given.shape} cannot be compared: give one "
            "whole number for each row"
        )
    return given.astype(np.int64)


def _entropy(sizes: NDArray[np.int64]) -> float:
    share = sizes / sizes.sum()
    return float(-(share * np.log(share)).sum())


def _expected_information(sizes_a: NDArray[np.int64], sizes_b: NDArray[np.int64]) -> float:
    """The mutual information to expect of two random labelings with groups of these sizes.

    The rows that groups of sizes a and b share are hypergeometric. Groups of equal size share the
    sum over it, and N rows have at most sqrt(2 N) different sizes.
    """
    total = int(sizes_a.sum())
    log_factorial = gammaln(np.arange(1.0, total + 2))
    b, times_b = np.unique(sizes_b, return_counts=True)
    expected = 0.0
    for a, times_a in zip(
        *(x.tolist() for x in np.unique(sizes_a, return_counts=True)), strict=True
    ):
        # By Bernstein's inequality less than 1e-19 of the distribution lies outside this reach.
        mean = a * b / total
        reach = 30 + 10 * np.sqrt(mean)
        least = np.maximum(np.maximum(1, a + b - total), (mean - reach).astype(np.int64))
        most = np.minimum(np.minimum(a, b), (mean + reach).astype(np.int64))
        lengths = most - least + 1
        which = np.repeat(np.arange(len(b)), lengths)
        shared = np.arange(len(which)) + (least - np.cumsum(lengths) + lengths)[which]
        constant = log_factorial[b] + log_factorial[total - b]
        constant += log_factorial[a] + log_factorial[total - a] - log_factorial[total]
        log_probability = (
            constant[which]
            - log_factorial[shared]
            - log_factorial[a - shared]
            - log_factorial[b[which] - shared]
            - log_factorial[(total - a - b)[which] + shared]
        )
        information = shared * np.log(shared / mean[which])
        expected += times_a * float(times_b[which] @ (information * np.exp(log_probability)))
    return expected / total
