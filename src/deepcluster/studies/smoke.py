"""The smallest size of every study: minutes on two cores, with images that come along."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from deepcluster.clusters import KMeans
from deepcluster.evaluation.linear_probe import LinearProbe
from deepcluster.evaluation.mlp import MLPProbe
from deepcluster.evaluation.retrieval import Retrieval
from deepcluster.evaluation.voc_classification import VOCClassification
from deepcluster.evaluation.voc_detection import VOCDetection
from deepcluster.evaluation.voc_segmentation import VOCSegmentation
from deepcluster.features import Whitening
from deepcluster.images.pictures import PICTURES, write_demo_images
from deepcluster.pseudolabels import Draw
from deepcluster.settings import Architecture, Run
from deepcluster.studies.drawn_devkit import write_devkit
from deepcluster.studies.drawn_landmarks import write_landmarks
from deepcluster.studies.study import BY_TASK, Judge
from deepcluster.studies.tasks import Task, landmark_tasks, voc_tasks
from deepcluster.studies.terms import Data, Grid, Terms
from deepcluster.training.optimizers import Optimization

TRAIN, TEST = 30, 20  # crops of each picture
_FEW, _SHORT = 3, 2  # crops, and epochs, where tasks judge and not the pictures; crops for VGG-16
_DIVIDE = 0.62  # of a picture's width: crops to learn from are left of it, those to test on right
_KINDS, _SIDE = 8, 72


def smoke_terms(
    folder: Path,
    seeds: tuple[int, ...],
    ten_crops: bool,
    judge: Judge = "linear",
    *,
    deep: bool = False,
) -> Terms:
    """Tiny terms; the images are written into the folder unless they are there.

    Args:
        folder: For the images.
        seeds: Of the study.
        ten_crops: Whether probes take the mean of ten crops too.
        judge: Of the study.
        deep: Whether it trains and probes VGG-16, for which few images take long enough.
    """
    done = folder / "done"
    by_task = judge in BY_TASK
    crops = _FEW if by_task or deep else TRAIN
    data = tuple(
        Data(name, folder / name / "train", folder / name / "val")
        for name in ("pictures", "gratings")
    )
    if not done.exists():
        pictures, gratings = data
        write_demo_images(pictures.train, crops, part=(0, _DIVIDE))
        write_demo_images(pictures.test, _FEW if deep else TEST, part=(_DIVIDE, 1))
        _write_gratings(gratings.train, _FEW if deep else 15, seed=0)
        _write_gratings(gratings.test, _FEW if deep else 10, seed=1)
        if judge == "transfer":
            write_devkit(folder)
        elif judge == "retrieval":
            write_landmarks(folder / "oxford", seed=0)
            write_landmarks(folder / "paris", seed=1)
        done.touch()
    recipe = Run(
        epochs=_SHORT if by_task else 7,
        network=Architecture(input_size=64, width=1024, dropout=0.0),
        whitening=Whitening(dimensions=24),
        clustering=KMeans(k=12 if crops == _FEW else 36),
        clustering_start="previous",
        draw=Draw(reassign=1 if by_task else 2),
        # In so few steps only a head that stays learns anything.
        training=Optimization(
            step=0.03, schedule="cosine", batch=32, head="matched", head_momentum=0.9
        ),
    )
    short = {"epochs": 6, "batch": 32, "watch": 6, "ten_crops": ten_crops}
    return Terms(
        data=data,
        images=crops * len(PICTURES),
        recipe=recipe,
        lists=folder / "lists",
        seeds=seeds,
        probe=LinearProbe(steps=(1.0, 10.0), decays=(1e-5,), **short),  # type: ignore[arg-type]
        mlp=MLPProbe(steps=(0.01, 0.03), **short),  # type: ignore[arg-type]
        tasks=_tasks(folder, judge),
        grid=Grid(steps=(0.02,), decays=(1e-4,), epochs=(_SHORT if by_task else 7,)),
        both_fronts=False,
    )


def _tasks(folder: Path, judge: Judge) -> tuple[Task, ...]:
    if judge == "retrieval":
        cities = {"Oxford": folder / "oxford", "Paris": folder / "paris"}
        return landmark_tasks(cities, settings=Retrieval(size=112, dimensions=32))
    if judge == "transfer":
        return voc_tasks(
            folder / "VOCdevkit",
            VOCClassification(epochs=3, batch=16, steps=(0.03,), decays=(1e-6,), hidden=256),
            VOCDetection(
                steps=(0.01,),
                passes=4.0,
                images_per_step=2,  # so that there are some eighty steps
                short_side=96,
                regions=100,
                dropout=0.0,
            ),
            VOCSegmentation(epochs=1, batch=4, steps=(0.01,)),
        )
    return ()


def _write_gratings(folder: Path, count: int, seed: int) -> None:
    """Waves in noise, of as many directions as there are classes."""
    randomness = np.random.default_rng(seed)
    y, x = np.mgrid[:_SIDE, :_SIDE]
    for kind in range(_KINDS):
        target = folder / f"direction-{kind}"
        target.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            angle = np.pi * (kind + randomness.uniform(-0.4, 0.4)) / _KINDS
            length, phase = randomness.uniform(1.5, 4), randomness.uniform(0, 2 * np.pi)
            wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) / length + phase)
            pixels = 128 + 40 * wave[..., None] + randomness.normal(0, 50, (_SIDE, _SIDE, 3))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(target / f"{number:03d}.png")
