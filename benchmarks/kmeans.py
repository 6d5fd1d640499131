"""k-means beside what a user would pick instead, objective beside time, in one run.

    python benchmarks/kmeans.py [--out FILE]

On a GPU: iterations at several sizes against chunked torch (and flash-kmeans where it is
installed). On a CPU: 20 iterations against scikit-learn, faiss (where installed) and chunked torch.
"""

from __future__ import annotations

import argparse
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from deepcluster.clusters import KMeans

SIZES = [
    (1_281_167, 256, 10_000),
    (100_000, 256, 1_000),
    (1_000_000, 128, 1_000),
    (10_000_000, 128, 10_000),
    (1_281_167, 256, 100_000),
]


def unit_rows(count: int, width: int, device: str) -> Tensor:
    """Rows of unit length around many centres."""
    source = torch.Generator(device).manual_seed(0)
    centres = torch.randn(2000, width, generator=source, device=device)
    rows = torch.randn(count, width, generator=source, device=device).mul_(1.5)
    for first in range(0, count, 1 << 20):
        part = rows[first : first + (1 << 20)]
        which = torch.randint(2000, (len(part),), generator=source, device=device)
        part += centres[which]
    return rows.div_(rows.norm(dim=1, keepdim=True))


def starting_rows(rows: Tensor, k: int) -> Tensor:
    source = torch.Generator(rows.device).manual_seed(1)
    return rows[torch.randperm(len(rows), generator=source, device=rows.device)[:k]].clone()


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The shortest of a few runs after one to warm up."""
    work()
    taken = []
    for _ in range(repeats):
        _synchronize()
        begun = time.perf_counter()
        work()
        _synchronize()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def chunked(rows: Tensor, centroids: Tensor, chunk: int) -> Tensor:
    """One iteration of plain torch: the new centroids."""
    k = len(centroids)
    half_norms = centroids.square().sum(dim=1) / 2
    sums = torch.zeros_like(centroids)
    counts = torch.zeros(k, device=rows.device)
    for first in range(0, len(rows), chunk):
        part = rows[first : first + chunk]
        labels = torch.addmm(half_norms, part, centroids.T, alpha=-1).argmin(dim=1)
        sums.index_add_(0, labels, part)
        counts += torch.bincount(labels, minlength=k)
    return torch.where(counts[:, None] > 0, sums / counts[:, None].clamp_min(1), centroids)


def on_gpu(sizes: list[tuple[int, int, int]]) -> list[str]:
    from deepcluster.clusters.fast.totals_by_kernel import TotalsByKernel
    from deepcluster.runtime.world import World

    world = World(device=torch.device("cuda"))
    lines = [
        "| n, d, k | ours bf16, an iteration | chunked torch TF32 | times as fast | "
        "20 iterations, splits and exact labels | objective after 10, bf16 / float32 |",
        "|---|---|---|---|---|---|",
    ]
    for count, width, k in sizes:
        rows = unit_rows(count, width, "cuda")
        start = starting_rows(rows, k)
        totals = TotalsByKernel(rows, world)
        mine = seconds(lambda totals=totals, start=start: totals.at(start).means.float())
        torch.set_float32_matmul_precision("high")
        size = max(1024, (1 << 30) // k)
        theirs = seconds(lambda rows=rows, start=start, size=size: chunked(rows, start, size))
        torch.set_float32_matmul_precision("highest")
        fast = KMeans(k=k, iterations=20, precision="bfloat16")
        whole, ratio = "not run", "not run"
        if count * k <= 2e10:
            whole = f"{seconds(lambda r=rows, s=start, f=fast: f(r, centroids=s), 1):.2f} s"
            ten = [
                KMeans(k=k, iterations=10, precision=precision)(rows, centroids=start).objective[-1]
                for precision in ("bfloat16", "float32")
            ]
            ratio = f"{ten[0]:.5f} / {ten[1]:.5f} ({ten[0] / ten[1] - 1:+.3%})"
        print(f"{count:,} {width} {k:,}: {mine * 1e3:.2f} ms, {theirs * 1e3:.2f} ms", flush=True)
        lines.append(
            f"| {count:,}, {width}, {k:,} | {mine * 1e3:.2f} ms | {theirs * 1e3:.2f} ms | "
            f"{theirs / mine:.1f} | {whole} | {ratio} |"
        )
        del rows, totals
        torch.cuda.empty_cache()
    return lines


def on_cpu(count: int, width: int, k: int) -> list[str]:
    from sklearn.cluster import KMeans as Reference
    from sklearn.exceptions import ConvergenceWarning

    rows = unit_rows(count, width, "cpu")
    start = starting_rows(rows, k)
    ours = KMeans(k=k, iterations=20)
    reference = Reference(k, init=start.numpy(), n_init=1, max_iter=20, tol=0)

    def plain() -> Tensor:
        centroids = start
        for _ in range(20):
            centroids = chunked(rows, centroids, 8192)
        return centroids

    def objective(centroids: Tensor) -> float:
        return float(torch.cdist(rows, centroids).min(dim=1).values.square().mean())

    lines = [
        f"| {count:,} x {width}, k = {k:,}, 20 iterations | seconds | objective |",
        "|---|---|---|",
    ]
    mine = seconds(lambda: ours(rows, centroids=start), 1)
    lines.append(f"| ours | {mine:.2f} | {objective(ours(rows, centroids=start).centroids):.5f} |")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = seconds(lambda: reference.fit(rows.numpy()), 1)
    found = objective(torch.from_numpy(reference.cluster_centers_))
    lines.append(f"| scikit-learn, lloyd | {theirs:.2f} | {found:.5f} |")
    lines.append(f"| chunked torch | {seconds(plain, 1):.2f} | {objective(plain()):.5f} |")
    return lines


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path)
    arguments.add_argument("--sizes", type=int, default=len(SIZES), help="how many of the sizes")
    asked = arguments.parse_args()
    out: Path | None = asked.out
    gpu = torch.cuda.is_available()
    lines = on_gpu(SIZES[: asked.sizes]) if gpu else on_cpu(50_000, 256, 500)
    device = torch.cuda.get_device_name() if gpu else f"{torch.get_num_threads()} CPU threads"
    about = (
        f"`python benchmarks/kmeans.py`, {device}, Python {platform.python_version()}, torch "
        f"{torch.__version__}; unit rows around 2,000 centres, seed 0, equal start."
    )
    text = "\n".join([about, "", *lines, ""])
    print(text)
    if out is not None:
        out.write_text(text)


if __name__ == "__main__":
    main()
