"""WordNet's is-a list as the user has it: which synset stands above which, and how deep.

The root (entity) is at depth 0, which puts animal at 6, mammal at 9 and dog at 13: the depths that
the paper's figure has. A synset with several parents stands under all of them, and is as deep as
the longest way down to it; dog is a domestic animal too, which would be a shorter way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from deepcluster.runtime.errors import DataError, UsageError


@dataclass(frozen=True)
class Ontology:
    """Synsets by their number, such as n02084071."""

    parents: Mapping[str, tuple[str, ...]]
    """Of every synset; none of a root."""
    words: Mapping[str, str]
    """What people call it, as far as that is known."""
    source: str = "the ontology"

    @staticmethod
    def read(is_a: Path, words: Path | None = None) -> Ontology:
        """From a list of lines `parent child`, and one of lines `synset<TAB>words`."""
        parents: dict[str, tuple[str, ...]] = {}
        for number, line in _lines(is_a, "--wordnet"):
            pair = line.split()
            if len(pair) != 2:
                raise DataError(
                    f"{is_a}, line {number}: {line[:60]!r} is not a parent and a child; give "
                    "WordNet's list as it comes with ImageNet, wordnet.is_a.txt"
                )
            above, below = pair
            parents.setdefault(above, ())
            if above not in parents.get(below, ()):
                parents[below] = (*parents.get(below, ()), above)
        if not parents:
            raise DataError(f"{is_a} is empty; give WordNet's list, wordnet.is_a.txt")
        names = {}
        for number, line in _lines(words, "--words") if words is not None else ():
            synset, tab, name = line.partition("\t")
            if not tab:
                raise DataError(
                    f"{words}, line {number}: {line[:60]!r} is not a synset, a tab and its words; "
                    "give the list as it comes with ImageNet, words.txt"
                )
            names[synset] = name
        made = Ontology(parents, names, str(is_a))
        _ = made.depths  # refuses a circle
        return made

    @cached_property
    def depths(self) -> dict[str, int]:
        """Of every synset, the longest way down to it from a root, which is at 0."""
        below: dict[str, list[str]] = {synset: [] for synset in self.parents}
        for synset, above in self.parents.items():
            for parent in above:
                below[parent].append(synset)
        waiting = {synset: len(above) for synset, above in self.parents.items()}
        ready = [synset for synset, count in waiting.items() if not count]
        depths = dict.fromkeys(ready, 0)
        while ready:  # a synset comes once all of its parents have come
            synset = ready.pop()
            for child in below[synset]:
                depths[child] = max(depths.get(child, 0), depths[synset] + 1)
                waiting[child] -= 1
                if not waiting[child]:
                    ready.append(child)
        if circling := {synset for synset, count in waiting.items() if count}:
            raise DataError(
                f"{self.source} goes in a circle ({self._circle(circling)}); nothing can stand "
                "above itself: give WordNet's list as it comes with ImageNet"
            )
        return depths

    def ancestors(self, synset: str) -> set[str]:
        """All that stand above it, and itself."""
        found: set[str] = set()
        left = [synset]
        while left:
            one = left.pop()
            if one not in found:
                found.add(one)
                left += self.parents[one]
        return found

    def name(self, synset: str) -> str:
        """The first of its words, else its number."""
        return self.words.get(synset, synset).split(",")[0]

    def _circle(self, circling: set[str]) -> str:
        """One circle among synsets that stand above or below one."""
        way = [min(circling)]
        while way[-1] not in way[:-1]:
            way.append(min(set(self.parents[way[-1]]) & circling))
        circle = way[way.index(way[-1]) :][::-1]
        shown = circle if len(circle) < 6 else [*circle[:4], "...", circle[-1]]
        return " > ".join(shown)


def _lines(path: Path, flag: str) -> list[tuple[int, str]]:
    """The lines that say something, numbered from 1."""
    if not path.is_file():
        raise UsageError(f"{flag} {path}: there is no such file")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text ({error})") from error
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
