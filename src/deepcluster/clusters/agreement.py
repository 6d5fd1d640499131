"""How much two labelings of the same rows say about each other."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from deepcluster.runtime.errors import UsageError


def normalized_mutual_information(
    a: Tensor, b: Tensor, normalizer: Literal["geometric", "arithmetic"] = "geometric"
) -> float:
    """I(A; B) / sqrt(H(A) H(B)), as the paper defines it (Section 4.1): from 0 to 1.

    "arithmetic" divides by (H(A) + H(B)) / 2 instead. Rows with a negative label on either side are
    left out. Of two labelings without information, both constant, it is 1; of one such, 0.
    """
    a, b = _labelled(a, b)
    _, a = torch.unique(a, return_inverse=True)
    _, b = torch.unique(b, return_inverse=True)
    count_a, count_b = torch.bincount(a), torch.bincount(b)
    pairs, count_pairs = torch.unique(a * len(count_b) + b, return_counts=True)
    if len(count_a) == 1 or len(count_b) == 1:
        return float(len(count_a) == len(count_b))
    p_a, p_b, p_pair = (c.double() / len(a) for c in (count_a, count_b, count_pairs))
    expected = p_a[pairs // len(count_b)] * p_b[pairs % len(count_b)]
    information = (p_pair * (p_pair / expected).log()).sum()
    entropy_a, entropy_b = (-(p * p.log()).sum() for p in (p_a, p_b))
    match normalizer:
        case "geometric":
            limit = (entropy_a * entropy_b).sqrt()
        case "arithmetic":
            limit = (entropy_a + entropy_b) / 2
        case _:
            raise UsageError(f"no normalizer {normalizer!r}; there are geometric and arithmetic")
    return float((information / limit).clamp(0, 1))


def cluster_purity(labels: Tensor, classes: Tensor) -> Tensor:
    """(count,) float64: the share of each cluster's rows that are of its most frequent class.

    Rows with a negative label or class are left out; a cluster without any other is NaN.
    """
    count = int(torch.as_tensor(labels).max()) + 1
    labels, classes = _labelled(labels, classes)
    _, classes = torch.unique(classes, return_inverse=True)
    width = int(classes.max()) + 1
    pairs, together = torch.unique(labels * width + classes, return_counts=True)
    most = torch.zeros(count, dtype=torch.int64)
    most.scatter_reduce_(0, pairs // width, together, "amax")
    return most.double() / torch.bincount(labels, minlength=count)


def _labelled(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both labels, on the CPU, of the rows that have both."""
    a, b = torch.as_tensor(a).cpu().long(), torch.as_tensor(b).cpu().long()
    if a.shape != b.shape:
        raise UsageError(f"labels of {len(a)} rows cannot be compared with those of {len(b)}")
    both = (a >= 0) & (b >= 0)
    if not both.any():
        raise UsageError("no row has a label in both labelings, so they cannot be compared")
    return a[both], b[both]
