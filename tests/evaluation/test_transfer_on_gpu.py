"""Every protocol of transfer from the words to its figures on a GPU, beside the CPU's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from detection_child import COURSE, SCALE, a_model, paint
from devkit import write_devkit
from PIL import Image

from deepcluster import cli
from deepcluster.evaluation import detector_training
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.detector_training import Halfway, taught
from deepcluster.runtime import interruption
from deepcluster.runtime.interruption import Interrupted
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.world import World

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

VOC = {
    "voc-classification": "--epochs 2 --steps 0.003 0.01 --decays 0 --dropout 0 --hidden 32",
    "voc-detection": "--short-side 80 --long-side 120 --regions 60 --passes 2 --steps 0.001 0.003 "
    "--dropout 0 --proposals grouping",
    "voc-segmentation": "--epochs 2 --batch 4 --steps 0.003 0.01 --dropout 0 --finest 8",
}


def figure(words: str, device: str, precision: str) -> float:
    """The first figure of what the command leaves."""
    out = Path(f"{device}-{precision}")
    more = f"--device {device} --precision {precision} --out {out} --stores stores --workers 2"
    assert cli.main(f"evaluate {words} --input-size 64 --width 16 {more}".split()) == 0
    result = json.loads(max(out.glob("*.json"), key=lambda p: p.stat().st_mtime_ns).read_text())
    found = result["result"]
    if "levels" in found:
        return float(found["levels"]["all"]["map"])
    return float(found["mean_iou"] if "mean_iou" in found else found["mean"]["eleven_point"])


@pytest.mark.parametrize("train", ["fc6-8", "all"])
@pytest.mark.parametrize("protocol", VOC)
def test_voc_on_a_gpu_is_voc_on_a_cpu(
    protocol: str, train: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    write_devkit(tmp_path, {"train": 6, "val": 6, "test": 12})
    words = f"random {protocol} --data . --train {train} {VOC[protocol]}"
    by_cpu = figure(words, "cpu", "float32")
    assert figure(words, "cuda", "float32") == pytest.approx(by_cpu, abs=0.15)
    assert 0 <= figure(words, "cuda", "bfloat16") <= 1


def test_retrieval_on_a_gpu_is_retrieval_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    randomness = np.random.default_rng(0)
    for folder in ("city/images", "city/gt_files", "other"):
        Path(folder).mkdir(parents=True)
    for number in range(8):
        pixels = randomness.integers(0, 255, (96, 128, 3)).astype(np.uint8)
        for folder in ("city/images", "other"):
            Image.fromarray(pixels[:: 1 if folder == "other" else -1]).save(
                f"{folder}/hall_{number}.png"
            )
    for kind, text in {
        "query": "hall_1 0 0 100 90",
        "good": "hall_1",
        "ok": "hall_2",
        "junk": "hall_3",
    }.items():
        Path(f"city/gt_files/hall_{kind}.txt").write_text(text)
    words = "random retrieval --data city --whiten-on other --size 128 --dimensions 4"
    by_cpu = figure(words, "cpu", "float32")
    assert figure(words, "cuda", "float32") == pytest.approx(by_cpu, abs=0.15)
    assert 0 < figure(words, "cuda", "bfloat16") <= 1


def test_a_detector_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """All layers, channels last, by the fused optimizer, which is strict about layouts."""
    images, regions = paint(tmp_path / "painted")
    bench = Bench(World(device=torch.device("cuda")), workers=1, autocast=torch.bfloat16)
    half = Halfway(RunFolder(tmp_path), "half.safetensors")
    course = replace(COURSE, learnt="all", iterations=8)
    done: list[int] = []
    step = detector_training._step

    def stopping(*given):
        done.append(1)
        if len(done) == 4:
            monkeypatch.setattr(interruption, "_asked", interruption.TERMINATED)
        return step(*given)

    monkeypatch.setattr(detector_training, "_step", stopping)

    def model():
        return a_model().to("cuda", memory_format=torch.channels_last)

    with pytest.raises(Interrupted):
        taught(model(), images, regions, SCALE, course, bench, half)
    monkeypatch.setattr(interruption, "_asked", None)
    assert taught(model(), images, regions, SCALE, course, bench, half).iteration == 8
    assert len(done) == 8
