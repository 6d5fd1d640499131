"""The parts of the alternation beside what a user would pick instead, as ratios in one run.

    python benchmarks/alternation.py [--out FILE]

Prints a table; with --out it is written as well, with versions and machine.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import sklearn
import torch
import torchvision
from PIL import Image
from sklearn.cluster import KMeans as Reference
from sklearn.exceptions import ConvergenceWarning
from torchvision.transforms import v2

from deepcluster.clusters import KMeans, normalized_mutual_information
from deepcluster.images.index import Index
from deepcluster.images.loader import Images

REPEATS = 3


def seconds(work: Callable[[], object]) -> float:
    """The shortest of a few runs: the machine is shared, and noise only adds."""
    taken = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def mixture(count: int, width: int, centres: int) -> torch.Tensor:
    """Rows of unit length around random centres."""
    randomness = torch.Generator().manual_seed(0)
    middle = torch.randn(centres, width, generator=randomness)
    which = torch.randint(centres, (count,), generator=randomness)
    rows = middle[which] + 1.5 * torch.randn(count, width, generator=randomness)
    return rows / rows.norm(dim=1, keepdim=True)


def k_means() -> list[str]:
    rows, k = mixture(20_000, 256, 300), 200
    start = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))[:k]]
    ours = KMeans(k=k, iterations=20)
    reference = Reference(k, init=start.numpy(), n_init=1, max_iter=20, tol=0)
    found = ours(rows, centroids=start)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        reference.fit(rows.numpy())
        theirs = seconds(lambda: reference.fit(rows.numpy()))
    mine = seconds(lambda: ours(rows, centroids=start))
    agreement = normalized_mutual_information(found.labels, torch.from_numpy(reference.labels_))
    return [
        f"| k-means, 20,000 x 256, k = 200, 20 iterations | {mine:.2f} s | scikit-learn "
        f"{theirs:.2f} s | {theirs / mine:.2f} |",
        f"| its objective | {found.objective[-1]:.5f} | {reference.inertia_ / len(rows):.5f} | "
        f"NMI of the labels {agreement:.3f} |",
    ]


def photographs(folder: Path, count: int, side: int) -> None:
    randomness = np.random.default_rng(0)
    for number in range(count):
        rough = randomness.integers(0, 256, (12, 16, 3)).astype(np.uint8)
        image = Image.fromarray(rough).resize((side * 4 // 3, side), Image.Resampling.BICUBIC)
        target = folder / f"class{number % 2}"
        target.mkdir(exist_ok=True)
        image.save(target / f"{number:05d}.jpg", quality=90)


def loading(side: int, size: int, count: int, workers: int) -> str:
    with tempfile.TemporaryDirectory() as name:
        photographs(Path(name), count, side)
        images = Images(name, Index.build(name, workers), size)
        draws = np.arange(count)
        batches = [draws[first : first + 64] for first in range(0, count, 64)]
        crop = v2.Compose(
            [
                v2.RandomResizedCrop(size, antialias=True),
                v2.RandomHorizontalFlip(),
                v2.PILToTensor(),
            ]
        )
        folder = torchvision.datasets.ImageFolder(name, crop)
        loader = torch.utils.data.DataLoader(folder, 64, num_workers=workers)
        mine = seconds(lambda: list(images.drawn(batches, draws, 0, 0, workers)))
        theirs = seconds(lambda: list(loader))
    return (
        f"| random crops to {size} px from {side} px JPEG, {workers} workers | "
        f"{count / mine:,.0f} images/s | ImageFolder + DataLoader {count / theirs:,.0f} images/s | "
        f"{theirs / mine:.2f} |"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path)
    out: Path | None = arguments.parse_args().out
    threads = torch.get_num_threads()
    lines = [
        "| what | ours | instead | times as fast |",
        "|---|---|---|---|",
        *k_means(),
        loading(side=375, size=224, count=512, workers=threads),
        loading(side=72, size=64, count=1024, workers=threads),
    ]
    about = (
        f"`python benchmarks/alternation.py`, {threads} CPU threads ({platform.machine()}), "
        f"Python {platform.python_version()}, torch {torch.__version__}, torchvision "
        f"{torchvision.__version__}, scikit-learn {sklearn.__version__}; best of {REPEATS}, seed 0."
    )
    text = "\n".join([about, "", *lines, ""])
    print(text)
    if out is not None:
        out.write_text(text)


if __name__ == "__main__":
    main()
