"""The verb export: a run's network in the formats of others."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

from deepcluster import flags
from deepcluster.collection.model import load
from deepcluster.exchange.export import (
    refuse_without,
    to_huggingface,
    to_onnx,
    to_safetensors,
    to_torchvision,
)
from deepcluster.flags import RunPlace, refuse_unknown, shown_as
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.run_folder import finished_run

_ENDINGS = {
    "safetensors": ".safetensors",
    "onnx": ".onnx",
    "torchvision": "-torchvision.safetensors",
    "huggingface": "-huggingface",
}


@dataclass(frozen=True)
class Export:
    """Write the network of a run for other programs. Nothing is uploaded."""

    run: RunPlace
    """Folder of a finished run."""

    to: Literal["safetensors", "onnx", "torchvision", "huggingface"]
    """safetensors: weights, preprocessing and settings in one file. onnx: pictures in, features out
    (needs the extra onnx). torchvision: a state dict under its names (RGB networks). huggingface:
    a folder for the hub with a model card."""

    out: Annotated[Path | None, shown_as("PLACE")] = None
    """File, or folder for huggingface; named after the run if not given."""


def export_verb(words: list[str]) -> int:
    """Carry out `deepcluster export`; gives the exit code."""
    if {"-h", "--help"} & {*words}:
        tyro.cli(Export, args=["--help"], prog="deepcluster export")
    known = ["--" + entry.name for entry in fields(Export)]
    refuse_unknown(words, known, "deepcluster export --help", {})
    asked = flags.parsed(Export, words, "export")
    folder = finished_run(asked.run)
    out = asked.out or Path(asked.run.resolve().name + _ENDINGS[asked.to])
    if out.exists():
        raise UsageError(f"--out {out} exists; name another place, or delete it first")
    if asked.to == "onnx":
        refuse_without("onnx", "onnx", "onnxscript", "onnxruntime")
    with Display().shown() as display:
        network = load(asked.run, "cpu").network
        weights = {key: value.contiguous() for key, value in network.trunk.state_dict().items()}
        match asked.to:
            case "safetensors":
                said = to_safetensors(folder, weights, out)
            case "torchvision":
                said = to_torchvision(folder, network, out)
            case "onnx":
                said = to_onnx(folder, network, out)
            case "huggingface":
                said = to_huggingface(folder, out)
        display.say(said)
    return 0
