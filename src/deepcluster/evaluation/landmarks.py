"""Photographs of landmarks, and which of them show what a query shows: Oxford5k and Paris6k.

The original ground truth is four text files for each query; the revisited one (Radenovic and
others, 2018) is one file for all. What they name is looked for among the images by the name
without folders and extension; what is not there is counted, never guessed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from deepcluster.images.folder import Found, encoded, find_images
from deepcluster.runtime.errors import DataError, UsageError

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels of the image as it is stored.

As the ground truth has it: one without area, or beyond its image, is found when it is cut out.
"""

_PREFIX = "oxc1_"  # before the names of Oxford's queries, and of no image
_IMAGE_FOLDERS = ("images", "jpg")


@dataclass(frozen=True)
class Relevance:
    """What counts as found, and what as not there at all; numbers of images."""

    positive: frozenset[int]
    ignored: frozenset[int]


@dataclass(frozen=True)
class Query:
    """A part of a photograph that shows a landmark."""

    name: str
    landmark: str | None
    """None where the ground truth names none: the revisited one."""
    path: str
    box: Box
    relevance: dict[str, Relevance]
    """For each level of difficulty; the original ground truth has one, "all"."""


@dataclass(frozen=True)
class Landmarks:
    """Images that are searched, and the queries; image i is `paths[i]`."""

    images: Path
    ground_truth: Path
    paths: Sequence[str]
    queries: Sequence[Query]
    absent: list[str] = field(default_factory=list)
    """Names that the ground truth has and the folder has not."""
    left_out: list[str] = field(default_factory=list)
    """Queries that cannot be asked, each with the reason."""

    @property
    def levels(self) -> list[str]:
        """The levels of difficulty, each a figure of its own."""
        return list(self.queries[0].relevance)

    @cached_property
    def fingerprint(self) -> str:
        """Names these images and queries, wherever they lie."""
        digest = hashlib.blake2b(digest_size=8)
        for path, size in zip(self.paths, self._sizes, strict=True):
            digest.update(f"{path} {size}\n".encode("utf-8", "replace"))
        for query in self.queries:
            truth = [
                (level, sorted(r.positive), sorted(r.ignored))
                for level, r in query.relevance.items()
            ]
            digest.update(
                repr((query.name, query.path, query.box, truth)).encode("utf-8", "replace")
            )
        return digest.hexdigest()

    @cached_property
    def _sizes(self) -> list[int]:
        """Bytes of each image."""
        return [(self.images / path).stat().st_size for path in self.paths]

    def shared(self, others: Sequence[Found]) -> int:
        """How many of these are images that are searched, or copies of them in other folders.

        They are known by name and size: reading all of them would take as long as the search.
        """
        own = {(Path(path).name, size) for path, size in zip(self.paths, self._sizes, strict=True)}
        return sum((Path(other.path).name, other.size) in own for other in others)

    def described(self) -> dict[str, Any]:
        """What a result says of the images and queries that it comes from."""
        return {
            "place": encoded(str(self.images)),
            "ground_truth": encoded(str(self.ground_truth)),
            "fingerprint": self.fingerprint,
            "images": len(self.paths),
            "queries": len(self.queries),
            "absent": [encoded(name) for name in self.absent],
            "left_out": self.left_out,
        }

    @property
    def is_revisited(self) -> bool:
        """Whether queries are no part of the images that are searched."""
        return self.levels != ["all"]


def read_landmarks(
    data: Path | None,
    images: Path | None = None,
    ground_truth: Path | None = None,
    *,
    follow_links: bool = False,
) -> Landmarks:
    """The images and queries of a folder in the layout of Oxford5k or Paris6k.

    Args:
        data: Holds images/ (or jpg/, or the images themselves) and the ground truth.
        images: Where the images are, if not there.
        ground_truth: A folder of *_query.txt files, or the revisited ground truth as JSON.
        follow_links: Whether images are those too that links out of their folder lead to.
    """
    if data is None and (images is None or ground_truth is None):
        raise UsageError(
            "which images? give --data DIR with images and gt_files in it, or --images and "
            "--ground-truth"
        )
    for flag, place in (("--data", data), ("--images", images), ("--ground-truth", ground_truth)):
        if place is not None and not place.exists():
            raise UsageError(f"{flag} {encoded(str(place))}: there is no such file or folder")
    if images is None:
        assert data is not None
        images = images_of(data)
    if ground_truth is None:
        assert data is not None
        ground_truth = _ground_truth_of(data)
    _refuse_pickle(ground_truth)
    names = _names(images, follow_links)
    if ground_truth.is_dir():
        return _original(images, ground_truth, names)
    return _revisited(images, ground_truth, names)


def images_of(data: Path) -> Path:
    """The folder of images of a data set: the one that has a usual name, else the whole."""
    return next((data / name for name in _IMAGE_FOLDERS if (data / name).is_dir()), data)


def _ground_truth_of(data: Path) -> Path:
    queries = sorted([*data.glob("*_query.txt"), *data.glob("*/*_query.txt")])
    if queries:
        return queries[0].parent
    others = sorted([*data.glob("gnd_*.json"), *data.glob("gnd_*.pkl")])
    if others:
        return others[0]
    raise DataError(
        f"{encoded(str(data))} has no ground truth: neither *_query.txt files (as in gt_files) nor "
        "a gnd_*.json; name it by --ground-truth"
    )


def _refuse_pickle(ground_truth: Path) -> None:
    if ground_truth.suffix not in (".pkl", ".pickle"):
        return
    name = encoded(ground_truth.name)
    raise UsageError(
        f"{encoded(str(ground_truth))} is a pickle, and reading one can run any program; if you "
        'trust it, convert it once: python -c "import json, pickle; '
        f"json.dump(pickle.load(open('{name}', 'rb')), "
        f"open('{Path(name).stem}.json', 'w'), default=lambda value: value.tolist())\" and give "
        "the .json"
    )


def _names(images: Path, follow_links: bool) -> dict[str, str]:
    """The path of every image, in the order of the paths, by its name alone."""
    names: dict[str, str] = {}
    elsewhere = 0
    for found in find_images(images, follow_links):
        if found.reason is not None:
            elsewhere += 1
            continue
        name = Path(found.path).stem
        if name in names:
            raise DataError(
                f"two images in {encoded(str(images))} are called {encoded(name)}: "
                f"{encoded(names[name])} and {encoded(found.path)}; the ground truth cannot tell "
                "them apart, so remove one"
            )
        names[name] = found.path
    if not names:
        lead = "link leads" if elsewhere == 1 else "links lead"
        links = f": {elsewhere:,} {lead} out of it (--follow-links)" if elsewhere else ""
        raise DataError(f"{encoded(str(images))} has no images{links}")
    return names


def _original(images: Path, folder: Path, names: dict[str, str]) -> Landmarks:
    number = {name: i for i, name in enumerate(names)}
    absent: dict[str, None] = {}  # a set that keeps its order
    left_out: list[str] = []
    queries: list[Query] = []

    def numbers(listed: list[str]) -> frozenset[int]:
        there = set()
        for name in listed:
            if name in number:
                there.add(number[name])
            else:
                absent[name] = None
        return frozenset(there)

    files = sorted(folder.glob("*_query.txt"))
    if not files:
        raise DataError(f"{encoded(str(folder))} has no *_query.txt files")
    for file in files:
        title = file.name.removesuffix("_query.txt")
        asked, box = _query(file)
        sets = [_lines(folder / f"{title}_{kind}.txt") for kind in ("good", "ok", "junk")]
        # One that is good and ok counts all the same; one that counts cannot be junk, too.
        twice = {*sets[0], *sets[1]} & {*sets[2]}
        if twice:
            raise DataError(
                f"{encoded(str(folder))}: an image of {encoded(title)} is in two of good, ok and "
                f"junk: {encoded(min(twice))}; leave it in one"
            )
        good, ok, junk = map(numbers, sets)
        name = asked if asked in number else asked.removeprefix(_PREFIX)
        if name not in number:
            absent[name] = None
            left_out.append(f"{title}: its image {encoded(name)} is not there")
            continue
        if not good | ok:
            left_out.append(f"{title}: no image that shows it is there")
            continue
        relevance = {"all": Relevance(good | ok, junk)}
        landmark = title.rstrip("0123456789").rstrip("_")
        queries.append(Query(title, landmark, names[name], box, relevance))
    return _whole(images, folder, list(names.values()), queries, list(absent), left_out)


def _query(file: Path) -> tuple[str, Box]:
    lines = _lines(file)
    words = lines[0].split() if lines else []
    try:
        name, left, top, right, bottom = words
        return name, _box([left, top, right, bottom])
    except ValueError as error:
        raise DataError(
            f"{encoded(str(file))}: a query is a name and four numbers, left, top, right and "
            f"bottom of a box; found {encoded(' '.join(words)) or 'nothing'}"
        ) from error


def _lines(file: Path) -> list[str]:
    try:
        return [line.strip() for line in file.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{encoded(str(file))} cannot be read ({_why(error)}); each query needs its _query, "
            "_good, _ok and _junk file"
        ) from error


def _why(error: Exception) -> str:
    """What is wrong with a file, in words."""
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return "it is no text" if isinstance(error, UnicodeDecodeError) else str(error)


def _box(numbers: Sequence[Any]) -> Box:
    left, top, right, bottom = (float(number) for number in numbers)
    if not all(map(math.isfinite, (left, top, right, bottom))):
        raise ValueError("a box has four numbers")
    return left, top, right, bottom


def _revisited(images: Path, file: Path, names: dict[str, str]) -> Landmarks:
    try:
        truth = json.loads(file.read_text())
        listed, asked, entries = truth["imlist"], truth["qimlist"], truth["gnd"]
        if len(asked) != len(entries):
            raise ValueError("qimlist and gnd differ in length")
        sets = [
            {kind: [int(i) for i in entry[kind]] for kind in ("easy", "hard", "junk")}
            for entry in entries
        ]
        for name, entry in zip(asked, sets, strict=True):
            if sum(map(len, map(set, entry.values()))) > len({*chain(*entry.values())}):
                raise ValueError(f"an image of {name} is in two of easy, hard and junk")
        boxes = [_box(entry["bbx"]) for entry in entries]
        for i in (i for entry in sets for kind in entry.values() for i in kind):
            if not 0 <= i < len(listed):
                raise ValueError(f"image {i} of {len(listed)}")
        listed, asked = ([Path(str(name)).stem for name in part] for part in (listed, asked))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{encoded(str(file))} is not the revisited ground truth as JSON (imlist, qimlist, "
            f"gnd with bbx, easy, hard and junk): {_why(error)}"
        ) from error
    absent = [name for name in [*listed, *asked] if name not in names]
    there = [name for name in listed if name in names]
    number = {name: i for i, name in enumerate(there)}
    queries: list[Query] = []
    left_out: list[str] = []
    for name, entry, box in zip(asked, sets, boxes, strict=True):
        if name not in names:
            left_out.append(f"{encoded(name)}: its image is not there")
            continue
        easy, hard, junk = (
            frozenset(number[listed[i]] for i in entry[kind] if listed[i] in number)
            for kind in ("easy", "hard", "junk")
        )
        if not easy | hard:
            left_out.append(f"{encoded(name)}: no image that shows it is there")
            continue
        relevance = {
            "easy": Relevance(easy, junk | hard),
            "medium": Relevance(easy | hard, junk),
            "hard": Relevance(hard, junk | easy),
        }
        queries.append(Query(name, None, names[name], box, relevance))
    return _whole(images, file, [names[name] for name in there], queries, absent, left_out)


def _whole(
    images: Path,
    ground_truth: Path,
    paths: list[str],
    queries: list[Query],
    absent: list[str],
    left_out: list[str],
) -> Landmarks:
    if not queries:
        raise DataError(
            f"no query of {encoded(str(ground_truth))} can be asked of {encoded(str(images))}: "
            f"{left_out[0]}; are these the images that the ground truth belongs to?"
            if left_out
            else f"{encoded(str(ground_truth))} has no queries"
        )
    return Landmarks(images, ground_truth, paths, queries, absent, left_out)
