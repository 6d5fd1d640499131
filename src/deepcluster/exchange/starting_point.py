"""Weights that a run begins with in place of drawn ones: strictly, every one has its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from deepcluster.exchange.released import safely_unpickled
from deepcluster.exchange.torchvision_names import torchvision_names
from deepcluster.networks import Backbone, Network
from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.runtime.run_folder import finished_run, run_place

_SHOWN = 6
_FRONTS = {2: "--network.front sobel", 3: "--network.front rgb"}
"""By the channels that they give."""


def begin_with(network: Network, place: Path) -> list[str]:
    """Load the weights of a run or a file; gives what of them was left over: a classifier.

    Args:
        network: Whose trunk gets the weights.
        place: A finished run; a .safetensors file under our names or torchvision's; or a weight
            file of torchvision or timm, which is a pickle and read by the restricted unpickler.
    """
    found = _read(place)
    own = network.trunk.state_dict()
    names = torchvision_names(network)
    theirs = names if names and not {*own} & {*found} else {name: name for name in own}
    missing = [
        theirs[name]
        for name in own
        if theirs[name] not in found and not name.endswith("num_batches_tracked")
    ]
    left = sorted({*found} - {*theirs.values()})
    classifier = _classifier(network) if theirs is names else ()
    strange = [name for name in left if not name.startswith(classifier or ("\0",))]
    wrong = [
        f"{theirs[name]} ({_shape(found[theirs[name]])} there, {_shape(value)} here)"
        for name, value in own.items()
        if theirs[name] in found and found[theirs[name]].shape != value.shape
    ]
    if missing or strange or wrong:
        raise DataError(
            f"--init {place} does not fit this network: "
            + "; ".join(
                f"{what} {', '.join(which[:_SHOWN])}"
                + (f" and {len(which) - _SHOWN} more" if len(which) > _SHOWN else "")
                for what, which in (
                    ("missing", missing),
                    ("left over", strange),
                    ("of another shape", wrong),
                )
                if which
            )
            + _other_front(own, found, theirs)
        )
    values = {name: found.get(theirs[name], value) for name, value in own.items()}
    network.trunk.load_state_dict(values)
    return left


def _other_front(
    own: Mapping[str, Tensor], found: Mapping[str, Tensor], theirs: Mapping[str, str]
) -> str:
    """What to say where the first convolution is of images that another front gives."""
    for name, value in own.items():
        given = found.get(theirs[name])
        if given is not None and given.ndim == value.ndim == 4:
            front = _FRONTS.get(given.shape[1]) if given.shape[1] != value.shape[1] else None
            return f"; weights of {given.shape[1]} channels want {front}" if front else ""
    return ""


def _read(place: Path) -> Mapping[str, Tensor]:
    if run_place(place).is_dir():
        return _tensors(finished_run(place).verified("model.safetensors"))
    if not place.exists():
        raise UsageError(f"--init {place}: no such file or run")
    if place.suffix == ".safetensors":
        return _tensors(place)
    content: Any = safely_unpickled(place)
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(x, Tensor) for x in content.values()):
        raise DataError(f"--init {place} holds no state dict: tensors by name")
    return content


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"--init {path} cannot be read ({error})") from error


def _classifier(network: Network) -> tuple[str, ...]:
    """How the names of what a torchvision or timm network classifies with begin."""
    convnet = network.trunk.convnet
    if isinstance(convnet, Backbone):
        *_, last = dict(convnet.model.named_children())
        return (f"{last}.", "aux", "AuxLogits.")
    return ("classifier.6.",)


def _shape(value: Tensor) -> str:
    return " x ".join(map(str, value.shape)) or "a number"
