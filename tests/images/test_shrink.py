"""The compiled kernel must change nothing: the bytes are torch's, and those of `grey`."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from deepcluster.images import shrink
from deepcluster.images.kept import _SHARES, Pixels, grey, kept, resized

SOURCE = Path(shrink.__file__).with_name("shrink.c")
SIZES = [
    ((375, 500), (256, 341)),
    ((480, 361), (341, 256)),
    ((257, 257), (256, 256)),
    ((2, 2), (1, 1)),
    ((3, 4000), (2, 2667)),  # rows that are all of them the last ones
    ((900, 7), (300, 2)),
    ((1200, 1600), (64, 85)),  # many pixels to each
    ((97, 103), (5, 101)),
]


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> object:
    """The kernel of this source, wherever the package comes from."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler")
    library = tmp_path_factory.mktemp("kernel") / "_shrink.so"
    words = [compiler, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", str(SOURCE), "-o"]
    subprocess.run([*words, str(library)], check=True, timeout=120)
    kernel = ctypes.CDLL(str(library))
    kernel.shrink.argtypes = shrink.ARGUMENTS
    if not kernel.shrink_works():
        pytest.skip("this processor has no AVX2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shrink, "_kernel", lambda: kernel)
        yield kernel


def pictures(height: int, width: int) -> list[np.ndarray]:
    random = np.random.default_rng(height * width)
    noise = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
    return [noise, np.where(noise > 127, 255, 0).astype(np.uint8), np.full_like(noise, 255)]


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_the_bytes_are_those_of_torch(before: tuple[int, int], after: tuple[int, int]) -> None:
    for picture in pictures(*before):
        expected = resized(picture, *after)
        assert np.array_equal(shrink.shrunk(picture, *after, None), expected)
        assert np.array_equal(shrink.shrunk(picture, *after, _SHARES), grey(expected))


def test_sizes_at_random() -> None:
    random = np.random.default_rng(0)
    for _ in range(60):
        height, width = (int(side) for side in random.integers(2, 300, 2))
        after = int(random.integers(1, height)), int(random.integers(1, width))
        picture = pictures(height, width)[0]
        assert np.array_equal(shrink.shrunk(picture, *after, None), resized(picture, *after))


def test_a_part_of_an_image_needs_no_copy_and_nothing_around_it_counts() -> None:
    picture = pictures(300, 500)[0]
    middle = picture[:, 100:400]
    expected = resized(middle, 256, 256)
    assert np.array_equal(shrink.shrunk(middle, 256, 256, None), expected)
    turned = picture[::-1].transpose(1, 0, 2)
    assert np.array_equal(shrink.shrunk(turned, 250, 150, None), resized(turned, 250, 150))


@pytest.mark.parametrize("colour", ["grey", "rgb"])
def test_a_store_keeps_the_same_bytes_with_it_and_without(
    colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shape in ("aspect", "square"):
        for picture in pictures(200, 300):
            how = Pixels(short_side=100, shape=shape)  # type: ignore[arg-type]
            images = []
            for there in (True, False):
                monkeypatch.setattr(shrink, "is_there", lambda there=there: there)
                images.append(kept(picture, colour, how))  # type: ignore[arg-type]
            assert images[0].tobytes() == images[1].tobytes()
            assert images[0].shape == images[1].shape


def test_a_kernel_that_disagrees_is_not_used(
    compiled: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shrink._agrees(compiled)
    right = shrink._shrunk
    monkeypatch.setattr(shrink, "_shrunk", lambda *how: right(*how) ^ 1)
    assert not shrink._agrees(compiled)


def test_step_by_step_the_bytes_are_those_of_torch_too() -> None:
    for before, after in [*SIZES[2:4], SIZES[5], SIZES[7]]:
        for picture in pictures(*before):
            assert np.array_equal(shrink.by_numpy(picture, *after), resized(picture, *after))


def test_the_weights_sum_to_one_and_fall_linearly() -> None:
    starts, counts, weights = shrink.triangles(10, 4)
    assert np.allclose(weights.sum(axis=1), 1)
    # The second pixel lies at 3.75 and reaches 2.5 to each side: 1.5, 2.5, 3.5, 4.5, 5.5.
    assert (starts[1], counts[1]) == (1, 5)
    assert np.allclose(weights[1, :5] * 2.5, [0.1, 0.5, 0.9, 0.7, 0.3])
