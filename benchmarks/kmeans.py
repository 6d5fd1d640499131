"""k-means, and the graph of neighbours, beside what a user would pick instead, in one run.

    python benchmarks/kmeans.py [--sizes N] [--out FILE]

On a GPU: iterations at several sizes against chunked torch, and flash-kmeans where it is installed,
in about a minute and a half. What is measured is told at once, and what fails says so in its place.
On a CPU: 20 iterations against scikit-learn, chunked torch, and faiss where it is installed, as it
comes and with its BLAS told which kernels to use; then the graph, and power iteration on it. Each
peer on the CPU has a process to itself, so that its peak memory can be told.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from other_clusterings import ON_CPU, by_flash_kmeans, chunked
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
_ENOUGH_SECONDS = 1.0  # of runs of one thing, after which no further one is made
_LIMIT_SECONDS = 130  # after which nothing more is begun on a GPU


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


def timed(work: Callable[[], object], repeats: int = 5, warm: bool = True) -> list[float]:
    """Seconds of a few runs, the shortest first, after one to warm up; of two, if they are long."""
    if warm:
        work()
    taken: list[float] = []
    while len(taken) < repeats and (len(taken) < 2 or sum(taken) < _ENOUGH_SECONDS):
        _synchronize()
        begun = time.perf_counter()
        work()
        _synchronize()
        taken.append(time.perf_counter() - begun)
    return sorted(taken)


def seconds(work: Callable[[], object], repeats: int = 3, warm: bool = True) -> float:
    """The shortest of a few runs after one to warm up."""
    return timed(work, repeats, warm)[0]


class Report:
    """Lines that are told, and written to the file if there is one, as soon as they are known."""

    def __init__(self, out: Path | None) -> None:
        self._out, self._lines = out, list[str]()

    def add(self, *lines: str) -> None:
        """Tell and write them."""
        self._lines += lines
        print(*lines, sep="\n", flush=True)
        if self._out is not None:
            self._out.write_text("\n".join([*self._lines, ""]))


def mean_squared_distance(rows: Tensor, centroids: Tensor) -> float:
    total = 0.0
    for part in rows.split(max(1, (1 << 28) // len(centroids))):
        total += float(torch.cdist(part, centroids).amin(dim=1).double().square().sum())
    return total / len(rows)


def on_gpu(report: Report, sizes: list[tuple[int, int, int]], device: str = "cuda") -> None:
    names = [name for name, _ in _measures(torch.empty(0, 1), torch.empty(0, 1))]
    report.add(f"| n, d, k | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|")
    begun = time.monotonic()
    for count, width, k in sizes:
        cells = [f"{count:,}, {width}, {k:,}"]
        try:
            rows = unit_rows(count, width, device)
            for name, measure in _measures(rows, starting_rows(rows, k)):
                late = time.monotonic() - begun > _LIMIT_SECONDS
                cells.append("not run: late" if late else _told(measure))
                print(f"{cells[0]}: {name}: {cells[-1]}", file=sys.stderr, flush=True)
        except Exception as error:
            cells += [_failure(error)] + ["-"] * (len(names) - len(cells))
        finally:  # what was measured is told, even if Ctrl-C ends it here
            report.add(f"| {' | '.join(cells)} |")
            rows = None
            torch.cuda.empty_cache()
    report.add(
        "", f"Shortest of at most 5 runs (median in brackets); {time.monotonic() - begun:.0f} s."
    )


def _measures(rows: Tensor, start: Tensor) -> list[tuple[str, Callable[[], str]]]:
    """What a size is asked, with its name: each can fail without the others."""
    flash: list[Callable[[int], Tensor]] = []
    objective: dict[str, float] = {}

    def an_iteration(precision: str) -> Callable[[], str]:
        def measure() -> str:
            from deepcluster.clusters.fast.search_by_kernel import SearchByKernel
            from deepcluster.clusters.rows import Rows
            from deepcluster.runtime.world import World

            world = World(device=rows.device)
            search = SearchByKernel(Rows.of(rows), world, precision)  # type: ignore[arg-type]
            return _milliseconds(lambda: search.totals(start).means.float())

        return measure

    def with_flash() -> str:
        try:
            flash.append(by_flash_kmeans(rows, start))
        except ImportError:
            return "not installed"
        return _milliseconds(lambda: flash[0](1))

    def in_chunks() -> str:
        torch.set_float32_matmul_precision("high")
        try:
            return _milliseconds(lambda: chunked(rows, start, max(1024, (1 << 30) // len(start))))
        finally:
            torch.set_float32_matmul_precision("highest")

    def whole() -> str:
        method = KMeans(k=len(start), iterations=20, precision="bfloat16")
        found = []
        taken = timed(lambda: found.append(method(rows, centroids=start).search))
        return f"{taken[0]:.3f} s ({taken[len(taken) // 2]:.3f}){_otherwise('bfloat16', found[-1])}"

    def after_ten(name: str) -> Callable[[], str]:
        def measure() -> str:
            if name == "flash-kmeans":
                if not flash:
                    return "-"
                found, how = flash[0](10).float(), name
            else:
                method = KMeans(k=len(start), iterations=10, precision=name)  # type: ignore[arg-type]
                clusters = method(rows, centroids=start)
                found, how = clusters.centroids.to(rows.device), clusters.search
            objective[name] = mean_squared_distance(rows, found)
            beside = objective.get("float32")
            more = "" if beside is None else f" ({objective[name] / beside - 1:+.4%})"
            return f"{objective[name]:.5f}{more}{_otherwise(name, how)}"

        return measure

    return [
        ("an iteration, bfloat16", an_iteration("bfloat16")),
        ("tf32", an_iteration("tf32")),
        ("float32", an_iteration("float32")),
        ("flash-kmeans bfloat16", with_flash),
        ("chunked torch TF32", in_chunks),
        ("20 iterations, splits and labels, bfloat16", whole),
        ("objective after 10: float32", after_ten("float32")),
        ("bfloat16", after_ten("bfloat16")),
        ("flash-kmeans", after_ten("flash-kmeans")),
    ]


def _otherwise(asked: str, ran: str) -> str:
    """What is to be said where something else ran than what was asked for."""
    return "" if ran.startswith(asked) and "products" not in ran else f", by {ran}"


def _milliseconds(work: Callable[[], object]) -> str:
    taken = timed(work)
    return f"{taken[0] * 1e3:.2f} ms ({taken[len(taken) // 2] * 1e3:.2f})"


def _told(measure: Callable[[], str]) -> str:
    try:
        return measure()
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    return f"failed: {type(error).__name__}: {first[:120]}".replace("|", "/")


# What runs on the CPU: each gives the centroids after 20 iterations from the same start.
def ours(rows: Tensor, start: Tensor) -> Tensor:
    return KMeans(k=len(start), iterations=20)(rows, centroids=start).centroids


def our_graph(rows: Tensor, _: Tensor) -> Tensor:
    return nearest_others(rows, 5).index


WORK = {work.__name__: work for work in (ours, our_graph, *ON_CPU)}
"""By name, for a process of its own."""


def _peak() -> float:
    """MiB. Not getrusage's: that remembers what the parent had."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _alone(send: Any, work: str, size: tuple[int, int, int], repeats: int) -> None:
    """In a process of its own: how long, what came out, and how much memory beyond the rows."""
    count, width, k = size
    rows = unit_rows(count, width, "cpu")
    start = starting_rows(rows, k)
    do: Callable[[Tensor, Tensor], Tensor] = WORK[work]
    try:
        do(rows[:64], start[:2])  # imports, and threads that wait to be used
    except ImportError:
        send.send(None)
        return
    before = _peak()
    results = []
    took = seconds(lambda: results.append(do(rows, start)), repeats, warm=False)
    send.send((took, _peak() - before, results[-1].numpy()))


def alone(work: str, size: tuple[int, int, int], repeats: int = 2, **environment: str) -> Any:
    """(seconds, MiB, result), or in words why there is none."""
    os.environ.update(environment)
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=_alone, args=(send, work, size, repeats)
    )
    process.start()
    send.close()
    try:
        found = receive.recv()
        if found is None:
            return "not installed"
        took, more, result = found
        return took, more, torch.from_numpy(result)
    except EOFError:
        return "failed"
    finally:
        process.join()
        for name in environment:
            del os.environ[name]


def on_cpu(report: Report) -> None:
    count, width, k = CPU_SIZE
    rows = unit_rows(count, width, "cpu")
    report.add(
        f"| {count:,} x {width}, k = {k:,}, 20 iterations | seconds | memory beyond the rows "
        "| objective |",
        "|---|---|---|---|",
    )
    peers = [
        ("ours", "ours", {}),
        ("scikit-learn, lloyd", "scikit_learn", {}),
        ("chunked torch", "plain_torch", {}),
        ("faiss-cpu as installed", "faiss_cpu", {}),
        ("faiss-cpu, OPENBLAS_CORETYPE=SkylakeX", "faiss_cpu", {"OPENBLAS_CORETYPE": "SkylakeX"}),
    ]
    for name, work, environment in peers:
        found = alone(work, CPU_SIZE, **environment)
        if isinstance(found, str):
            report.add(f"| {name} | {found} | | |")
            continue
        took, more, centroids = found
        objective = mean_squared_distance(rows, centroids)
        report.add(f"| {name} | {took:.2f} | {more:.0f} MiB | {objective:.5f} |")
    size = (GRAPH_ROWS, width, k)
    report.add("", f"| 5 nearest of {GRAPH_ROWS:,} x {width} | seconds | equal to ours |")
    report.add("|---|---|---|")
    mine = None
    for name, work, environment in [
        ("ours", "our_graph", {}),
        ("faiss-cpu, flat, as installed", "faiss_graph", {}),
        ("faiss-cpu, OPENBLAS_CORETYPE=SkylakeX", "faiss_graph", {"OPENBLAS_CORETYPE": "SkylakeX"}),
    ]:
        found = alone(work, size, repeats=1, **environment)
        if isinstance(found, str):
            report.add(f"| {name} | {found} | |")
            continue
        mine = found[2] if mine is None else mine
        same = float((found[2] == mine).float().mean())
        report.add(f"| {name} | {found[0]:.1f} | {same:.2%} |")
    report.add("", f"Power iteration on {NODES:,} nodes, 5 neighbours: {_power():.1f} s.")


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
    gpu = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if gpu else f"{torch.get_num_threads()} CPU threads"
    report = Report(asked.out)
    report.add(
        f"`python benchmarks/kmeans.py`, {device}, Python {platform.python_version()}, torch "
        f"{torch.__version__}; unit rows around 2,000 centres, seed 0, equal start.",
        "",
    )
    if gpu:
        on_gpu(report, SIZES[: asked.sizes])
    else:
        on_cpu(report)


if __name__ == "__main__":
    main()
