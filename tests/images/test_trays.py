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
    counter.begin(first.at)
    assert all(counter.put(picture) for picture in pictures)
    counter.begin(second.at)
    assert counter.put(np.full((3, 1, 1), 9, np.uint8))
    seen = np.asarray(first)
    lent.close()
    assert seen[:17].tolist() == [*range(12), 7, 7, 7, 7, 7]
    assert np.asarray(second)[:3].tolist() == [9, 9, 9]


def test_what_is_made_in_the_room_for_it_is_not_moved() -> None:
    lent = Trays(1)
    assert lent.descriptor is not None
    tray = lent.take()
    assert tray is not None
    counter = Counter(lent.descriptor)
    counter.begin(tray.at)
    for number in (1, 2):
        counter.room((9, 9, 3))[:] = 255  # of a file that was then refused
        picture = counter.room((2, 5, 1))
        picture[:] = number
        assert counter.put(picture)
    assert counter.put(np.full((1, 3, 1), 3, np.uint8))
    assert np.asarray(tray)[:23].tolist() == [1] * 10 + [2] * 10 + [3] * 3


def test_what_is_too_large_is_not_put() -> None:
    lent = Trays(2)
    assert lent.descriptor is not None
    at = min(tray.at for tray in (lent.take(), lent.take()) if tray is not None)
    half = np.ones(trays.SIZE // 2, np.uint8)
    counter = Counter(lent.descriptor)
    counter.begin(at)
    assert counter.put(half)
    assert counter.put(half)
    assert not counter.put(half[:1])
    counter.begin(at)
    assert counter.put(half)
    assert not counter.put(np.ones(trays.SIZE, np.uint8))
    assert not counter.put(half[:1]), "what comes after it goes its way"
    one, other = counter.room((4, 4, 1)), counter.room((4, 4, 1))
    assert not np.shares_memory(one, other), "nothing is written over"


def test_without_a_tray_there_is_room_elsewhere() -> None:
    lent = Trays(1)
    assert lent.descriptor is not None
    counter = Counter(lent.descriptor)
    counter.begin(None)
    assert counter.room((2, 3, 1)).shape == (2, 3, 1)
    assert not counter.put(counter.room((2, 3, 1)))
