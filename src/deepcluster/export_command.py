"""The verb export: a run's network in the formats of others."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from numpy.typing import NDArray
from torch import Tensor

from deepcluster import flags
from deepcluster.collection.groups import for_others
from deepcluster.collection.model import Model, load
from deepcluster.exchange.export import (
    refuse_without,
    to_huggingface,
    to_onnx,
    to_safetensors,
    to_torchvision,
)
from deepcluster.exchange.whole_graph import WholeGraph
from deepcluster.flags import RunPlace, refuse_unknown, shown_as
from deepcluster.images.album import Album
from deepcluster.images.kept import Colour, Pixels
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import DeepClusterError, UsageError
from deepcluster.runtime.run_folder import RunFolder, finished_run

_HELD_AGAINST = 8  # pictures on which an exported graph is compared with embed

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
    """Folder of a finished run, or its name in runs/."""

    to: Literal["safetensors", "onnx", "torchvision", "huggingface"]
    """safetensors: weights, preprocessing and settings in one file. onnx: pictures in, features out
    (needs the extra onnx). torchvision: a state dict under its names (RGB networks). huggingface:
    a folder for the hub with a model card, which embed and predict take as a run."""

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
    out = asked.out or Path(folder.path.resolve().name + _ENDINGS[asked.to])
    if out.exists():
        raise UsageError(f"--out {out} exists; name another place, or delete it first")
    if asked.to == "onnx":
        refuse_without("onnx", "onnx", "onnxscript", "onnxruntime")
    with Display().shown() as display:
        model = load(asked.run, "cpu")
        network = model.network
        weights = {key: value.contiguous() for key, value in network.trunk.state_dict().items()}
        match asked.to:
            case "safetensors":
                said = to_safetensors(folder, weights, out)
            case "torchvision":
                said = to_torchvision(folder, network, out)
            case "onnx":
                graph = WholeGraph(network, *_seen(model), model.clustered, model.views)
                said = to_onnx(folder, graph, out, _pictures(folder), partial(_embedded, model))
            case "huggingface":
                groups, farthest = _groups(model)
                said = to_huggingface(folder, out, groups, farthest)
        display.say(said)
    return 0


def _seen(model: Model) -> tuple[int, Colour, Pixels]:
    how = model.preprocessing
    return how.size, how.colour, how.pixels


def _pictures(folder: RunFolder) -> list[NDArray[np.uint8]]:
    """Some of the run's own pictures, spread over all of them, as far as they are at hand."""
    try:
        images = Album.of_run(folder)
        numbers = range(0, len(images), max(1, len(images) // _HELD_AGAINST))
        return [np.asarray(images.original(n).convert("RGB")) for n in numbers[:_HELD_AGAINST]]
    except DeepClusterError:  # imported or exported, or the images are gone
        return []


def _embedded(model: Model, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    return model.embed(picture[None])[0]


def _groups(model: Model) -> tuple[dict[str, Tensor] | None, float | None]:
    if model.pca is None or model.centroids is None or model.folder is None:
        return None, None
    kept = {"pca.mean": model.pca.mean, "pca.projection": model.pca.projection}
    return for_others(model.folder, {**kept, "centroids": model.centroids})
