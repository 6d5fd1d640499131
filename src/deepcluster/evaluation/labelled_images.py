"""Images whose classes are known: what a network is judged by, never what it is trained on."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from deepcluster.evaluation.bench import Bench
from deepcluster.images.folder import decoded, encoded
from deepcluster.images.judging import COPY, SMALL
from deepcluster.images.kept import Colour, Pixels
from deepcluster.images.loader import Images
from deepcluster.images.on_device import DeviceImages
from deepcluster.images.packing import pack
from deepcluster.images.selection import selected
from deepcluster.images.source import is_store, quick_check, source_of
from deepcluster.images.store import Store
from deepcluster.images.stored import StoredImages
from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.seeds import generator

_TESTS = ("val", "test", "validation")
_SHORT_SIDE = 256
_NAMED = 1000  # files that cannot be used, of which a result gives the names


@dataclass(frozen=True)
class LabelledImages:
    """Images and their classes; class i is that of image i."""

    place: str
    images: Images
    classes: NDArray[np.int64]
    names: Sequence[str]
    """What the classes are called, by number."""
    fingerprint: str
    """Names these images in this order."""
    contents: pa.ChunkedArray
    """The hash of each image's file."""
    left_out: Sequence[tuple[str, str]]
    """Files that cannot be used, each with the reason."""
    left_out_of: Mapping[str, int]
    """How many of these are of each class."""

    def __len__(self) -> int:
        return len(self.classes)

    def described(self) -> dict[str, Any]:
        """What a result says of the images that it comes from."""
        return {
            "place": self.place,
            "fingerprint": self.fingerprint,
            "images": len(self),
            "classes": len(self.names),
            "left_out": len(self.left_out),
            "unusable": _unusable(self.left_out),
            "left_out_first": [
                {"name": encoded(name), "reason": why} for name, why in self.left_out[:_NAMED]
            ],
        }


def opened(place: Path, size: int, colour: Colour, stores: Path, bench: Bench) -> LabelledImages:
    """The labelled images of a folder, list, shards or store, ready to be cropped.

    Args:
        place: What the user named.
        size: The side of the crops.
        colour: What the network's front needs.
        stores: Where images are kept decoded, so that the next evaluation finds them.
        bench: Who reads them, and for which device.
    """
    store = Store(place) if is_store(place) else packed(place, size, colour, stores, bench)
    if store.contents.how.colour == "grey" and colour == "rgb":
        raise UsageError(
            f"{place} is a grey store and this network sees colours; pack the images again with "
            "--colour rgb"
        )
    with bench.display.phase("verifying the store", 0, {}, "verify") as phase:
        store.verify(bench.world.share(len(store.contents.checksums)), phase.reached)
    index = store.index
    where = encoded(str(place))
    unusable = index.unusable
    reasons = Counter(reason for _, reason in unusable).most_common()
    if reasons:
        said = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
        bench.display.say(f"left out of {where}: {said}")
    _refuse_few(where, len(index), unusable)
    if not len(index):
        raise DataError(f"{where} has no usable image")
    loose = index.usable.filter(pc.is_null(index.usable["label"]))["path"].to_pylist()
    if 0 < len(loose) < len(index):
        have, more = ("have", ", ...") if len(loose) > 1 else ("has", "")
        raise DataError(
            f"{where}: {len(loose):,} of {len(index):,} images {have} no class ({loose[0]}{more}); "
            "put each into the folder of its class (in a list, give it a label), or take it away"
        )
    if not loose and index.labels is None:
        (name,) = {*index.usable["label"].to_pylist()}
        raise DataError(
            f"{where} has usable images of one class only, {name!r}; give it two or more, each in "
            "a folder named after its class (in a list, with a label)"
        )
    if index.labels is None or index.classes is None:
        raise DataError(
            f"{where} has no labels to judge by; put every image into a folder named after its "
            "class (two classes at least), or give a list of paths with a column of labels"
        )
    images = cropped_from(store, size, bench)
    contents = index.usable["hash"]
    broken = Counter(index.table.filter(pc.is_valid(index.table["reason"]))["label"].to_pylist())
    names, fingerprint = index.classes, index.fingerprint
    return LabelledImages(
        where, images, index.labels, names, fingerprint, contents, unusable, broken
    )


def remarks_on(data: Mapping[str, Any]) -> list[str]:
    """What is to be said under figures where some of the images they are of cannot be used.

    Args:
        data: `described` images, or others, by what they are: train, test or images.
    """
    said = []
    for part, title in (("train", "training images"), ("test", "test images"), ("images",) * 2):
        about = data.get(part)
        if not isinstance(about, dict) or not (reasons := about.get("unusable")):
            continue
        count, used = sum(reasons.values()), about["images"]
        said.append(
            f"figures rest on {used:,} of {used + count:,} {title}: {count:,} cannot be used "
            f"({_listed(reasons)})"
        )
    return said


def _unusable(left_out: Iterable[tuple[str, str]]) -> dict[str, int]:
    """How many files cannot be used, by reason, the commonest first; not what was not wanted."""
    return dict(Counter(why for _, why in left_out if why not in (COPY, SMALL)).most_common())


def _listed(reasons: Mapping[str, int]) -> str:
    if len(reasons) == 1:
        return next(iter(reasons))
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())


def _refuse_few(where: str, usable: int, left_out: Sequence[tuple[str, str]]) -> None:
    """Raise where most files cannot be used: what is left is another set."""
    reasons = _unusable(left_out)
    files = usable + len(left_out)
    if 2 * sum(reasons.values()) > files:
        why = next(iter(reasons))
        first = next(name for name, reason in left_out if reason == why)
        raise DataError(
            f"{sum(reasons.values()):,} of {files:,} files in {where} cannot be used, more than "
            f"half ({'mostly ' if len(reasons) > 1 else ''}{why}, such as {encoded(first)}); "
            "repair them or take them away"
        )


def cropped_from(store: Store, size: int, bench: Bench) -> Images:
    """The images of a store as crops of that side, made where the network computes."""
    on_gpu = bench.world.device.type == "cuda"
    return DeviceImages(store, size, bench.world.device) if on_gpu else StoredImages(store, size)


def splits(data: Path | None, train: Path | None, test: Path | None) -> tuple[Path, Path]:
    """Where the training and the test images are: as named, else in the folders of `data`."""
    if data is not None and not data.is_dir():
        raise UsageError(f"--data {data}: there is no such folder")
    if train is None and data is not None:
        train = data / "train"
        if not train.is_dir():
            raise UsageError(f"--data {data}: there is no folder train in it; name it by --train")
    if test is None and data is not None:
        there = [data / name for name in _TESTS if (data / name).is_dir()]
        if not there:
            raise UsageError(f"--data {data}: there is no folder val or test; name it by --test")
        test = there[0]
    if train is None or test is None:
        raise UsageError(
            "which images? give --data DIR with folders train and val, each of them "
            "with one folder per class, or --train and --test"
        )
    for place in (train, test):
        quick_check(place)
    if train.resolve() == test.resolve():
        raise UsageError(f"{train} cannot be both the training and the test images")
    return train, test


def parts_of(place: Path) -> list[Path]:
    """The training and the test images, where a folder has its images in two parts; else itself."""
    there = [place / name for name in _TESTS if (place / name).is_dir()]
    return [place / "train", there[0]] if there and (place / "train").is_dir() else [place]


def judged_part(place: Path) -> Path:
    """The test images, where a folder has its images in two parts; else the folder itself."""
    return parts_of(place)[-1]


def refuse_different_classes(train: LabelledImages, test: LabelledImages) -> None:
    """Raise where a class of one is missing in the other: numbers would mean different things."""
    if list(train.names) == list(test.names):
        return
    for one, other in ((train, test), (test, train)):
        if missing := sorted({*one.names} - {*other.names}):
            empty = [name for name in missing if _has_folder(other, name)]
            name, *others = empty or missing
            more = f" and {len(others)} more" if others else ""
            broken = other.left_out_of.get(name, 0)
            if empty:
                files = "1 file there is" if broken == 1 else f"{broken:,} files there are"
                raise DataError(
                    f"there is no usable image of class {name!r}{more} in {other.place}"
                    f"{f' ({files} unusable)' if broken else ''}; put some there, or take the "
                    f"class out of {one.place}"
                )
            raise DataError(
                f"the classes differ: {name!r}{more} is in {one.place} and not in "
                f"{other.place}; both need the same class folders"
            )


def _has_folder(images: LabelledImages, name: str) -> bool:
    """Whether there is a place for a class of which no image is usable."""
    if images.left_out_of.get(name, 0):
        return True
    with suppress(OSError):  # the label of a list may be anything
        return "/" not in name and Path(decoded(images.place), decoded(name)).is_dir()
    return False


def in_both(train: LabelledImages, test: LabelledImages) -> int:
    """How many test images are files of the training images, under whatever name."""
    return int(pc.sum(pc.is_in(test.contents, value_set=train.contents)).as_py())


def said_of_both(train: LabelledImages, test: LabelledImages) -> str:
    """What is to be said where test images are training images too; else nothing."""
    if not (both := in_both(train, test)):
        return ""
    return (
        f"{both:,} of {len(test):,} test images are training images too (the same files), so that "
        "figures are too high"
    )


def split(
    labelled: LabelledImages, share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The images to train on and those to choose by: of each class that share, at least one."""
    kept, held = [], []
    for number, name in enumerate(labelled.names):
        members = np.flatnonzero(labelled.classes == number)
        if len(members) < 2:
            raise DataError(
                f"class {name!r} has {len(members)} image in {labelled.place}; it needs at least "
                "2, one to train on and one to choose the step by"
            )
        count = min(len(members) - 1, max(1, round(share * len(members))))
        order = torch.randperm(len(members), generator=generator(seed, "held-out", number)).numpy()
        held.append(members[order[:count]])
        kept.append(members[order[count:]])
    return np.sort(np.concatenate(kept)), np.sort(np.concatenate(held))


def packed(
    place: Path,
    size: int,
    colour: Colour,
    stores: Path,
    bench: Bench,
    *,
    follow_links: bool | None = None,
) -> Store:
    """The store of these images, made where it is not there yet; by the leading process.

    It serves crops of that side that show nearly all of an image; smaller images stay as they are.
    Links are followed as the bench says, or as is said here.
    """
    quick_check(place)
    resolved = place.resolve()
    name = hashlib.blake2b(str(resolved).encode(errors="surrogateescape"), digest_size=4)
    short = max(_SHORT_SIDE, round(size * 256 / 224))
    target = stores / f"{resolved.stem}-{name.hexdigest()}-{colour}-{short}"
    if bench.world.leads:
        title = f"reading {encoded(str(place))}"
        with (
            bench.world.others_waiting(),
            RunFolder(target).locked(),
            bench.display.phase(title, 0, {}, "read") as phase,
        ):
            follow = bench.follow_links if follow_links is None else follow_links
            how = Pixels("store", short, "aspect", follow_links=follow)
            source = selected(source_of(place), how)
            pack(source, target, colour, how, bench.workers, phase.reached)
        bench.world.broadcast_bytes(b"packed")
    else:
        bench.world.heard()
    return Store(target)
