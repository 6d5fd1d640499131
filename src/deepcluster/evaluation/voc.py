"""Pascal VOC as its devkit lays it out: images, labels, masks and the sets of each.

An image that cannot be used is left out whole, with its name and the reason: without one of its
objects, or with a wrong one, it would give a wrong number.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deepcluster.evaluation.voc_masks import read_mask, refuse_mask
from deepcluster.evaluation.voc_objects import CLASSES, NotUsable, VocObject, labels_of, objects_of
from deepcluster.images.decode import Unusable, is_turned_by_exif, read, size_in_header
from deepcluster.images.folder import EXTENSIONS, encoded
from deepcluster.runtime.errors import DataError, ImagesLeftOut, LabelsDisagree, UsageError

BACKGROUND, BORDER = 0, 255
"""Values of a mask: none of the classes, and pixels that are not judged."""

Split = Literal["train", "val", "trainval", "test"]
Year = Literal[2007, 2012]

_FOLDERS = ("JPEGImages", "Annotations", "ImageSets", "SegmentationClass")
_Kept = TypeVar("_Kept")


@dataclass(frozen=True)
class VocImage:
    """An image of the devkit; `objects` is empty where only its mask was read."""

    name: str
    """What the image sets call it."""
    path: Path
    width: int
    height: int
    objects: tuple[VocObject, ...] = ()
    mask: Path | None = None
    """Its classes pixel by pixel, where it is read from a segmentation set."""

    def picture(self) -> Image.Image:
        """The pixels, RGB, of the size that boxes and mask are meant for."""
        try:
            picture = read(self.path)
        except Unusable as unusable:
            raise DataError(f"{encoded(str(self.path))}: {unusable.reason}") from unusable
        if picture.size != (self.width, self.height):
            raise DataError(f"{encoded(str(self.path))} has another size than it had when listed")
        return picture

    def classes_of_pixels(self) -> NDArray[np.uint8]:
        """Height x width: 0 is background, i + 1 is `CLASSES[i]`, 255 is not judged."""
        assert self.mask is not None
        where = encoded(str(self.mask))
        try:
            mask = read_mask(self.mask, (self.width, self.height))
        except NotUsable as verdict:
            raise DataError(f"{where}: {verdict.reason}: {verdict.detail}") from verdict
        pixels = np.array(mask, dtype=np.uint8)
        strange = np.setdiff1d(pixels, [*range(len(CLASSES) + 1), BORDER])
        if strange.size:
            raise DataError(f"{where} has the value {strange[0]}, which is no class of VOC")
        return pixels


class LeftOut(NamedTuple):
    """An image of a set that is not used."""

    name: str
    reason: str
    """Short, so that images can be counted by it."""
    detail: str = ""
    size: int | None = None
    """Bytes of a file that is in the set by its header: of another size it is another file."""


@dataclass(frozen=True)
class VocSet:
    """The usable images of one set."""

    folder: Path
    kind: Literal["Main", "Segmentation"]
    split: str
    images: tuple[VocImage, ...]
    left_out: tuple[LeftOut, ...] = ()
    labels: NDArray[np.int8] = field(default_factory=lambda: np.zeros((0, 20), np.int8))
    """n x 20, of Main: 1 where the class is there, 0 where all of it is difficult, else -1."""
    disagreements: int = 0
    """Labels of ImageSets/Main that the annotation contradicts; those of ImageSets are used."""

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def fingerprint(self) -> str:
        """Names these images with their boxes, labels and masks, wherever they lie.

        Of images it has names and sizes, of all else the content: to read every image only for
        this would take too long, and masks are small.
        """
        digest = hashlib.blake2b(digest_size=8)
        digest.update(self.labels.tobytes())
        for image in self.images:
            files: list[int | str] = [image.path.stat().st_size]
            if image.mask:
                files.append(hashlib.blake2b(image.mask.read_bytes(), digest_size=8).hexdigest())
            digest.update(repr((image.name, image.objects, files)).encode())
        return digest.hexdigest()

    def described(self) -> dict[str, object]:
        """What a result says of the images that it comes from."""
        return {
            "place": encoded(str(self.folder)),
            "set": f"{self.kind}/{self.split}",
            "fingerprint": self.fingerprint,
            "images": len(self),
            "left_out": [left._asdict() for left in self.left_out],
        }


@dataclass(frozen=True)
class Devkit:
    """One year's folder, such as VOCdevkit/VOC2007."""

    folder: Path

    def annotated(self, split: Split) -> VocSet:
        """The images of ImageSets/Main with their objects and labels.

        Labels are those of ImageSets/Main/<class>_<split>.txt where these are there, else follow
        from the objects.
        """
        self._refuse_missing("JPEGImages", "Annotations", "ImageSets/Main")
        names = self._names("Main", split)
        by_class = self._labels(split)

        def judged(name: str) -> tuple[VocImage, list[int], int]:
            image = self._image(name)
            found = labels_of(image.objects)
            if by_class is None:
                return image, found, 0
            row = [labels.get(name) for labels in by_class]
            if None in row:
                where = f"{CLASSES[row.index(None)]}_{split}.txt"
                raise NotUsable("a class set says nothing of it", where)
            given = [label for label in row if label is not None]
            wrong = sum(one != other for one, other in zip(given, found, strict=True))
            return image, given, wrong

        kept, left_out = _sifted(names, judged)
        self._refuse_few("Main", split, len(names), left_out)
        images, rows, wrong = zip(*kept, strict=True)
        labels = np.array(rows, dtype=np.int8)
        return VocSet(self.folder, "Main", split, images, left_out, labels, sum(wrong))

    def segmented(self, split: Split) -> VocSet:
        """The images of ImageSets/Segmentation with their masks."""
        self._refuse_missing("JPEGImages", "SegmentationClass", "ImageSets/Segmentation")
        names = self._names("Segmentation", split)

        def judged(name: str) -> VocImage:
            path, size = self._found(name)
            mask = self.folder / "SegmentationClass" / f"{name}.png"
            refuse_mask(mask, size)
            return VocImage(name, path, *size, mask=mask)

        images, left_out = _sifted(names, judged)
        self._refuse_few("Segmentation", split, len(names), left_out)
        return VocSet(self.folder, "Segmentation", split, tuple(images), left_out)

    @cached_property
    def _paths(self) -> dict[str, Path]:
        """Every image file by its name without the suffix; a .jpg comes before others."""
        found: dict[str, Path] = {}
        for path in sorted((self.folder / "JPEGImages").iterdir()):
            suffix = path.suffix.lower().lstrip(".")
            if suffix in EXTENSIONS and (path.stem not in found or suffix == "jpg"):
                found[path.stem] = path
        return found

    @cached_property
    def _known(self) -> dict[str, VocImage | NotUsable]:
        """What was read before: an image is in several sets."""
        return {}

    def _image(self, name: str) -> VocImage:
        """An image with its objects."""
        if name not in self._known:
            try:
                path, size = self._found(name)
                objects = objects_of(self.folder / "Annotations" / f"{name}.xml", size)
                self._known[name] = VocImage(name, path, *size, objects)
            except NotUsable as verdict:
                self._known[name] = verdict
        found = self._known[name]
        if isinstance(found, NotUsable):
            raise found
        return found

    def _found(self, name: str) -> tuple[Path, tuple[int, int]]:
        path = self._paths.get(name)
        if path is None:
            raise NotUsable("no image", f"JPEGImages has no {name}")
        try:
            with path.open("rb") as file:
                size = size_in_header(file)
                file.seek(0)
                if is_turned_by_exif(file):  # and its boxes and mask are not
                    raise NotUsable("turned by its EXIF tag", "save it upright")
                return path, size
        except OSError as error:
            raise NotUsable("image cannot be read", str(error.strerror)) from error
        except Unusable as unusable:
            raise NotUsable("image cannot be read", unusable.reason) from unusable

    def _names(self, kind: str, split: str) -> list[str]:
        """The images of a set, each once, in its order."""
        lines = _lines(self.folder / "ImageSets" / kind / f"{split}.txt")
        return list(dict.fromkeys(words[0] for _, words in lines))

    def _labels(self, split: str) -> list[dict[str, int]] | None:
        """For each class the label of every image, or nothing where no class has its own set."""
        places = [self.folder / f"ImageSets/Main/{name}_{split}.txt" for name in CLASSES]
        if not any(place.is_file() for place in places):
            return None
        every = []
        for place in places:
            labels: dict[str, int] = {}
            for number, words in _lines(place):
                if len(words) != 2 or words[1] not in ("-1", "0", "1"):
                    raise DataError(
                        f"{encoded(str(place))}, line {number}: not an image and -1, 0 or 1"
                    )
                labels[words[0]] = int(words[1])
            every.append(labels)
        return every

    def _refuse_missing(self, *folders: str) -> None:
        for name in folders:
            if not (self.folder / name).is_dir():
                raise DataError(
                    f"{encoded(str(self.folder))} has no folder {name}; unpack the devkit's "
                    "archives into one place"
                )

    def _refuse_few(self, kind: str, split: str, listed: int, left_out: Sequence[LeftOut]) -> None:
        """Raise where most of a set cannot be used: what is left is another set."""
        if 2 * len(left_out) > listed or not listed:
            first = f", such as {_said(left_out[0])}" if left_out else ""
            raise DataError(
                f"{encoded(str(self.folder))}/ImageSets/{kind}/{split}.txt names {listed:,} "
                f"images, of which {len(left_out):,} cannot be used{first}; is the devkit whole?"
            )


def find_devkit(data: Path | None, year: Year = 2007, flag: str = "--data") -> Devkit:
    """The devkit of that year in what the user named: VOCdevkit, the year's folder, its parent."""
    if data is None:
        raise UsageError(f"which images? give {flag} DIR, a VOCdevkit folder with VOC{year}")
    given = f"{flag} {encoded(str(data))}"
    advice = f"name the VOCdevkit folder, which holds VOC{year}"
    if not data.exists():
        raise UsageError(f"{given}: there is no such folder; {advice}")
    if not data.is_dir():
        raise UsageError(
            f"{given}: it is a file; unpack it if it is the devkit's archive, and {advice}"
        )
    names = ("", f"VOC{year}", f"VOCdevkit/VOC{year}")
    for place in (data / name for name in names):
        if any((place / name).is_dir() for name in _FOLDERS):
            return Devkit(place)
    other = next((p for p in (data / "VOCdevkit", data) for p in p.glob("VOC2*") if p.is_dir()), "")
    if other:
        advice = f"to use {encoded(str(other))}, name it"
    else:
        advice = (
            f"name the VOCdevkit folder, whose VOC{year} has JPEGImages, Annotations and ImageSets"
        )
    raise UsageError(f"{given}: there is no VOC{year} in it; {advice}")


def refuse_common_sets(
    pairs: Iterable[tuple[Split, Split]], read: Callable[[Split], VocSet]
) -> None:
    """Raise where a network would be judged on images that it learns from, or is chosen by.

    Args:
        pairs: Which set is learnt from and which one judged on: on test to report, else to choose.
        read: Gives a set.
    """
    pairs = [*pairs]
    for learn, judge in pairs:
        refuse_common(read(learn), read(judge))
    if "test" in (judge for _, judge in pairs):
        for pair in pairs:
            if "test" not in pair:
                for one in pair:
                    refuse_common(read(one), read("test"), chooses=True)


def refuse_common(train: VocSet, test: VocSet, flags: str = "", *, chooses: bool = False) -> None:
    """Raise where a network would be judged on images that it learns from.

    Args:
        train: What it learns from.
        test: What it is judged on.
        flags: By which the user has chosen these sets, if he has.
        chooses: Whether it is not the network that learns from them, but its hyper-parameters.
    """
    common = {image.name for image in train.images} & {image.name for image in test.images}
    if not common:
        return
    said = (
        f"{encoded(str(train.folder))}: {len(common):,} images, such as {min(common)}, are both in "
        f"{train.split} and in {test.split}"
    )
    if flags:
        raise UsageError(f"{said}; choose other sets by {flags}")
    if chooses:
        raise DataError(f"{said} of ImageSets: what chooses must not be judged on")
    raise DataError(f"{said} of ImageSets: nothing that was learnt from can be judged on")


def warn_of_left_out(sets: Sequence[VocSet]) -> None:
    """One warning that counts, by reason, the images of these sets that are not used."""
    parts = []
    for one in sets:
        reasons = Counter(left.reason for left in one.left_out)
        for reason, count in reasons.most_common():
            first = next(left for left in one.left_out if left.reason == reason)
            more = ", ..." if count > 1 else ""
            parts.append(f"{count:,} of {_title(one)}: {_said(first)}{more}")
    if parts:
        warnings.warn(ImagesLeftOut("images are left out: " + "; ".join(parts)), stacklevel=2)


def warn_of_labels(sets: Sequence[VocSet]) -> None:
    """One warning that counts the labels of these sets that the annotations contradict."""
    parts = []
    for one in sets:
        if count := one.disagreements:
            labels = "1 label" if count == 1 else f"{count:,} labels"
            parts.append(f"{labels} of {_title(one)}")
    if parts:
        said = f"not what the annotations say: {', '.join(parts)}; those of ImageSets/Main are used"
        warnings.warn(LabelsDisagree(said), stacklevel=2)


def _title(one: VocSet) -> str:
    return f"{one.folder.name} {one.split}"


def _sifted(
    names: Sequence[str], judged: Callable[[str], _Kept]
) -> tuple[list[_Kept], tuple[LeftOut, ...]]:
    kept, left_out = [], []
    for name in names:
        try:
            if not re.fullmatch(r"\w[\w.-]*", name):  # would lead out of the devkit
                raise NotUsable("not the name of an image")
            kept.append(judged(name))
        except NotUsable as verdict:
            left_out.append(LeftOut(encoded(name), verdict.reason, encoded(verdict.detail)))
    return kept, tuple(left_out)


def _lines(place: Path) -> Iterator[tuple[int, list[str]]]:
    """The words of every line that has some, with its number."""
    try:
        text = place.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"{encoded(str(place))}: {reason}; the devkit is not whole") from error
    for number, line in enumerate(text.splitlines(), 1):
        if words := line.split():
            yield number, words


def _said(left: LeftOut) -> str:
    detail = f" ({left.detail})" if left.detail else ""
    return f"{left.name}: {left.reason}{detail}"
