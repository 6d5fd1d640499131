"""The processes of one run. Alone, every reduction is the identity: one code path for one and many.

Each process keeps its own rows; only sums and labels travel.
"""

from __future__ import annotations

import gc
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from deepcluster.runtime.errors import (
    DeepClusterError,
    ToldByTheLeaderError,
    UsageError,
    WorldError,
)

_BITS = {4: torch.int32, 8: torch.int64}  # by bytes of a number, of what gloo adds up
_TRANSPORT = re.compile("gloo|nccl|connection|socket|timed out", re.IGNORECASE)


@dataclass(frozen=True)
class World:
    """This process among `size` processes, and the device it computes on."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    patience: float = 60.0
    """Seconds of the leader's silence after which the others should be told to wait on."""

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes files and speaks to the user."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """The part of `count` things, in order, that this process takes."""
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def sum(self, tensor: Tensor) -> Tensor:
        """The element-wise sum over all processes."""
        if self.size == 1:
            return tensor
        total = tensor.clone()
        with failures_named():
            dist.all_reduce(total)
        return total

    def any(self, flag: bool) -> bool:
        """Whether the flag is up in any process. On the host, so that no GPU has to wait."""
        return flag if self.size == 1 else bool(self.sum(torch.tensor([int(flag)])))

    def counts(self, count: int) -> list[int]:
        """Every process's own count, in the order of the ranks."""
        if self.size == 1:
            return [count]
        mine = torch.zeros(self.size, dtype=torch.int64)
        mine[self.rank] = count
        return self.sum(mine).tolist()

    def offset(self, count: int) -> int:
        """The global number of this process's first row, where it has `count` rows."""
        return sum(self.counts(count)[: self.rank])

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes, in the order of the ranks; counts may differ."""
        if self.size == 1:
            return rows
        counts = self.counts(len(rows))
        padded = rows.new_zeros((max(counts), *rows.shape[1:]))
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        with failures_named():
            dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def rows_at(self, rows: Tensor, where: Tensor) -> Tensor:
        """The rows with the given global numbers, the same in every process."""
        if self.size == 1:
            return rows[where.to(rows.device)]
        here = where.to(rows.device) - self.offset(len(rows))
        mine = (here >= 0) & (here < len(rows))
        chosen = rows.new_zeros((len(where), *rows.shape[1:]))
        chosen[mine] = rows[here[mine]]
        return self.sum(chosen)

    def broadcast(self, tensor: Tensor) -> Tensor:
        """The leading process's tensor; shape and type must be known to all."""
        if self.size == 1:
            return tensor
        shared = tensor.clone().contiguous()
        if shared.is_cuda:
            with failures_named():
                dist.broadcast(shared, src=0)
            return shared
        # Gloo's sender of much does not notice that a receiver has died, and waits for as long as
        # it may; whoever adds up waits for all, and notices. Bits are whole numbers: the sum of
        # the leader's and of zeros is the leader's, to the last one.
        bits = shared.reshape(-1).view(_BITS.get(shared.itemsize, torch.uint8))
        if not self.leads:
            bits.zero_()
        return self.sum(bits).view(shared.dtype).reshape(shared.shape)

    def broadcast_bytes(self, data: bytes) -> bytes:
        """The leading process's bytes."""
        if self.size == 1:
            return data
        length = self.broadcast(torch.tensor([len(data)]))
        payload = torch.zeros(int(length), dtype=torch.uint8)
        if self.leads:
            payload = torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy())
        return self.broadcast(payload).numpy().tobytes()

    @contextmanager
    def others_waiting(self) -> Iterator[None]:
        """While open, the leader may take its time and reduces nothing: the others wait in `heard`.

        They are told to wait on before their patience ends. A leader that has died says nothing
        more, and its connection breaks, which they notice at once.
        """
        if self.size == 1:
            yield
            return
        over = threading.Event()

        def tell() -> None:
            with suppress(WorldError):  # another one ended: the leader's next word will fail too
                while not over.wait(self.patience):
                    self.broadcast_bytes(b"")

        telling = threading.Thread(target=tell, name="others waiting", daemon=True)
        telling.start()
        try:
            yield
        finally:
            over.set()
            telling.join()

    def heard(self) -> bytes:
        """The leader's next bytes that are not empty, however long they take to come."""
        while not (word := self.broadcast_bytes(b"")):
            pass
        return word

    @contextmanager
    def others_told(self) -> Iterator[None]:
        """As `others_waiting`, for those who are in `told`: where the leader fails they hear it."""
        try:
            with self.others_waiting():
                yield
        except DeepClusterError as error:
            self.tell({"error": error.exit_code})
            raise

    def tell(self, word: dict[str, Any]) -> None:
        """Say this to the others, as the leader."""
        self.broadcast_bytes(json.dumps(word).encode())

    def told(self) -> dict[str, Any]:
        """What the leader says, however long that takes; raises where it has failed."""
        word: dict[str, Any] = json.loads(self.heard())
        if "error" in word:
            raise ToldByTheLeaderError(word["error"])
        return word

    def wait(self) -> None:
        """Return when every process has come here."""
        self.any(False)


def best_device() -> str:
    """The fastest kind of device this machine has."""
    if torch.cuda.is_available():
        return "cuda"
    return "cpu"


@contextmanager
def joined(device: str = "auto", timeout_minutes: float = 10) -> Iterator[World]:
    """The world that torchrun describes in the environment, or the one of a single process."""
    kind = best_device() if device == "auto" else device
    if not re.fullmatch(r"cpu|cuda(:\d+)?", kind):
        raise UsageError(f"--device {device}: use cpu, cuda or auto")
    if kind.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"--device {device}: no CUDA device is visible; use --device cpu")
    here = torch.device(kind)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(device=here)
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if here.type == "cuda":
        here = torch.device("cuda", local)
        if local >= torch.cuda.device_count():
            raise UsageError(
                f"process {local} of this machine has no GPU of its own: "
                f"start at most {torch.cuda.device_count()} with --nproc-per-node"
            )
        torch.cuda.set_device(here)
    # Flags and labels go through the host (gloo), sums of features through the GPUs (NCCL).
    backend = "cpu:gloo,cuda:nccl" if here.type == "cuda" else "gloo"
    # Its functions keep the group that there is when they are loaded, and DDP loads them. A group
    # that is kept has threads to the end: one that then lets go of a tensor aborts the process.
    import_module("torch.distributed.nn.functional")
    with failures_named():
        dist.init_process_group(backend, timeout=timedelta(minutes=timeout_minutes))
    try:
        patience = min(60.0, 15.0 * timeout_minutes)
        yield World(dist.get_rank(), dist.get_world_size(), here, patience)
    finally:
        gc.collect()  # DDP's rings keep the group too
        dist.destroy_process_group()


@contextmanager
def failures_named() -> Iterator[None]:
    """Turn the transport's message into one that says what happened to the run."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not _TRANSPORT.search(str(error)):
            raise
        raise WorldError(
            "another process of this run ended or does not answer; what was saved is whole, "
            f"and the same command continues ({str(error).splitlines()[0][:160]})"
        ) from error
