"""k-means, and the graph of neighbours, beside what a user would pick instead, in one run.

    python benchmarks/kmeans.py [--sizes N] [--out FILE]

On a GPU: iterations at several sizes against chunked torch, and flash-kmeans where it is installed.
On a CPU: 20 iterations against scikit-learn, chunked torch, and faiss where it is installed, as it
comes and with its BLAS told which kernels to use; then the graph, and power iteration on it. Each
peer on the CPU has a process to itself, so that its peak memory can be told.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deepcluster.clusters import KMeans, PowerIteration, nearest_others
from deepcluster.clusters.neighbours import Neighbours

SIZES = [
    (1_281_167, 256, 10_000),
    (100_000, 256, 1_000),
    (1_000_000, 128, 1_000),
    (10_000_000, 128, 10_000),
    (1_281_167, 256, 100_000),
]
CPU_SIZE = (200_000, 256, 1_000)
GRAPH_ROWS = 100_000
NODES = 1_000_000


def unit_rows(count: int, width: int, device: str) -> Tensor:
    """Rows of unit length around many centres."""
    source = torch.Generator(device).manual_seed(0)
    centres = torch.randn(2000, width, generator=source, device=device)
    rows = torch.randn(count, width, generator=source, device=device).mul_(1.5)
    for first in range(0, count, 1 << 16):
        part = rows[first : first + (1 << 16)]
        which = torch.randint(2000, (len(part),), generator=source, device=device)
        part += centres[which]
        part /= part.norm(dim=1, keepdim=True)
    return rows


def starting_rows(rows: Tensor, k: int) -> Tensor:
    source = torch.Generator(rows.device).manual_seed(1)
    return rows[torch.randperm(len(rows), generator=source, device=rows.device)[:k]].clone()


def seconds(work: Callable[[], object], repeats: int = 3, warm: bool = True) -> float:
    """The shortest of a few runs after one to warm up."""
    if warm:
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


def mean_squared_distance(rows: Tensor, centroids: Tensor) -> float:
    total = 0.0
    for part in rows.split(max(1, (1 << 28) // len(centroids))):
        total += float(torch.cdist(part, centroids).amin(dim=1).double().square().sum())
    return total / len(rows)


def on_gpu(sizes: list[tuple[int, int, int]]) -> list[str]:
    lines = [
        "| n, d, k | an iteration, bfloat16 | tf32 | float32 | flash-kmeans bfloat16 | "
        "chunked torch TF32 | 20 iterations, splits and labels, bfloat16 | "
        "objective after 10: bfloat16 / float32 / flash-kmeans |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for count, width, k in sizes:
        lines.append(_on_gpu(count, width, k))
        print(lines[-1], flush=True)
        torch.cuda.empty_cache()
    return lines


def _on_gpu(count: int, width: int, k: int) -> str:
    from deepcluster.clusters.fast.search_by_kernel import SearchByKernel
    from deepcluster.clusters.rows import Rows
    from deepcluster.runtime.world import World

    world = World(device=torch.device("cuda"))
    rows = unit_rows(count, width, "cuda")
    start = starting_rows(rows, k)
    cells = [f"{count:,}, {width}, {k:,}"]
    for precision in ("bfloat16", "tf32", "float32"):
        search = SearchByKernel(Rows.of(rows), world, precision)  # type: ignore[arg-type]
        took = seconds(lambda search=search: search.totals(start).means.float())  # type: ignore[misc]
        cells.append(f"{took * 1e3:.2f} ms")
        del search
    flash = _flash(rows, start)
    took = seconds(lambda: flash(1)) if flash else None
    cells.append(f"{took * 1e3:.2f} ms" if took else "not installed")
    torch.set_float32_matmul_precision("high")
    chunk = max(1024, (1 << 30) // k)
    cells.append(f"{seconds(lambda: chunked(rows, start, chunk), 1) * 1e3:.1f} ms")
    torch.set_float32_matmul_precision("highest")
    whole = KMeans(k=k, iterations=20, precision="bfloat16")
    cells.append(f"{seconds(lambda: whole(rows, centroids=start), 2):.3f} s")
    if count * k > 2e10:
        return f"| {' | '.join([*cells, 'not run'])} |"
    found = [
        KMeans(k=k, iterations=10, precision=precision)(rows, centroids=start).centroids  # type: ignore[arg-type]
        for precision in ("bfloat16", "float32")
    ]
    told = [mean_squared_distance(rows, c.cuda()) for c in found]
    if flash:
        told.append(mean_squared_distance(rows, flash(10).float()))
    text = " / ".join(f"{value:.5f}" for value in told)
    return f"| {' | '.join([*cells, f'{text} ({told[0] / told[1] - 1:+.4%})'])} |"


def _flash(rows: Tensor, start: Tensor) -> Callable[[int], Tensor] | None:
    try:
        from flash_kmeans import batch_kmeans_Euclid
    except ImportError:
        return None
    rounded, first = rows.bfloat16()[None], start.bfloat16()[None]

    def run(iterations: int) -> Tensor:
        found: Tensor = batch_kmeans_Euclid(
            rounded, len(start), max_iters=iterations, tol=-1.0, init_centroids=first
        )[1]
        return found[0]

    return run


# What runs on the CPU: each gives the centroids after 20 iterations from the same start.
def ours(rows: Tensor, start: Tensor) -> Tensor:
    return KMeans(k=len(start), iterations=20)(rows, centroids=start).centroids


def scikit_learn(rows: Tensor, start: Tensor) -> Tensor:
    from sklearn.cluster import KMeans as Reference
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = Reference(len(start), init=start.numpy(), n_init=1, max_iter=20, tol=0).fit(
            rows.numpy()
        )
    return torch.from_numpy(fitted.cluster_centers_).float()


def plain_torch(rows: Tensor, start: Tensor) -> Tensor:
    for _ in range(20):
        start = chunked(rows, start, 8192)
    return start


def faiss_cpu(rows: Tensor, start: Tensor) -> Tensor:
    import faiss

    k, width = start.shape
    method = faiss.Clustering(width, k)
    method.niter, method.max_points_per_centroid = 20, len(rows)
    faiss.copy_array_to_vector(start.numpy().ravel(), method.centroids)
    method.train(rows.numpy(), faiss.IndexFlatL2(width))
    return torch.from_numpy(faiss.vector_to_array(method.centroids).reshape(k, width))


def our_graph(rows: Tensor, _: Tensor) -> Tensor:
    return nearest_others(rows, 5).index


def faiss_graph(rows: Tensor, _: Tensor) -> Tensor:
    import faiss

    index = faiss.IndexFlatL2(rows.shape[1])
    index.add(rows.numpy())
    return torch.from_numpy(index.search(rows.numpy(), 6)[1][:, 1:])


def _peak() -> float:
    """MiB. Not getrusage's: that remembers what the parent had."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _alone(send: Any, work: str, size: tuple[int, int, int], repeats: int) -> None:
    """In a process of its own: how long, what came out, and how much memory beyond the rows."""
    count, width, k = size
    rows = unit_rows(count, width, "cpu")
    start = starting_rows(rows, k)
    do: Callable[[Tensor, Tensor], Tensor] = globals()[work]
    do(rows[:64], start[:2])  # imports, and threads that wait to be used
    before = _peak()
    results = []
    took = seconds(lambda: results.append(do(rows, start)), repeats, warm=False)
    send.send((took, _peak() - before, results[-1].numpy()))


def alone(work: str, size: tuple[int, int, int], repeats: int = 2, **environment: str) -> Any:
    """(seconds, MiB, result), or None where the peer is not installed."""
    os.environ.update(environment)
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=_alone, args=(send, work, size, repeats)
    )
    process.start()
    send.close()
    try:
        took, more, result = receive.recv()
        return took, more, torch.from_numpy(result)
    except EOFError:
        return None
    finally:
        process.join()
        for name in environment:
            del os.environ[name]


def on_cpu() -> list[str]:
    count, width, k = CPU_SIZE
    rows = unit_rows(count, width, "cpu")
    lines = [
        f"| {count:,} x {width}, k = {k:,}, 20 iterations | seconds | memory beyond the rows "
        "| objective |",
        "|---|---|---|---|",
    ]
    peers = [
        ("ours", "ours", {}),
        ("scikit-learn, lloyd", "scikit_learn", {}),
        ("chunked torch", "plain_torch", {}),
        ("faiss-cpu as installed", "faiss_cpu", {}),
        ("faiss-cpu, OPENBLAS_CORETYPE=SkylakeX", "faiss_cpu", {"OPENBLAS_CORETYPE": "SkylakeX"}),
    ]
    for name, work, environment in peers:
        found = alone(work, CPU_SIZE, **environment)
        if found is None:
            lines.append(f"| {name} | not installed | | |")
            continue
        took, more, centroids = found
        objective = mean_squared_distance(rows, centroids)
        lines.append(f"| {name} | {took:.2f} | {more:.0f} MiB | {objective:.5f} |")
        print(lines[-1], flush=True)
    size = (GRAPH_ROWS, width, k)
    lines += ["", f"| 5 nearest of {GRAPH_ROWS:,} x {width} | seconds | equal to ours |"]
    lines += ["|---|---|---|"]
    mine = None
    for name, work, environment in [
        ("ours", "our_graph", {}),
        ("faiss-cpu, flat, as installed", "faiss_graph", {}),
        ("faiss-cpu, OPENBLAS_CORETYPE=SkylakeX", "faiss_graph", {"OPENBLAS_CORETYPE": "SkylakeX"}),
    ]:
        found = alone(work, size, repeats=1, **environment)
        if found is None:
            lines.append(f"| {name} | not installed | |")
            continue
        mine = found[2] if mine is None else mine
        same = float((found[2] == mine).float().mean())
        lines.append(f"| {name} | {found[0]:.1f} | {same:.2%} |")
        print(lines[-1], flush=True)
    return [*lines, "", f"Power iteration on {NODES:,} nodes, 5 neighbours: {_power():.1f} s."]


def _power() -> float:
    """The components of a graph that is there: neighbours at random among the next thousand."""
    source = torch.Generator().manual_seed(0)
    steps = torch.randint(1, 1000, (NODES, 5), generator=source)
    index = (torch.arange(NODES)[:, None] + steps) % NODES
    distance = torch.rand(NODES, 5, generator=source, dtype=torch.float64).sort(dim=1).values
    graph = Neighbours(index, distance)
    return seconds(lambda: PowerIteration(sigma="auto").components(graph), 1, warm=False)


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
    lines = on_gpu(SIZES[: asked.sizes]) if gpu else on_cpu()
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
