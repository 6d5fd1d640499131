"""Commands in processes of their own, forked from one that has imported everything already."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

PLAIN = "--preset paper-alexnet --input-size 64 --network.dropout 0.2"
"""Flags of `train` for the paper's plain way, at the smallest size."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "deepcluster.train_command",
        "deepcluster.reproduce_command",
        "deepcluster.figure_command",
        "deepcluster.studies.demo",
        "deepcluster.show_command",
    ]
)


def run(
    words: Sequence[str], folder: Path, fault: str = "", disk_seconds: float = 0
) -> tuple[int, str]:
    """The exit code (negative for a signal) and the output of a deepcluster command.

    Each file of a checkpoint takes `disk_seconds` to be written.
    """
    log = folder / "output.txt"
    arguments = (list(words), str(folder), str(log), fault, disk_seconds)
    child = _context.Process(target=_carry_out, args=arguments)
    child.start()
    child.join(600)
    if child.is_alive():
        child.kill()
        raise TimeoutError(f"{words} did not end; it printed {log.read_text()}")
    assert child.exitcode is not None
    return child.exitcode, log.read_text()


def table(path: Path) -> dict[str, list]:
    """The columns of a parquet file, read without pyarrow's threads."""
    return pq.ParquetFile(path).read(use_threads=False).to_pydict()


def newest_checkpoint(folder: Path) -> str:
    """The name of the newest checkpoint of the run in `folder`."""
    return max(path.name for path in (folder / "run/checkpoints").iterdir())


def _carry_out(words: list[str], folder: str, log: str, fault: str, disk_seconds: float) -> None:
    import torch

    from deepcluster.cli import main
    from deepcluster.runtime import faults
    from deepcluster.training import checkpoint

    write = checkpoint._write_synced

    def writing(path: Path, *parts: bytes | memoryview) -> str:
        time.sleep(disk_seconds)
        return write(path, *parts)

    checkpoint._write_synced = writing

    os.chdir(folder)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    torch.set_num_threads(1)
    faults.ask(fault)
    sys.exit(main(words))
