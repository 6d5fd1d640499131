"""Where an epoch's raw features wait between the pass over the images and the whitening.

N x 4096 numbers are 21 GB in float32 for ImageNet, so they are kept as float16, on the device or
in a file of the run folder, or not at all and computed twice.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from deepcluster.runtime import faults, interruption
from deepcluster.runtime.run_folder import storage_errors_named, sync
from deepcluster.runtime.world import World

Keep = Literal["auto", "device", "file", "recompute"]
_BLOCK = 2048
_ROOM_OF_A_CPU = 2.0**29  # bytes: a laptop's memory is not all ours


class RawRows:
    """This process's raw features, row after row.

    A row is kept as (x - centre) / scale, with centre and scale taken from the first rows of
    all: float16 has eleven bits, and they should not be spent on a common offset.
    """

    def __init__(
        self,
        count: int,
        width: int,
        keep: Literal["device", "file"],
        device: torch.device,
        *,
        path: Path | None = None,
        key: str = "",
    ) -> None:
        self.count, self.width, self.device = count, width, device
        self.done = 0
        self.centre = torch.zeros(width, device=device)
        self.scale = torch.ones((), device=device)
        self._path = path if keep == "file" else None
        self._key = key
        if self._path is None:
            self._kept = torch.empty(count, width, dtype=torch.float16, device=device)
        else:
            self._map(self._path)

    def set_frame(self, first: Tensor, world: World) -> None:
        """Take centre and scale from the leading process's first block of rows."""
        finite = first[first.isfinite().all(dim=1)].double()
        if len(finite):
            self.centre = finite.mean(dim=0).float()
            spread = float((finite - finite.mean(dim=0)).square().mean().sqrt())
            # The first rows may be more alike than the others. No finer than this: then what
            # float32 could tell apart is still told apart, and nothing usual is too large.
            spread = max(spread, float(finite.square().mean().sqrt()) / 1024)
            if spread > 0:
                self.scale = torch.tensor(spread, device=self.device, dtype=torch.float32)
        self.centre = world.broadcast(self.centre)
        self.scale = world.broadcast(self.scale.reshape(1))[0]

    def append(self, block: Tensor) -> None:
        """Keep the next rows (b x d). What is not finite stays so; what is too large is cut."""
        kept = (block.float() - self.centre) / self.scale
        kept = kept.clamp(-65504.0, 65504.0).half()  # clamp keeps NaN
        kept[~block.isfinite().all(dim=1)] = torch.nan
        stop = self.done + len(block)
        self._kept[self.done : stop] = kept.to(self._kept.device)
        self.done = stop

    def blocks(self) -> Iterator[Tensor]:
        """All rows kept so far in the frame of `centre` and `scale`, float32, a block at a time."""
        for start in range(0, self.done, _BLOCK):
            stop = min(start + _BLOCK, self.done)
            yield self._kept[start:stop].to(self.device, torch.float32)

    def flush(self) -> None:
        """Make the rows of a file outlive the process: data first, then the note that vouches."""
        if self._path is None:
            return
        with storage_errors_named(self._path):
            faults.point("features.flush")
            self._file.flush()
            sync(self._path)
            note = {"key": self._key, "done": str(self.done), "shape": self._shape()}
            aside = self._note.with_suffix(".writing")
            frame = {"centre": self.centre.cpu(), "scale": self.scale.cpu().reshape(1)}
            save_file(frame, aside, metadata=note)
            aside.replace(self._note)

    def _map(self, path: Path) -> None:
        with storage_errors_named(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = not self._take_up(path)
            if fresh:  # a note must not come to vouch for rows that are not yet there
                self._note_of(path).unlink(missing_ok=True)
            self._file = np.memmap(
                path, dtype=np.float16, mode="w+" if fresh else "r+", shape=(self.count, self.width)
            )
        self._kept = torch.from_numpy(self._file)

    def _take_up(self, path: Path) -> bool:
        """Whether an interrupted pass by the same network left rows here; continue after them."""
        try:
            with safe_open(self._note_of(path), framework="pt", device=str(self.device)) as note:
                about = note.metadata()
                if about["key"] != self._key or about["shape"] != self._shape():
                    return False
                if path.stat().st_size != self.count * self.width * 2:
                    return False
                self.centre = note.get_tensor("centre")
                self.scale = note.get_tensor("scale")[0]
                self.done = int(about["done"])
        except (OSError, SafetensorError, KeyError, ValueError):
            return False
        return True

    def _shape(self) -> str:
        return json.dumps([self.count, self.width])

    @property
    def _note(self) -> Path:
        assert self._path is not None
        return self._note_of(self._path)

    @staticmethod
    def _note_of(path: Path) -> Path:
        return path.with_suffix(".safetensors")


class RecomputedRows:
    """The same face in float32: every reading of the rows is a pass over the images.

    Where there is plenty of room for them, the first reading keeps them for the next.
    """

    def __init__(
        self, passes: Callable[[], Iterator[Tensor]], count: int, width: int, device: torch.device
    ) -> None:
        self._passes = passes
        self._keeps = count * width * 4 <= _room(device)
        self._kept: list[Tensor] | None = None
        self.centre = torch.zeros((), device=device)
        self.scale = torch.ones((), device=device)

    def blocks(self) -> Iterator[Tensor]:
        """All rows, float32, a block at a time."""
        if self._kept is not None:
            yield from self._kept
            return
        kept = []
        for block in self._passes():
            rows = block.float()
            if self._keeps:
                kept.append(rows)
            yield rows
            interruption.raise_if_asked()
        if self._keeps:
            self._kept = kept

    def flush(self) -> None:
        """Nothing is kept, so nothing can be lost."""


def _room(device: torch.device) -> float:
    """Bytes that can be spared for rows in float32."""
    if device.type == "cuda":
        return 0.3 * torch.cuda.mem_get_info(device)[0]
    return _ROOM_OF_A_CPU


def chosen_place(
    keep: Keep, count: int, width: int, device: torch.device, folder: Path | None
) -> Literal["device", "file", "recompute"]:
    """Where `count` rows should wait: with the device if they fit, else on disk, else nowhere."""
    if keep != "auto":
        return keep
    needed = count * width * 2
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if needed < 0.4 * free:
            return "device"
    if folder is None:
        return "device"
    folder.mkdir(parents=True, exist_ok=True)
    return "file" if needed < 0.5 * shutil.disk_usage(folder).free else "recompute"
