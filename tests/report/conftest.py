from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from deepcluster.report.selection import select
from deepcluster.runtime.run_folder import RunFolder

HOSTILE = [
    "<script>document.title='run'</script>.jpg",
    '"><img src=x onerror="document.title=\'run\'">.png',
    "'-alert(1)-'.png",
    "</script><script>document.title='run'</script>.jpg",
    "line%0Abreak and %FF bytes.jpg",
    "{{ 7 * 7 }} {% raw %} ${name} &amp; &lt;b&gt;.jpg",
    "javascript:document.title='run'",
    "\u202egpj.exe right to left.jpg",
]


@pytest.fixture
def hostile() -> list[str]:
    """The names of the first images of every generated run."""
    return HOSTILE


@pytest.fixture
def generated(tmp_path: Path) -> Callable[..., RunFolder]:
    """A finished run of made-up rows, as train would have left it."""

    def make(count: int, k: int, epochs: int = 3, inside: str = "photos of summer") -> RunFolder:
        folder = RunFolder(tmp_path / "made up")
        randomness = np.random.default_rng(0)
        labels = randomness.integers(0, k, count)
        centres = randomness.normal(size=(k, 8))
        rows = centres[labels] + 0.3 * randomness.normal(size=(count, 8))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        distances = np.linalg.norm(rows - centres[labels], axis=1).astype(np.float32)
        names = [f"{inside}/{number:07d}.jpg" for number in range(count)]
        names[: len(HOSTILE)] = HOSTILE
        effective = {
            "network.arch": "alexnet",
            "network.front": "sobel",
            "network.input_size": 64,
            "clustering.k": k,
            "epochs": epochs,
            "training.schedule": "constant",
        }
        folder.begin(
            {
                "version": "0.1.0",
                "images": "/photos & <b>more</b>",
                "data": "x",
                "asked": ["/photos & <b>more</b>", "--epochs", str(epochs)],
                "effective": effective,
            }
        )
        for epoch in range(epochs):
            folder.record(
                {
                    "epoch": epoch,
                    "loss": 3 - 0.1 * epoch,
                    "ln_k": 3.2,
                    "nmi_last": None if epoch == 0 else 0.5,
                    "nmi_labels": None,
                    "seconds": {"look": 1.0, "group": 0.1, "learn": 3.0},
                    "warnings": [],
                }
            )
            moved = np.where(randomness.random(count) < 0.3, (labels + 1) % k, labels)
            folder.write_assignment(epoch, moved)
        index = {
            "id": pa.array([*range(count), None], pa.int64()),
            "path": [*names, "broken <i>file</i>.jpg"],
            "label": pa.array([None] * (count + 1), pa.string()),
            "hash": [*(f"{number}" for number in range(count)), None],
            "reason": pa.array([None] * count + ["cut short"], pa.string()),
        }
        pq.write_table(pa.table(index), folder.index)
        table = pa.table({"path": names, "cluster": labels, "distance": distances})
        pq.write_table(table, folder.path / "clusters.parquet")
        folder.write_array("features.npy", rows.astype(np.float16))
        (folder.path / "thumbnails").mkdir()
        noise = randomness.integers(0, 255, (96, 96, 3)).astype(np.uint8)  # larger than any photo
        Image.fromarray(noise).save(folder.path / "thumbnails/first.jpg", quality=80)
        content = (folder.path / "thumbnails/first.jpg").read_bytes()
        (folder.path / "thumbnails/first.jpg").unlink()
        for number in select(labels, distances).images.tolist():
            (folder.path / f"thumbnails/{number}.jpg").write_bytes(content)
        comparison = {"name": "crops", "untrained": 0.1, "trained": 0.4, "chance": 0.01}
        baseline = {"format": 1, "images": 500, "comparisons": [comparison]}
        folder.write("baseline.json", json.dumps(baseline))
        folder.write("closing.json", json.dumps({"seconds": {"look": 1.0}, "warnings": []}))
        return folder

    return make
