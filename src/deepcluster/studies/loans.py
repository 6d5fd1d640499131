"""What other studies have done already, taken over: networks, and what trials came to."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from deepcluster.evaluation.bench import Bench
from deepcluster.images.index import Index
from deepcluster.runtime.errors import DataError, ResumeError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.studies.parts import Parts, as_json, is_of

_NOT_LENT = shutil.ignore_patterns("checkpoints", "lock")  # of a run that another study copies


def borrow_network(parts: Parts, name: str, wanted: dict[str, Any], folder: RunFolder) -> None:
    """Copy a network that another study has trained with these settings on these images."""
    if parts.place(name).exists():
        return
    for other, done in parts.lent("training"):
        source = other.parents[1] / "runs" / other.name.removesuffix("-training.json")
        alike = _resolved(done["settings"]) == _resolved(wanted)
        if not alike or not (source / "model.safetensors").is_file():
            continue
        if not _learnt_from(RunFolder(source), Path(wanted["images"]), parts.bench):
            parts.bench.display.say(f"  not taken from {source}: it has learnt from other images")
            continue
        # The part is written last: where this is cut short, it is done anew.
        shutil.rmtree(folder.path, ignore_errors=True)
        shutil.copytree(source, folder.path, ignore=_NOT_LENT)
        parts.write(name, {**done, "settings": wanted, "from": str(source)})
        parts.bench.display.say(f"  trained before: {source}")
        return


def borrow_regions(parts: Parts) -> None:
    """Copy the regions that other studies have found, which takes minutes.

    Their folders are named by the images and by who found them, and who reads a block sees whether
    it is whole.
    """
    for study in parts.others:
        for found in sorted((study / "stores").glob("regions-*")):
            own = parts.study / "stores" / found.name
            for block in sorted(found.glob("block-*.safetensors")):
                if not (own / block.name).exists():
                    with suppress(OSError):  # what is not taken over is found anew
                        own.mkdir(parents=True, exist_ok=True)
                        shutil.copyfile(block, own / block.name)


def borrow_trial(parts: Parts, name: str, wanted: dict[str, Any], images: str) -> None:
    """Take over what a trial with these settings on these images has come to elsewhere."""
    if parts.place(name).exists():
        return
    # Those of an older version, which do not say what they chose, come last.
    lent = sorted(parts.lent("held-out"), key=lambda one: "choices" not in one[1])
    for other, done in lent:
        if done.get("images") == images and done["settings"] == as_json(wanted):
            parts.write(name, {**done, "from": str(other)})
            parts.bench.display.say(f"  tried before: {other}")
            return


def _learnt_from(run: RunFolder, images: Path, bench: Bench) -> bool:
    """Whether a run has learnt from the images that are there now, as far as its index says."""
    try:
        return is_of(Index.load(run.index), images, bench)
    except (DataError, ResumeError, OSError):
        return False


def _resolved(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as JSON has them, with the images by their whole path, those of a list by name."""
    settings = as_json(settings)
    place = Path(settings.get("images", "")).resolve()
    return {**settings, "images": _listed(place) if place.is_file() else str(place)}


def _listed(images: Path) -> str:
    """What a list says: each study writes lists of its own, and those of the same images agree."""
    return images.read_text(encoding="utf-8", errors="surrogateescape")
