"""Rows shared among the cores of a CPU: each core does all that is to be done with its share.

That leaves nothing to wait for between one small operation and the next, which is where torch's own
threads, all at work on the same block, lose a fifth of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

import torch

from deepcluster.clusters.rows import Rows

Item = TypeVar("Item")
Found = TypeVar("Found")

_one_at_a_time = Lock()
_LEAST = 4096  # rows that are worth a thread
_MOST_HELD = 2**26  # bytes, by all shares together


def for_each_share(
    rows: Rows, work: Callable[[Rows, int], Found], *, each_holds: int = 0
) -> list[Found]:
    """What `work` gives for each share, in order; it is told the number of the share's first row.

    Shares are consecutive and depend only on how many threads torch may use, so that the same
    numbers are always added up in the same order. On a GPU, and where every share would hold many
    bytes (`each_holds`) of its own, there is one.
    """
    threads = torch.get_num_threads()
    count = min(threads, len(rows) // _LEAST, _MOST_HELD // max(1, each_holds))
    if rows.device.type != "cpu" or count <= 1:
        return [work(rows, 0)]
    size = -(-len(rows) // count)
    starts = range(0, len(rows), size)
    return on_each_core(starts, lambda start: work(rows.part(start, size), start))


def on_each_core(
    items: Iterable[Item],
    work: Callable[[Item], Found],
    progress: Callable[[], None] = lambda: None,
) -> list[Found]:
    """What `work` gives for each item, in order; one item a core at a time, on the CPU.

    `progress` is called on this thread after each item; if it raises, no other item is begun.
    """
    inference = torch.is_inference_mode_enabled()  # which each thread must be told

    def told(item: Item) -> Found:
        with torch.inference_mode(inference), torch.no_grad():
            return work(item)

    with _one_at_a_time:  # or the second would take the first one's single thread for the usual
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            found = []
            with ThreadPoolExecutor(threads) as pool:
                try:
                    for one in pool.map(told, items):
                        found.append(one)
                        progress()
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
            return found
        finally:
            torch.set_num_threads(threads)


def evenly(things: int, steps: int, progress: Callable[[int], None]) -> Callable[[], None]:
    """What is to be called after each of so many steps, to tell `progress` of so many things."""
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress(things * done // steps - things * (done - 1) // steps)

    return step
