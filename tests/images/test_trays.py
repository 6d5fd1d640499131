"""Memory lent to pictures: whose it is, and until when."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest

from deepcluster.images import trays
from deepcluster.images.trays import Counter, Trays

pytestmark = pytest.mark.skipif(
    not hasattr(os, "memfd_create"), reason="this system has no such memory"
)


def test_a_tray_comes_back_when_the_last_picture_on_it_is_gone() -> None:
    lent = Trays(1)
    tray = lent.take()
    assert tray is not None
    assert lent.take() is None, "there is one only"
    picture = np.asarray(tray)[8:20].reshape(2, 2, 3)
    del tray
    gc.collect()
    assert lent.take() is None, "a part of it is in use"
    del picture
    assert lent.take() is not None


def test_what_is_put_there_is_seen_here_and_stays_after_the_end() -> None:
    lent = Trays(2)
    assert lent.descriptor is not None
    counter = Counter(lent.descriptor)
    first, second = lent.take(), lent.take()
    assert first is not None
    assert second is not None
    pictures = [np.arange(12, dtype=np.uint8).reshape(2, 2, 3), np.full((1, 5, 1), 7, np.uint8)]
    assert counter.put(first.at, pictures)
    assert counter.put(second.at, [np.full((3, 1, 1), 9, np.uint8)])
    seen = np.asarray(first)
    lent.close()
    assert seen[:17].tolist() == [*range(12), 7, 7, 7, 7, 7]
    assert np.asarray(second)[:3].tolist() == [9, 9, 9]


def test_what_is_too_large_is_not_put() -> None:
    lent = Trays(2)
    assert lent.descriptor is not None
    at = min(tray.at for tray in (lent.take(), lent.take()) if tray is not None)
    half = np.ones(trays.SIZE // 2, np.uint8)
    counter = Counter(lent.descriptor)
    assert not counter.put(at, [half, half, half[:1]])
    assert counter.put(at, [half, half])
