"""Work done ahead by threads, handed out in order.

Threads rather than processes: Pillow lets go of the interpreter while it decodes and resizes, so
that they are as fast here, and there is nothing to fork, to share memory with or to signal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    ahead: int | None = None,
) -> Generator[Result, None, None]:
    """`work(item)` for every item, in order, up to `ahead` of them before they are asked for.

    Unless said otherwise that is as many as keep the threads busy for a moment.
    Closing the iterator early ends the threads; what they had not begun is dropped.
    """
    ahead = 32 * max(1, workers) if ahead is None else ahead
    pool = ThreadPoolExecutor(max(1, workers), thread_name_prefix="images")
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
