"""Things that are brought once."""

from __future__ import annotations

from deepcluster.evaluation.shelf import Shelf


def test_whoever_asks_first_brings_it():
    shelf, brought = Shelf(), []

    def bring(thing: str):
        def make() -> str:
            brought.append(thing)
            return thing

        return make

    assert shelf(("images", 1), bring("first")) == "first"
    assert shelf(("images", 1), bring("second")) == "first"
    assert shelf(("images", 2), bring("third")) == "third"
    assert Shelf()(("images", 1), bring("fourth")) == "fourth"
    assert brought == ["first", "third", "fourth"]
