"""embed beside the bare forward pass of the same network, from a packed store.

    python benchmarks/embedding.py [--images N] [--size 224] [--width 4096] [--out FILE.npy]

AlexNet with Sobel, untrained, float32. Prints images a second of the forward pass over one batch
that lies on the device, of `embed` that writes nothing, their ratio, and the speed of the writing.
Writing is left out rather than subtracted: a GPU computes while rows are written, and what it hides
would count as gained.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import zlib
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from deepcluster.collection.embedding import Outcome, Work, embed
from deepcluster.collection.model import Model, Wanted
from deepcluster.collection.sight import Preprocessing
from deepcluster.collection.table import ImageTable
from deepcluster.images.index import Index
from deepcluster.images.kept import Pixels
from deepcluster.images.store import MANIFEST, Contents, Store
from deepcluster.networks import build_network
from deepcluster.runtime.display import Display
from deepcluster.runtime.world import best_device

SIDE = 256
BLOCK = 1024  # images written at once


def made_store(folder: Path, images: int) -> Store:
    """A grey store of noise: how long an image takes does not depend on what it shows."""
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (BLOCK, SIDE, SIDE), dtype=np.uint8)
    ends, checksums = [], []
    whole = zlib.crc32(noise.data)
    with (folder / "pixels.u8").open("wb") as file:
        for first in range(0, images, BLOCK):
            part = noise[: min(BLOCK, images - first)]
            file.write(part.data)
            ends.append((first + len(part)) * SIDE * SIDE)
            checksums.append(whole if len(part) == BLOCK else zlib.crc32(part.data))
    rows = (
        {"path": f"{n:08d}.png", "size": 0, "modified": 0, "width": SIDE, "height": SIDE}
        | {"mode": "L", "hash": f"{n:08x}", "label": None, "reason": None}
        for n in range(images)
    )
    Index.from_rows(rows).save(folder / "index.parquet")
    starts = np.arange(images, dtype=np.int64) * SIDE * SIDE
    layout = np.stack([starts, np.full(images, SIDE), np.full(images, SIDE)], axis=1)
    np.save(folder / "layout.npy", layout)
    how = Pixels(short_side=SIDE, shape="square", colour="grey")
    contents = Contents(how, images, images * SIDE * SIDE, ends, checksums)
    (folder / MANIFEST).write_text(contents.to_json())
    return Store(folder)


def forward_rate(model: Model, size: int, batch: int, seconds: float) -> float:
    """Images a second of the network alone, over a batch that is where it computes."""
    crops = torch.randint(0, 256, (batch, 1, size, size), dtype=torch.uint8).to(model.device)

    def synchronize() -> None:
        if model.device.type == "cuda":
            torch.cuda.synchronize()

    model.activations(crops)
    synchronize()
    begun, done = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        for _ in range(8 if model.device.type == "cuda" else 1):
            model.activations(crops)
            done += batch
        synchronize()
    return done / (time.perf_counter() - begun)


class Unwritten(ImageTable):
    """A table whose rows are counted and let go."""

    def add(self, rows: list[dict[str, object]], vectors: np.ndarray) -> None:
        """Count them."""
        self.done += len(rows)
        self.usable += len(vectors)

    def finish(self) -> list[tuple[str, str]]:
        """Leave nothing behind."""
        return self.discarded()


def unwritten(model: Model, store: Store, place: Path, work: Work) -> Outcome:
    """All of embed but the writing."""
    with patch("deepcluster.collection.embedding.ImageTable", Unwritten):
        return embed(model, store, place / "nothing.npy", Wanted(), None, work)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--images", type=int, default=50_000)
    words.add_argument("--size", type=int, default=224)
    words.add_argument("--width", type=int, default=4096)
    words.add_argument("--seconds", type=float, default=3.0)
    words.add_argument("--out", type=Path)
    asked = words.parse_args()
    device = torch.device(best_device())
    batch = 256 if device.type == "cuda" else 64  # as the verb embed has them
    generator = torch.Generator().manual_seed(0)
    network = build_network("alexnet", "sobel", asked.size, width=asked.width, generator=generator)
    effective = {"network.arch": "alexnet", "network.front": "sobel"}
    model = Model(network, Preprocessing(asked.size, "grey", Pixels()), effective, {}, device)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        work = Work(batch, 4, Display(speaks=False))
        unwritten(model, made_store(place / "few", batch), place, work)  # kernels are compiled
        store = made_store(place / "store", asked.images)
        before = forward_rate(model, asked.size, batch, asked.seconds)
        looked = unwritten(model, store, place, work)
        after = forward_rate(model, asked.size, batch, asked.seconds)
        begun = time.perf_counter()
        written = embed(model, store, asked.out or place / "features.npy", Wanted(), None, work)
        whole = time.perf_counter() - begun
    assert looked.looked == written.looked == asked.images
    bare = (before + after) / 2
    rate = looked.looked / looked.seconds
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    print(f"{name}, torch {torch.__version__}, {asked.images:,} images at {asked.size} px")
    print(
        f"forward pass alone     {bare:10,.0f} images/s ({before:,.0f} before, {after:,.0f} after)"
    )
    print(
        f"embed without writing  {rate:10,.0f} images/s, {rate / bare:.3f} of it "
        f"({looked.seconds:.2f} s)"
    )
    speed = written.written_bytes / 1e6 / written.written_seconds
    print(
        f"writing                {speed:10,.0f} MB/s ({written.written_seconds:.1f} s); "
        f"all of embed, the check of the store and the writing included, {whole:.1f} s"
    )


if __name__ == "__main__":
    main()
