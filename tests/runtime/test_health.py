"""One light for a run, by what its journal says."""

from __future__ import annotations

import pytest

from deepcluster.runtime.health import health_of


def epoch(loss: float = 1.0, *warnings: str) -> dict:
    return {"loss": loss, "ln_k": 2.0, "warnings": list(warnings)}


@pytest.mark.parametrize(
    ("journal", "since", "level", "cause"),
    [
        ([], [], "good", ""),
        ([epoch()], [], "good", ""),
        ([epoch(1.0, "dimensions-shrunk")], [], "good", ""),
        ([epoch(1.95)], [], "watch", "the loss is near that of guessing"),
        (
            [epoch(1.0, "one-cluster-dominates"), epoch()],
            [],
            "watch",
            "one-cluster-dominates before",
        ),
        ([epoch(), epoch(2.0, "head-is-guessing")], [], "bad", "head-is-guessing"),
        ([epoch()], ["one-cluster-dominates"], "bad", "one-cluster-dominates"),
        (
            [epoch(1.0, "many-singletons"), epoch(1.0, "rows-excluded", "head-is-guessing")],
            [],
            "bad",
            "head-is-guessing",
        ),
    ],
)
def test_the_light_and_its_cause(journal, since, level, cause):
    found = health_of(journal, since)
    assert (found.level, found.cause) == (level, cause)
    assert found.verdict.endswith(cause)
    names = [name for entry in journal for name in entry["warnings"]]
    assert all(any(reason.startswith(name) for reason in found.reasons) for name in names)


@pytest.mark.parametrize(
    ("images", "clusters", "warnings", "verdict"),
    [
        (3, 2, [], "look closer: too few images to tell"),
        (100, 51, [], "look closer: too few images to tell"),
        (3, 2, ["one-cluster-dominates"], "needs attention: one-cluster-dominates"),
        (20, 10, [], "no warnings"),
        (None, 10, [], "no warnings"),
    ],
)
def test_of_few_images_nothing_can_be_told(images, clusters, warnings, verdict):
    found = health_of([epoch() | {"clusters": clusters}], warnings, images)
    assert found.verdict == verdict
    said = f"Nothing can be told of so few images: {images} in {clusters} groups."
    assert (said in found.reasons) == (verdict != "no warnings")
