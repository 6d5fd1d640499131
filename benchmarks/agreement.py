"""Measures of agreement at the size of ImageNet, beside scikit-learn, in one run.

    python benchmarks/agreement.py [--rows N] [--k K] [--out FILE]

Half of the rows keep their cluster under another name and half get a random one; cluster sizes
differ by orders of magnitude. Prints a table; with --out it is written as well, with versions.
scikit-learn's AMI takes minutes of it.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy
import sklearn
import torch
from sklearn.metrics import (
    adjusted_mutual_info_score,
    adjusted_rand_score,
    normalized_mutual_info_score,
)

from deepcluster.clusters import Contingency


def timed(work: Callable[[], float]) -> tuple[float, float]:
    """What comes out, and the seconds it takes."""
    begun = time.perf_counter()
    value = work()
    return value, time.perf_counter() - begun


def labelings(rows: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    randomness = np.random.default_rng(0)
    shares = randomness.gamma(0.5, size=k)
    shares /= shares.sum()
    a = randomness.choice(k, rows, p=shares)
    b = randomness.permutation(k)[a]
    moved = randomness.random(rows) < 0.5
    b[moved] = randomness.choice(k, moved.sum(), p=shares)
    return torch.from_numpy(a), torch.from_numpy(b)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=1_300_000)
    arguments.add_argument("--k", type=int, default=10_000)
    arguments.add_argument("--out", type=Path)
    given = arguments.parse_args()
    a, b = labelings(given.rows, given.k)

    begun = time.perf_counter()
    table = Contingency.of(a, b)
    building = time.perf_counter() - begun
    x, y = a.numpy(), b.numpy()
    measures: list[tuple[str, Callable[[], float], Callable[[], float] | None]] = [
        (
            "NMI, geometric",
            table.normalized_mutual_information,
            lambda: normalized_mutual_info_score(x, y, average_method="geometric"),
        ),
        (
            "NMI, arithmetic",
            lambda: table.normalized_mutual_information("arithmetic"),
            lambda: normalized_mutual_info_score(x, y),
        ),
        ("ARI", table.adjusted_rand_index, lambda: adjusted_rand_score(x, y)),
        ("purity", table.purity, None),
        ("AMI", table.adjusted_mutual_information, lambda: adjusted_mutual_info_score(x, y)),
        ("accuracy, with matching", table.accuracy, None),
        ("share that changed cluster, matched before", table.changed, None),
    ]
    lines = [
        "| what | value | seconds | scikit-learn | its seconds |",
        "|---|---|---|---|---|",
        f"| the table, {len(table.together):,} cells | | {building:.3f} | | |",
    ]
    for name, ours, reference in measures:
        value, taken = timed(ours)
        theirs = "| |"
        if reference is not None:
            expected, their_seconds = timed(reference)
            theirs = f"{expected:.9f} | {their_seconds:.3f} |"
        lines.append(f"| {name} | {value:.9f} | {taken:.3f} | {theirs}")
    about = (
        f"{given.rows:,} rows, {given.k:,} clusters each; {torch.get_num_threads()} CPU threads "
        f"({platform.machine()}), numpy {np.__version__}, scipy {scipy.__version__}, "
        f"scikit-learn {sklearn.__version__}. scikit-learn builds its table for each measure."
    )
    text = "\n".join([about, "", *lines, ""])
    print(text)
    if given.out:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
