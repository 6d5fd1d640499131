"""The checkpoints that the paper's authors released, read safely and mapped to our networks.

Files of torch 0.3 and Python 2 (`.pth.tar`, which is no tar): a dictionary of `arch`, `state_dict`
and others. They are pickles, and a pickle can execute anything; so only torch's restricted
unpickler reads them, which builds tensors and plain containers and refuses everything else.
"""

from __future__ import annotations

import pickle
import pickletools
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from deepcluster.networks import Network, build_network
from deepcluster.networks.plain import PlainConvnet
from deepcluster.runtime.errors import DataError, UsageError

INPUT_SIZE = 224


@dataclass(frozen=True)
class Released:
    """A network from a checkpoint, and what the checkpoint holds besides."""

    network: Network
    arch: Literal["alexnet", "vgg16"]
    front: Literal["sobel", "rgb"]
    width: int
    clusters: int | None
    """How many the last head told apart."""
    epoch: int | None
    left_out: list[str]
    """What of the checkpoint has no place in our network: the head, the optimizer."""


def read_released(path: Path) -> Released:
    """The network in a checkpoint of the authors' layout."""
    content = safely_unpickled(path)
    state = content.get("state_dict") if isinstance(content, Mapping) else None
    if not isinstance(state, Mapping) or not all(isinstance(x, Tensor) for x in state.values()):
        raise DataError(f"{path} has no state_dict of tensors: it is no checkpoint of the authors")
    weights = {str(name).replace("module.", ""): tensor for name, tensor in state.items()}
    arch = _arch(path, content.get("arch"), weights)
    front = _front(path, weights)
    network = _network(path, arch, front, weights)
    mapped = dict(_mapped(network, arch))
    missing = sorted({*mapped.values()} - {*weights})
    known = {*mapped.values(), *_SOBEL, "top_layer.weight", "top_layer.bias"}
    strange = sorted({*weights} - known)
    if missing or strange:
        raise DataError(
            f"{path} is no {arch} of the authors: "
            + "; ".join(
                f"{what} {', '.join(names[:6])}{' ...' if len(names) > 6 else ''}"
                for what, names in (("missing", missing), ("not known", strange))
                if names
            )
        )
    own = network.trunk.state_dict()
    # torch 0.3 did not count batches; what is counted has no part in what is computed.
    values = {ours: weights[theirs] for ours, theirs in mapped.items()}
    values |= {name: own[name] for name in own if name.endswith("num_batches_tracked")}
    try:
        network.trunk.load_state_dict(values)
    except RuntimeError as error:
        raise DataError(f"{path}: {str(error).splitlines()[-1].strip()}") from error
    head = weights.get("top_layer.weight")
    epoch = content.get("epoch")
    left_out = ["top_layer"] if head is not None else []
    return Released(
        network.eval(),
        arch,
        front,
        network.width,
        None if head is None else len(head),
        epoch if isinstance(epoch, int) else None,
        left_out + (["optimizer"] if "optimizer" in content else []),
    )


def safely_unpickled(path: Path) -> Any:
    """What a file of torch holds, if it is tensors and plain containers; nothing is executed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of pickles that it then refuses
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except pickle.UnpicklingError as error:
        if wanted := _wanted(path, error):
            raise DataError(
                f"{path} is a pickle that wants to run {wanted}, which weights have no need of; it "
                "was refused and nothing was executed; do not trust this file, or ask its author "
                "for the weights alone (a state dict, or a .safetensors file)"
            ) from error
        raise DataError(
            f"{path} is no file of weights: a pickle of another kind, or a damaged one; nothing "
            "was executed; name a checkpoint that torch has saved, or a .safetensors file"
        ) from error
    except Exception as error:  # a damaged file fails in many ways
        raise DataError(f"{path} is no checkpoint, or a damaged one ({_first(error)})") from error


def _wanted(path: Path, error: pickle.UnpicklingError) -> str | None:
    """What a pickle names that the restricted unpickler refuses; the file is only looked through.

    Torch says it of its own files. Of other pickles the first name that is no container's tells.
    """
    said = re.search(r"GLOBAL ([\w.]+)|function (\S+)", str(error))
    if said:
        return said[1] or said[2]
    texts: list[str] = []
    try:
        with path.open("rb") as file:
            for code, value, _ in pickletools.genops(file):
                name = ""
                if code.name == "GLOBAL":
                    name = str(value).replace(" ", ".")
                elif code.name == "STACK_GLOBAL":
                    name = ".".join(texts[-2:])
                elif isinstance(value, str):
                    texts.append(value)
                if name and not name.startswith(("collections.", "torch.")):
                    return name
    except ValueError:  # not a pickle from here on
        pass
    return None


_SOBEL = ("sobel.0.weight", "sobel.0.bias", "sobel.1.weight", "sobel.1.bias")


def _mapped(network: Network, arch: str) -> Iterator[tuple[str, str]]:
    """Our name of every weight in the trunk, and the authors'."""
    convnet = network.trunk.convnet
    assert isinstance(convnet, PlainConvnet)
    place = 0
    for name, part in convnet.convolutions.named_children():
        if not isinstance(part, nn.Sequential):  # a pool
            place += 1
            continue
        ours = f"convnet.convolutions.{name}"
        for offset, kinds in ((0, ("weight", "bias")), (1, _BATCH_NORM)):
            for kind in kinds:
                yield f"{ours}.{offset}.{kind}", f"features.{place + offset}.{kind}"
        place += len(part)
    # Where the two linear layers stand among ReLU and dropout: ours, then theirs.
    linear = {"alexnet": (("fc6.1", 1), ("fc7.1", 4)), "vgg16": (("fc6.0", 0), ("fc7.1", 3))}
    for ours, theirs in linear[arch]:
        for kind in ("weight", "bias"):
            yield f"convnet.{ours}.{kind}", f"classifier.{theirs}.{kind}"


_BATCH_NORM = ("weight", "bias", "running_mean", "running_var")


def _arch(path: Path, named: Any, weights: Mapping[str, Tensor]) -> Literal["alexnet", "vgg16"]:
    if named == "alexnet" or named == "vgg16":
        return named
    if "features.0.weight" in weights and named is None:
        return "alexnet" if weights["features.0.weight"].shape[-1] == 11 else "vgg16"
    raise DataError(f"{path} holds a network called {named!r}; alexnet and vgg16 can be imported")


def _front(path: Path, weights: Mapping[str, Tensor]) -> Literal["sobel", "rgb"]:
    """Which front the network has; a Sobel must be the one that ours is."""
    if not any(name.startswith("sobel.") for name in weights):
        return "rgb"
    across = torch.tensor([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]])
    expected = {
        "sobel.0.weight": torch.full((1, 3, 1, 1), 1 / 3),
        "sobel.0.bias": torch.zeros(1),
        "sobel.1.weight": torch.stack([across, across.T])[:, None],
        "sobel.1.bias": torch.zeros(2),
    }
    for name, value in expected.items():
        found = weights.get(name)
        if found is None or found.shape != value.shape or not torch.allclose(found.float(), value):
            raise DataError(f"{path}: {name} is not the paper's Sobel filter")
    return "sobel"


def _network(
    path: Path, arch: str, front: Literal["sobel", "rgb"], weights: Mapping[str, Tensor]
) -> Network:
    last = weights.get("classifier.4.weight" if arch == "alexnet" else "classifier.3.weight")
    if last is None:
        raise DataError(f"{path} is no {arch} of the authors: missing its second linear layer")
    return build_network(
        arch, front, INPUT_SIZE, width=len(last), generator=torch.Generator().manual_seed(0)
    )


def _first(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
