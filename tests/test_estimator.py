"""DeepCluster as scikit-learn's users know an estimator."""

from __future__ import annotations

import copy
import gc
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import child
import joblib
import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline

from deepcluster import DeepCluster, estimator
from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.runtime.run_folder import RunFolder

SETTINGS = {"k": 4, "epochs": 1, "device": "cpu", "verbose": False}


@pytest.fixture(scope="module")
def images(textures: Callable[[int], Path]) -> Path:
    return textures(24)


@pytest.fixture(scope="module")
def files(images: Path) -> list[Path]:
    return sorted(images.rglob("*.png"))


@pytest.fixture(scope="module")
def pixels(files: list[Path]) -> np.ndarray:
    return np.stack([np.asarray(Image.open(path).convert("RGB")) for path in files])


@pytest.fixture(scope="module")
def fitted(images: Path) -> DeepCluster:
    return DeepCluster(**SETTINGS).fit(images)


def test_a_folder_is_grouped(fitted: DeepCluster, images: Path, files: list[Path]):
    assert fitted.labels_.shape == (24,)
    assert sorted(set(fitted.labels_)) == [0, 1, 2, 3]
    assert fitted.paths_ == [str(path.relative_to(images)) for path in files]
    assert len(fitted.history_) == 1
    assert fitted.history_[0]["ln_k"] == pytest.approx(np.log(4))
    table = child.table(fitted.run_ / "clusters.parquet")
    assert table["cluster"] == fitted.labels_.tolist()


def test_predict_and_transform_belong_to_the_labels(fitted: DeepCluster, images: Path):
    assert np.array_equal(fitted.predict(images), fitted.labels_)
    rows = fitted.transform(images).astype(np.float64)
    apart = np.linalg.norm(rows[:, None] - fitted.cluster_centers_, axis=2)
    assert np.array_equal(apart.argmin(axis=1), fitted.labels_)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_paths_arrays_and_datasets_give_the_same(
    fitted: DeepCluster, files: list[Path], pixels: np.ndarray
):
    channels_first = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    dataset = torch.utils.data.TensorDataset(channels_first, torch.zeros(24))
    for given in (files, pixels, dataset):
        again = DeepCluster(**SETTINGS)
        assert np.array_equal(again.fit_predict(given), fitted.labels_)
        np.testing.assert_allclose(again.cluster_centers_, fitted.cluster_centers_, atol=1e-5)
        assert np.array_equal(again.predict(given), again.labels_)
    assert again.paths_[0] == "00"


def test_params_clone_and_nothing_but_settings_before_fit(fitted: DeepCluster):
    params = fitted.get_params()
    assert params["k"] == 4
    assert params["preset"] == "small"
    copy = clone(fitted)
    assert copy.get_params() == params
    assert not hasattr(copy, "labels_")
    assert copy.set_params(k="auto", seed=3).get_params()["seed"] == 3


def test_in_a_pipeline(pixels: np.ndarray):
    kinds = np.arange(24) % 4
    pipeline = Pipeline([("features", DeepCluster(**SETTINGS)), ("probe", LogisticRegression())])
    pipeline.set_params(features__seed=1)
    guessed = pipeline.fit(pixels, kinds).predict(pixels[:5])
    assert guessed.shape == (5,)
    assert pipeline.named_steps["features"].get_params()["seed"] == 1


def test_auto_follows_the_number_of_images(images: Path, tmp_path: Path):
    model = DeepCluster(epochs=1, device="cpu", verbose=False, out=tmp_path / "run").fit(images)
    assert len(model.cluster_centers_) == 2  # 24 ** 0.8 / 8 = 1.6
    assert model.run_ == tmp_path / "run"
    # The same again finds the run finished and reads it.
    again = DeepCluster(epochs=1, device="cpu", verbose=False, out=tmp_path / "run").fit(images)
    assert np.array_equal(again.labels_, model.labels_)
    loaded = DeepCluster.load(tmp_path / "run", device="cpu")
    assert np.array_equal(loaded.labels_, model.labels_)
    assert np.array_equal(loaded.predict(images), model.labels_)
    assert loaded.get_params()["k"] == 2


def test_a_notebook_shows_the_groups(fitted: DeepCluster):
    shown = fitted._repr_mimebundle_()
    assert "24 images in 4 groups" in shown["text/html"]
    assert "data:image/jpeg;base64," in shown["text/html"]
    assert "img" not in DeepCluster()._repr_html_()


def test_a_temporary_run_goes_with_its_estimator(images: Path):
    model = DeepCluster(**SETTINGS).fit(images)
    place = model.run_
    assert place.exists()
    del model
    gc.collect()
    assert not place.exists()


@pytest.mark.parametrize("how", ["copy", "deepcopy", "pickle", "joblib"])
def test_a_copy_predicts_when_the_first_estimator_has_gone(
    how: str, images: Path, fitted: DeepCluster, tmp_path: Path
):
    # As `fitted`, but its own: the folder must be able to go.
    first = DeepCluster(**SETTINGS)
    first._place = estimator._PassingPlace()
    shutil.copytree(fitted.run_, first._place.path / "run")
    first._fitted(RunFolder(first._place.path / "run"))
    place = first.run_
    if how == "joblib":
        joblib.dump(first, tmp_path / "x.joblib")
    other = {
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
        "pickle": lambda one: pickle.loads(pickle.dumps(one)),
        "joblib": lambda one: joblib.load(tmp_path / "x.joblib"),
    }[how](first)
    del first
    gc.collect()
    shares = how in ("copy", "deepcopy")
    assert place.exists() == shares  # copies share the folder; a pickle holds none
    assert np.array_equal(other.predict(images), fitted.labels_)
    np.testing.assert_allclose(other.transform(images), fitted.transform(images), atol=1e-6)
    assert np.array_equal(other.labels_, fitted.labels_)
    shown = other._repr_html_()
    assert ("data:image/jpeg" in shown) == shares
    assert ("is gone: no pictures to show" in shown) != shares
    del other
    gc.collect()
    assert not place.exists()


def test_the_columns_of_transform_have_names(fitted: DeepCluster):
    names = fitted.get_feature_names_out()
    assert len(names) == fitted.cluster_centers_.shape[1]
    assert names[0] == "deepcluster0"


def test_bad_input(images: Path, pixels: np.ndarray):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        DeepCluster().transform(images)
    with pytest.raises(UsageError, match="no preset 'large'"):
        DeepCluster(preset="large", verbose=False).fit(images)
    with pytest.raises(UsageError, match="float64: give uint8"):
        DeepCluster(**SETTINGS).fit(pixels / 255)
    with pytest.raises(DataError, match="no images"):
        DeepCluster(**SETTINGS).fit(pixels[:0])
    with pytest.raises(UsageError, match="k 99 but only 24"):
        DeepCluster(**{**SETTINGS, "k": 99}).fit(images)


def test_an_image_that_cannot_be_read_is_named_and_not_left_out_in_silence(tmp_path):
    pictures = []
    for number in range(6):
        path = tmp_path / f"{number}.png"
        Image.fromarray(np.full((40, 40, 3), 40 * number, np.uint8)).save(path)
        pictures.append(str(path))
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"1 of 7 images cannot be used .*bad\.png"):
        DeepCluster(k=2, epochs=1, verbose=False).fit([*pictures, str(tmp_path / "bad.png")])


def test_how_many_files_may_be_no_images_is_a_setting(files: list[Path], tmp_path: Path):
    for path in files[:6]:
        shutil.copy(path, tmp_path)
    for name in ("half.png", "other.png"):
        (tmp_path / name).write_bytes(files[0].read_bytes()[:60])
    with pytest.raises(DataError, match=r"from Python max_unusable=0\.25"):
        DeepCluster(**SETTINGS).fit(tmp_path)
    with pytest.raises(UsageError, match="max_unusable = 2: use a share from 0 to 1"):
        DeepCluster(**SETTINGS, max_unusable=2).fit(tmp_path)
    assert len(DeepCluster(**SETTINGS, max_unusable=0.5).fit(tmp_path).labels_) == 6


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 1.5},
        {"epochs": "3"},
        {"seed": None},
        {"seed": "x"},
        {"k": 2.0},
        {"k": True},
        {"input_size": "64"},
        {"dimensions": 8.0},
        {"minutes": "1"},
        {"preset": None},
    ],
)
def test_settings_of_another_kind_are_refused_by_name(settings):
    ((name, value),) = settings.items()
    with pytest.raises(UsageError, match=rf"{name}.*{value!r}"):
        DeepCluster(**{**SETTINGS, **settings}).fit(np.zeros((8, 40, 40), np.uint8))


def test_numbers_of_numpy_are_settings_too(pixels: np.ndarray):
    numbers = {"k": np.int64(4), "epochs": np.int32(1), "seed": np.int64(0)}
    found = DeepCluster(**{**SETTINGS, **numbers}).fit_predict(pixels)
    assert found.max() == 3


@pytest.mark.parametrize("settings", [{"k": "ten"}, {"k": 4, "preset": "small-pic"}])
def test_a_k_that_makes_no_sense(tmp_path, settings):
    with pytest.raises(UsageError, match="k = "):
        DeepCluster(**settings, epochs=1, verbose=False).fit(np.zeros((8, 40, 40), np.uint8))
