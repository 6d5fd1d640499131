"""What is evaluated: a run, or an untrained network as a baseline. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from deepcluster.runtime.errors import ResumeError, UsageError
from deepcluster.runtime.run_folder import RUNS, RunFolder, run_place

UNTRAINED = ("random", "random-rgb", "random-sobel")

_SUPERVISED = {"supervised": None, "supervised-rgb": "rgb", "supervised-sobel": "sobel"}
"""Names of baselines among the runs, each with the front that it promises."""


@dataclass(frozen=True)
class Shape:
    """What a network must be built from; the defaults are the paper's AlexNet."""

    arch: str = "alexnet"
    front: Literal["sobel", "rgb"] = "sobel"
    input_size: int = 224
    width: int = 4096
    dropout: float = 0.5

    @staticmethod
    def of_run(folder: RunFolder) -> Shape:
        """Of the network that the run trains."""
        effective = folder.settings["effective"]
        try:
            return Shape(
                arch=effective["network.arch"],
                front=effective["network.front"],
                input_size=int(effective["network.input_size"]),
                width=int(effective["network.width"]),
                dropout=float(effective["network.dropout"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ResumeError(
                f"{folder.path}/settings.json does not say what the network is ({error})"
            ) from error


def trained_run(name: str) -> RunFolder:
    """The finished run of this path, or of this name among the runs here."""
    found = run_place(name)
    folder = RunFolder(found)
    if not folder.exists:
        raise UsageError(_no_run(name))
    if folder.finished and not (found / "model.safetensors").is_file():
        raise ResumeError(
            f"{found} lacks model.safetensors, the network that it has learned: copy it back, or "
            "train anew with --fresh"
        )
    if not folder.finished:
        done = len(folder.journal())
        raise ResumeError(
            f"{found} has not been trained to its end ({done} epochs done, no closing pass): the "
            f"same deepcluster train continues it; for the network untrained, evaluate random "
            f"--like {found}"
        )
    folder.verify_settings()
    return folder


def judged_run(name: str) -> RunFolder:
    """The same, to be judged; a run that is called as a baseline must be one.

    Its figures would be taken for that.
    """
    folder = trained_run(name)
    if name not in _SUPERVISED:
        return folder
    front = Shape.of_run(folder).front
    labelled = folder.settings["effective"].get("labels") == "folders"
    if labelled and _SUPERVISED[name] in (None, front):
        return folder
    is_what = f"has the front {front}" if labelled else "has learnt no labels"
    raise UsageError(
        f"{folder.path} {is_what}, and {name} means another network: {_made_by(name)}; or give "
        "this one by its path"
    )


def begun_run(name: str, flag: str) -> RunFolder:
    """The run of this path or name, finished or not, of which only the settings matter."""
    folder = RunFolder(run_place(name))
    if not folder.exists:
        raise UsageError(f"{flag} {name}: there is no such run")
    _ = folder.settings  # whole, and not of a newer version
    return folder


def _no_run(name: str) -> str:
    there = next((place for place in (Path(name), RUNS / name) if place.exists()), None)
    if there is not None:
        return f"{there} is no run folder: it has no settings.json"
    if name in _SUPERVISED:
        return f"no run is called {name}; {_made_by(name)}"
    runs = [path.name for path in RUNS.iterdir()] if RUNS.is_dir() else []
    close = get_close_matches(name, [*runs, *UNTRAINED, *_SUPERVISED], n=1)
    hint = f"did you mean {close[0]}?" if close else f"or say {', '.join(UNTRAINED)}"
    return f"there is no run {name}; give its folder, {hint}"


def _made_by(name: str) -> str:
    """How to make a supervised baseline of this name."""
    front = _SUPERVISED[name]
    says = f"--network.front {front} " if front else ""
    return f"make it: deepcluster train IMAGES --labels folders {says}--out runs/{name}"
