"""embed beside the bare forward pass of the same network, from a packed store.

    python benchmarks/embedding.py [--images N] [--size 224] [--width 4096] [--out FILE.npy]

AlexNet with Sobel, untrained, float32. Prints images a second of the forward pass over one batch
that lies on the device, of `embed` without its writing, their ratio, and the speed of the writing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch

from deepcluster.collection.embedding import Work, embed
from deepcluster.collection.model import Model, Wanted
from deepcluster.collection.sight import Preprocessing
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
    with (folder / "pixels.u8").open("wb") as file:
        for first in range(0, images, BLOCK):
            part = noise[: min(BLOCK, images - first)]
            file.write(part.data)
            ends.append((first + len(part)) * SIDE * SIDE)
            checksums.append(zlib.crc32(part.data))
    rows = (
        {"path": f"{n:08d}.png", "size": 0, "modified": 0, "width": SIDE, "height": SIDE}
        | {"mode": "L", "hash": f"{n:08x}", "label": None, "reason": None}
        for n in range(images)
    )
    Index.from_rows(rows).save(folder / "index.parquet")
    starts = np.arange(images, dtype=np.int64) * SIDE * SIDE
    layout = np.stack([starts, np.full(images, SIDE), np.full(images, SIDE)], axis=1)
    np.save(folder / "layout.npy", layout)
    contents = Contents("grey", SIDE, "square", images, images * SIDE * SIDE, ends, checksums)
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


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--images", type=int, default=100_000)
    words.add_argument("--size", type=int, default=224)
    words.add_argument("--width", type=int, default=4096)
    words.add_argument("--seconds", type=float, default=5.0)
    words.add_argument("--out", type=Path)
    asked = words.parse_args()
    device = torch.device(best_device())
    batch = 256 if device.type == "cuda" else 64
    generator = torch.Generator().manual_seed(0)
    network = build_network("alexnet", "sobel", asked.size, width=asked.width, generator=generator)
    effective = {"network.arch": "alexnet", "network.front": "sobel"}
    model = Model(network, Preprocessing(asked.size, "grey", Pixels()), effective, {}, device)
    with tempfile.TemporaryDirectory() as place:
        store = made_store(Path(place) / "store", asked.images)
        before = forward_rate(model, asked.size, batch, asked.seconds)
        out = asked.out or Path(place) / "features.npy"
        work = Work(batch, 4, Display(speaks=False))
        begun = time.perf_counter()
        outcome = embed(model, store, out, Wanted(), None, work)
        whole = time.perf_counter() - begun
        after = forward_rate(model, asked.size, batch, asked.seconds)
    bare = (before + after) / 2
    rate = outcome.looked / outcome.seconds
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    print(f"{name}, torch {torch.__version__}, {asked.images:,} images at {asked.size} px")
    print(
        f"forward pass alone     {bare:10,.0f} images/s ({before:,.0f} before, {after:,.0f} after)"
    )
    print(f"embed without writing  {rate:10,.0f} images/s, {rate / bare:.3f} of it")
    speed = outcome.written_bytes / 1e6 / outcome.written_seconds
    print(
        f"writing                {speed:10,.0f} MB/s "
        f"({outcome.written_seconds:.1f} s); all of embed {whole:.1f} s"
    )


if __name__ == "__main__":
    main()
