"""Terms so small that a whole study is seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deepcluster.clusters import KMeans
from deepcluster.evaluation.linear_probe import LinearProbe
from deepcluster.evaluation.mlp import MLPProbe
from deepcluster.evaluation.retrieval import Retrieval
from deepcluster.evaluation.voc_classification import VOCClassification
from deepcluster.evaluation.voc_detection import VOCDetection
from deepcluster.evaluation.voc_segmentation import VOCSegmentation
from deepcluster.features import Whitening
from deepcluster.settings import Architecture, Run, Speed
from deepcluster.studies.drawn_devkit import write_devkit
from deepcluster.studies.drawn_landmarks import write_landmarks
from deepcluster.studies.tasks import Task, landmark_tasks, voc_tasks
from deepcluster.studies.terms import Data, Grid, Terms
from deepcluster.training.optimizers import Optimization


@pytest.fixture(scope="session")
def two_sets(textures: Callable[..., Path]) -> tuple[Data, Data]:
    return (
        Data("first", textures(32), textures(16)),
        Data("second", textures(24, 3), textures(12, 3)),
    )


@pytest.fixture(scope="session")
def devkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_devkit(tmp_path_factory.mktemp("voc"), {"train": 20, "val": 4, "test": 20})


@pytest.fixture(scope="session")
def landmarks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Task, ...]:
    """Two drawn cities, as table 5 has them."""
    folder = tmp_path_factory.mktemp("cities")
    cities = {
        name: write_landmarks(folder / name, seed=seed, landmarks=2, distractors=3)
        for seed, name in enumerate(("Oxford", "Paris"))
    }
    return landmark_tasks(cities, settings=Retrieval(size=80, dimensions=16))


@pytest.fixture
def terms(two_sets: tuple[Data, Data], devkit: Path, tmp_path: Path) -> Terms:
    recipe = Run(
        epochs=2,
        network=Architecture(input_size=64, width=16, dropout=0.0),
        whitening=Whitening(dimensions=4),
        clustering=KMeans(k=4),
        training=Optimization(batch=16),
        speed=Speed(device="cpu", workers=1),
    )
    return Terms(
        data=two_sets,
        images=32,
        recipe=recipe,
        lists=tmp_path / "lists",
        probe=LinearProbe(epochs=1, batch=16, steps=(1.0,), decays=(1e-6,)),
        mlp=MLPProbe(epochs=1, batch=16, steps=(0.01,), hidden=8),
        grid=Grid(steps=(0.02,), decays=(1e-4,), epochs=(1,)),
        tasks=voc_tasks(
            devkit,
            VOCClassification(epochs=1, batch=16, steps=(0.01,), decays=(0.0,), hidden=8),
            VOCDetection(steps=(0.01,), passes=0.2, short_side=64, regions=20),
            VOCSegmentation(steps=(0.01,), epochs=1, batch=4),
        ),
    )
