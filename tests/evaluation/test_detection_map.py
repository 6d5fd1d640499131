"""Detections judged by hand, against a plain implementation, and at the ends of the scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepcluster.evaluation.boxes import overlaps
from deepcluster.evaluation.detection_map import Detections, detection_precisions, judged
from deepcluster.evaluation.voc import VocImage
from deepcluster.evaluation.voc_objects import CLASSES, Box, VocObject


def an_image(*objects: tuple[int, tuple[int, int, int, int], bool]) -> VocImage:
    things = tuple(VocObject(label, Box(*box), difficult) for label, box, difficult in objects)
    return VocImage("one", Path("one.jpg"), 100, 100, things)


def detections(*rows: tuple[int, int, float, tuple[float, float, float, float]]) -> Detections:
    images, labels, scores, boxes = zip(*rows, strict=True) if rows else ([], [], [], [])
    return Detections(
        np.array(images, dtype=np.int64),
        np.array(labels, dtype=np.int64),
        np.array(scores, dtype=np.float64),
        np.array(boxes, dtype=np.float64).reshape(-1, 4),
    )


def test_overlap_counts_pixels_as_voc_does():
    # VOC's (1, 1, 10, 10) and (6, 1, 15, 10): 50 common pixels of 150.
    found = overlaps(np.array([[0, 0, 10, 10.0]]), np.array([[5, 0, 15, 10.0], [10, 0, 20, 10]]))
    assert found == pytest.approx(np.array([[1 / 3, 0.0]]))


def test_exactly_half_is_enough_and_less_is_not():
    image = an_image((0, (0, 0, 10, 10), False))
    _, right = judged(detections((0, 0, 0.9, (0, 0, 10, 5))), [image], 0)
    assert right.tolist() == [True]
    _, right = judged(detections((0, 0, 0.9, (0, 0, 10, 4.9))), [image], 0)
    assert right.tolist() == [False]


def test_an_object_is_found_once_and_by_the_surest():
    image = an_image((0, (0, 0, 10, 10), False))
    rows = [(0, 0, 0.5, (0, 0, 10, 10)), (0, 0, 0.9, (0, 0, 10, 8))]
    scores, right = judged(detections(*rows), [image], 0)
    assert scores.tolist() == [0.9, 0.5]
    assert right.tolist() == [True, False]


def test_who_is_nearest_to_a_found_object_is_wrong_though_another_is_free():
    # Both detections overlap the first object most; the second one overlaps the other by half too.
    image = an_image((0, (0, 0, 10, 10), False), (0, (0, 3, 10, 13), False))
    rows = [(0, 0, 0.9, (0, 0, 10, 10)), (0, 0, 0.8, (0, 1, 10, 11))]
    assert overlaps(np.array([[0, 1, 10, 11.0]]), np.array([[0, 3, 10, 13.0]])).item() > 0.5
    _, right = judged(detections(*rows), [image], 0)
    assert right.tolist() == [True, False]


def test_what_is_difficult_counts_neither_way():
    image = an_image((0, (0, 0, 10, 10), True), (0, (50, 50, 60, 60), False))
    rows = [
        (0, 0, 0.9, (0, 0, 10, 10)),  # finds the difficult one, twice
        (0, 0, 0.8, (0, 0, 10, 9)),
        (0, 0, 0.7, (50, 50, 60, 60)),
    ]
    scores, right = judged(detections(*rows), [image], 0)
    assert scores.tolist() == [0.7]
    assert right.tolist() == [True]
    assert detection_precisions(detections(*rows), [image])[0].eleven_point == 1.0


def test_classes_and_images_are_kept_apart():
    images = [an_image((3, (0, 0, 10, 10), False)), an_image((4, (0, 0, 10, 10), False))]
    rows = [(1, 3, 0.9, (0, 0, 10, 10)), (0, 4, 0.9, (0, 0, 10, 10))]
    found = detection_precisions(detections(*rows), images)
    assert found[3].eleven_point == found[4].eleven_point == 0.0
    assert found[0] is None  # nobody has an aeroplane to find


def test_average_precision_by_hand():
    # Ranked: right, wrong, right, of 4 objects: recall 1/4, 1/4, 2/4; precision 1, 1/2, 2/3.
    image = an_image(*((0, (20 * i, 0, 20 * i + 10, 10), False) for i in range(4)))
    rows = [
        (0, 0, 0.9, (0, 0, 10, 10)),
        (0, 0, 0.8, (0, 50, 10, 60)),
        (0, 0, 0.7, (20, 0, 30, 10)),
    ]
    found = detection_precisions(detections(*rows), [image])[0]
    assert found.eleven_point == pytest.approx((3 * 1 + 3 * 2 / 3) / 11)  # to 0.2, then to 0.5
    assert found.all_point == pytest.approx(1 / 4 + 1 / 4 * 2 / 3)


def plain(found: Detections, images: list[VocImage], label: int) -> tuple[float, float] | None:
    """VOC2007's and VOC2010's figures, written down as the devkit's text tells it."""
    rows = [i for i in range(len(found)) if found.labels[i] == label]
    rows.sort(key=lambda i: -found.scores[i])
    total = sum(o.label == label and not o.difficult for image in images for o in image.objects)
    if not total:
        return None
    used, true, false = set(), 0, 0
    curve = []
    for row in rows:
        left, top, right, bottom = found.boxes[row]
        best, which = -1.0, None
        for number, thing in enumerate(images[found.images[row]].objects):
            if thing.label != label:
                continue
            # in VOC's own numbers, which count from 1 and include the last pixel
            a = (left + 1, top + 1, right, bottom)
            b = (thing.box.left + 1, thing.box.top + 1, thing.box.right, thing.box.bottom)
            across = min(a[2], b[2]) - max(a[0], b[0]) + 1
            down = min(a[3], b[3]) - max(a[1], b[1]) + 1
            if across > 0 and down > 0:
                areas = [(c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (a, b)]
                share = across * down / (sum(areas) - across * down)
                if share > best:
                    best, which = share, number
        key = (int(found.images[row]), which)
        if best >= 0.5 and images[key[0]].objects[which].difficult:
            continue
        if best >= 0.5 and key not in used:
            used.add(key)
            true += 1
        else:
            false += 1
        curve.append((true, true / (true + false)))
    levels = [max((p for t, p in curve if t * 10 >= k * total), default=0.0) for k in range(11)]
    area = sum(max(p for t, p in curve if t >= count) for count in range(1, true + 1)) / total
    return sum(levels) / 11, area


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_agrees_with_a_plain_implementation(seed: int):
    randomness = np.random.default_rng(seed)

    def box() -> tuple[int, int, int, int]:
        left, top = randomness.integers(0, 12, 2)
        return left, top, left + randomness.integers(2, 14), top + randomness.integers(2, 14)

    images = [
        an_image(
            *((int(randomness.integers(2)), box(), randomness.random() < 0.2) for _ in range(3))
        )
        for _ in range(3)
    ]
    count = int(randomness.integers(0, 30))
    scores = randomness.permutation(count) / 30  # no two are equal
    rows = [
        (int(randomness.integers(3)), int(randomness.integers(2)), score, box()) for score in scores
    ]
    found = detections(*rows)
    ours = detection_precisions(found, images)
    for label in range(2):
        expected, one = plain(found, images, label), ours[label]
        assert (one is None) == (expected is None)
        if one is not None:
            assert (one.eleven_point, one.all_point) == pytest.approx(expected)


def test_a_perfect_detector_has_100_and_a_shuffled_one_nearly_nothing():
    randomness = np.random.default_rng(0)
    images = []
    for _ in range(300):
        corners = randomness.integers(0, 60, (3, 2))
        sides = randomness.integers(10, 40, (3, 2))
        labels = randomness.integers(0, len(CLASSES), 3)
        images.append(
            an_image(
                *(
                    (int(label), (*corner, *(corner + side)), randomness.random() < 0.1)
                    for label, corner, side in zip(labels, corners, sides, strict=True)
                )
            )
        )
    rows = [
        (place, thing.label, 1 - place / 1000, thing.box)
        for place, image in enumerate(images)
        for thing in image.objects
    ]
    perfect = detection_precisions(detections(*rows), images)
    assert [one.eleven_point for one in perfect] == [1.0] * len(CLASSES)
    assert [one.all_point for one in perfect] == pytest.approx([1.0] * len(CLASSES))
    boxes = randomness.permutation(len(rows))
    shuffled = detections(
        *((*row[:3], rows[other][3]) for row, other in zip(rows, boxes, strict=True))
    )
    assert np.mean([one.all_point for one in detection_precisions(shuffled, images)]) < 0.02


def test_nothing_found_is_nothing():
    found = detection_precisions(detections(), [an_image((0, (0, 0, 10, 10), False))])
    assert found[0].eleven_point == 0.0
