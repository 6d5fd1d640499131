"""The verb import: a released checkpoint becomes a run that the other verbs take."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from safetensors.torch import save as tensors_as_bytes

import deepcluster
from deepcluster import flags
from deepcluster.clusters import KMeans
from deepcluster.exchange.model_card import model_card
from deepcluster.exchange.released import INPUT_SIZE, Released, read_released
from deepcluster.flags import refuse_unknown
from deepcluster.images.kept import Pixels
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.run_folder import RunFolder, refuse_foreign, settings_hash, sha256
from deepcluster.settings import Architecture, Run, flat


@dataclass(frozen=True)
class Import:
    """Make a run of a checkpoint that the paper's authors released (AlexNet or VGG-16).

    The file is read by a restricted unpickler: what wants to execute something is refused. The run
    has a network and no groups: embed takes it, predict does not.
    """

    checkpoint: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="CHECKPOINT")]
    """A .pth.tar file of the authors' layout."""

    out: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """Folder of the run to be made."""


def import_verb(words: list[str]) -> int:
    """Carry out `deepcluster import`; gives the exit code."""
    if {"-h", "--help"} & {*words}:
        tyro.cli(Import, args=["--help"], prog="deepcluster import")
    known = ["--" + entry.name for entry in fields(Import)]
    refuse_unknown(words, known, "deepcluster import --help", {})
    asked = flags.parsed(Import, words, "import")
    if not asked.checkpoint.is_file():
        raise UsageError(f"{asked.checkpoint}: no such file")
    folder = RunFolder(asked.out)
    if folder.exists:
        raise UsageError(f"--out {asked.out} is a run already; name another folder")
    refuse_foreign(asked.out)
    with Display().shown() as display:
        found = read_released(asked.checkpoint)
        with folder.locked():
            _write(folder, found, asked)
        left = f"; left out: {', '.join(found.left_out)}" if found.left_out else ""
        display.say(
            f"{found.arch} with {found.front}, fc7 of {found.width:,}, in {asked.out}{left}; next: "
            f"deepcluster embed {asked.out} IMAGES --out FILE"
        )
    return 0


def _write(folder: RunFolder, found: Released, asked: Import) -> None:
    run = Run(
        network=Architecture(found.arch, found.front, INPUT_SIZE, found.width),
        pixels=Pixels(keep="files", colour="rgb"),  # the authors cut every picture from its file
    )
    if found.clusters is not None:
        run = replace(run, clustering=KMeans(k=found.clusters))
    # How the network was trained is not known: only what it is and takes in can be said.
    known = {
        name: value
        for name, value in flat(run).items()
        if name.startswith(("network.", "pixels."))
        or (found.clusters is not None and name in ("clustering", "clustering.k"))
    }
    origin = {"file": asked.checkpoint.name, "sha256": sha256(asked.checkpoint)}
    weights = {name: value.contiguous() for name, value in found.network.trunk.state_dict().items()}
    metadata = {"settings": json.dumps(known)}
    folder.write("model.safetensors", tensors_as_bytes(weights, metadata=metadata))
    folder.begin(
        {
            "version": deepcluster.__version__,
            "torch": torch.__version__,
            "images": "",
            "data": None,
            "asked": ["import", str(asked.checkpoint), "--out", str(asked.out)],
            "why": [],
            "effective": known,
            "imported": origin,
        }
    )
    closing: dict[str, Any] = {
        "epochs": found.epoch or 0,
        "epochs_asked": found.epoch or 0,
        "minutes_asked": None,
        "images": 0,
        "warnings": [],
        "imported": origin,
        "sha256": folder.hashes(),
        "settings_sha256": settings_hash(folder.settings),
    }
    folder.write("MODEL_CARD.md", model_card(folder, closing))
    folder.write("closing.json", json.dumps(closing, indent=2) + "\n")
