"""The drawn city, read by the reader of the real ones."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from deepcluster.evaluation.landmarks import read_landmarks
from deepcluster.studies.drawn_landmarks import VIEWS, write_landmarks


def test_the_drawn_city_is_what_its_files_say(tmp_path: Path):
    city = write_landmarks(tmp_path / "city", seed=0, landmarks=3, distractors=4)
    found = read_landmarks(city)
    assert not found.absent
    assert not found.left_out
    assert len(found.paths) == 3 * len(VIEWS) + 4
    assert [query.landmark for query in found.queries] == ["halla", "hallb", "hallc"]
    for query in found.queries:
        relevance = query.relevance["all"]
        shown = {found.paths[i] for i in relevance.positive}
        assert shown == {f"{query.landmark}_{view:06d}.jpg" for view in (1, 2, 3, 4)}
        assert {found.paths[i] for i in relevance.ignored} == {f"{query.landmark}_000005.jpg"}
        with Image.open(found.images / query.path) as image:
            left, top, right, bottom = query.box
            assert 0 <= left < right <= image.width
            assert 0 <= top < bottom <= image.height
    other = write_landmarks(tmp_path / "other", seed=1, landmarks=1, distractors=0)
    name = "images/halla_000001.jpg"
    assert (other / name).read_bytes() != (city / name).read_bytes()
