"""A run's network in the formats of others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from safetensors.torch import save as tensors_as_bytes
from torch import Tensor, nn

from deepcluster.exchange.model_card import model_card
from deepcluster.exchange.torchvision_names import torchvision_names
from deepcluster.exchange.whole_graph import WholeGraph
from deepcluster.images.kept import DEVIATION, MEAN
from deepcluster.networks import VGG16, Backbone, Network
from deepcluster.networks.backbone import torchvision_arguments
from deepcluster.runtime.errors import NumericsError, UsageError
from deepcluster.runtime.run_folder import RunFolder, settings_hash, storage_errors_named

_SAME = 1e-3  # of the largest number: beyond this, two programs do not compute the same


def preprocessing(effective: dict[str, Any]) -> dict[str, Any]:
    """What is done to a picture before the network, in words that any program can follow."""
    size = effective["network.input_size"]
    stored = effective["pixels.keep"] == "store"
    return {
        "colour": "RGB",
        "first_resize_short_side_to_at_most": effective["pixels.short_side"] if stored else None,
        "resize_short_side": round(size * 256 / 224),
        "resampling": "bilinear, antialiased",
        "centre_crop": size,
        "scale": 1 / 255,
        "mean": list(MEAN),
        "deviation": list(DEVIATION),
    }


def to_safetensors(folder: RunFolder, weights: dict[str, Tensor], out: Path) -> str:
    """Weights, preprocessing and settings in one file."""
    _write(out, tensors_as_bytes(weights, metadata=_metadata(folder)))
    return f"{len(weights)} tensors with preprocessing and settings in {out}"


def to_torchvision(folder: RunFolder, network: Network, out: Path) -> str:
    """The weights under torchvision's names, as far as its network of that name has them."""
    effective = folder.settings["effective"]
    arch, convnet = effective["network.arch"], network.trunk.convnet
    if effective["network.front"] != "rgb":
        raise UsageError(
            f"--to torchvision: {arch} of {folder.path} sees edges (the Sobel front), and no "
            "torchvision network does; train with --network.front rgb, or export to onnx"
        )
    if isinstance(convnet, Backbone):
        name = arch.removeprefix("torchvision/")
    elif isinstance(convnet, VGG16) and (convnet.width, effective["network.input_size"]) == (
        4096,
        224,
    ):
        name = "vgg16_bn"
    else:
        raise UsageError(
            f"--to torchvision: torchvision has no {arch} with these layers (of the paper's "
            "networks it has VGG-16 at 224 pixels with a width of 4096); use safetensors or onnx"
        )
    own = network.trunk.state_dict()
    names = torchvision_names(network)
    weights = {theirs: own[ours].contiguous() for ours, theirs in names.items()}
    plain = torchvision_model(name, effective["network.input_size"])
    left = sorted({*plain.state_dict()} - {*weights})
    _write(out, tensors_as_bytes(weights, metadata=_metadata(folder)))
    return (
        f"{len(weights)} tensors of torchvision's {name} in {out}; load with "
        f"load_state_dict(safetensors.torch.load_file({out.name!r}), strict=False); what stays as "
        f"it is: {', '.join(left)}"
    )


def torchvision_model(name: str, input_size: int) -> nn.Module:
    """The plain network of torchvision, on no device: only its names and shapes are there."""
    import torchvision

    with torch.device("meta"):
        return torchvision.models.get_model(
            name, weights=None, **torchvision_arguments(name, input_size)
        )


Embedded = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""What `embed` gives for a picture (H x W x 3)."""


def to_onnx(
    folder: RunFolder,
    graph: WholeGraph,
    out: Path,
    pictures: Sequence[NDArray[np.uint8]],
    embedded: Embedded,
) -> str:
    """One ONNX file: uint8 pictures of any size in, features out.

    Held against the same graph in torch, and against what `embed` says of some pictures.
    """
    refuse_without("onnx", "onnx", "onnxscript", "onnxruntime")
    import onnx
    import onnxruntime

    size = graph.size
    randomness = np.random.default_rng(0)
    noise = randomness.integers(0, 256, (5, 2 * size + 31, 3 * size, 3), dtype=np.uint8)
    aside = out.with_name(f".{out.name}.writing")
    with storage_errors_named(out):  # said before the work, not after it
        aside.parent.mkdir(parents=True, exist_ok=True)
        aside.touch()
    try:
        torch.onnx.export(
            graph.eval(),
            (torch.from_numpy(noise[:2]),),
            str(aside),
            input_names=["images"],
            output_names=["features"],
            dynamic_shapes={"images": dict.fromkeys((0, 1, 2), torch.export.Dim.DYNAMIC)},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        model = onnx.load(aside)
        for key, value in _metadata(folder).items():
            model.metadata_props.append(onnx.StringStringEntryProto(key=key, value=value))
        onnx.save(model, aside)
        session = onnxruntime.InferenceSession(str(aside), providers=["CPUExecutionProvider"])

        def computed(images: NDArray[np.uint8]) -> NDArray[np.float32]:
            return session.run(None, {"images": images})[0]

        def in_torch(images: NDArray[np.uint8]) -> NDArray[np.float32]:
            with torch.no_grad():
                return graph(torch.from_numpy(images)).numpy()

        some = (noise, noise[:1, :, : size + 5], noise[:2, : size // 2])
        apart, largest = _differences([(computed(one), in_torch(one)) for one in some])
        if not apart <= _SAME * largest:
            raise NumericsError(
                f"the ONNX file differs from torch by {apart:.2g} where the largest number is "
                f"{largest:.2g}; it was not kept; please report it with the versions of both"
            )
        said = [f"largest difference from torch {apart:.2g} (largest number {largest:.2g})"]
        if pictures:
            pairs = [(computed(one[None])[0], embedded(one)) for one in pictures]
            apart, largest = _differences(pairs)
            said.append(f"from embed on {len(pairs)} pictures {apart:.2g} (of {largest:.2g})")
        width = computed(noise[:1]).shape[1]
        aside.replace(out)
    finally:
        aside.unlink(missing_ok=True)
    return f"pictures (uint8, N x H x W x 3) to features (N x {width}) in {out}; " + ", ".join(said)


def _differences(
    pairs: Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]],
) -> tuple[float, float]:
    """The largest difference within a pair, and the largest number of any."""
    return (
        max(float(np.abs(one - other).max()) for one, other in pairs),
        max(float(np.abs(other).max()) for _, other in pairs),
    )


def to_huggingface(
    folder: RunFolder, out: Path, groups: dict[str, Tensor] | None, farthest: float | None
) -> str:
    """A folder for the Hugging Face hub, which embed and predict take as a run; no upload.

    Args:
        folder: The run.
        out: The folder to be made.
        groups: What `predict` needs, if the run has groups.
        farthest: The distance beyond which an image is in none of them.
    """
    settings, closing = _without_places(folder.settings), folder.closing
    place = RunFolder(out)
    about = {"settings": json.dumps(settings["effective"])}
    weights = load_file(folder.verified("model.safetensors"))
    contents = {"model.safetensors": tensors_as_bytes(weights, metadata=about)}
    if groups is not None:
        contents["groups.safetensors"] = tensors_as_bytes(groups, metadata=about)
    for name, content in contents.items():
        place.write(name, content)
    closing = {
        **closing,
        "exported": {"farthest": farthest},
        "sha256": place.hashes(),
        "settings_sha256": settings_hash(settings),
    }
    place.write("settings.json", json.dumps(settings, indent=2) + "\n")
    config = {"model_type": "deepcluster", "settings": settings["effective"]}
    place.write("config.json", json.dumps(config, indent=2) + "\n")
    about_pixels = json.dumps(preprocessing(settings["effective"]), indent=2)
    place.write("preprocessor_config.json", about_pixels + "\n")
    card = model_card(folder, closing)
    place.write("README.md", "\n".join(_HUB) + card + "\n".join(_use(groups)))
    place.write("closing.json", json.dumps(closing, indent=2) + "\n")
    can = "embed takes" if groups is None else "embed and predict take"
    return f"{can} the folder {out} as a run; its README.md is the card; nothing was uploaded"


_HUB = [
    "---",
    "library_name: deepcluster",
    "pipeline_tag: image-feature-extraction",
    "tags:",
    "- deepcluster",
    "- self-supervised-learning",
    "- image-feature-extraction",
    "---",
    "",
]


def _use(groups: dict[str, Tensor] | None) -> list[str]:
    """How the folder is used, and what it is not enough for."""
    code = [
        "import deepcluster",
        "",
        'model = deepcluster.load(".")  # this folder',
        'vectors = model.embed("photos/")',
    ]
    if groups is not None:
        code.append('groups = deepcluster.DeepCluster.load(".").predict("photos/")')
    told = (
        "There are no groups: the network was imported."
        if groups is None
        else "The features of the training images are here, since the groups have no other centre "
        "than these; their paths are not."
        if "rows" in groups
        else "Of the training images nothing is here but the groups' centroids."
    )
    needs = "`similar`, `duplicates`, `outliers`, `label` and the page need the run itself."
    return ["", "## Use", "", "```python", *code, "```", "", f"{told} {needs}", ""]


def refuse_without(extra: str, *packages: str) -> None:
    """Raise with the line to type where a package of an extra is not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise UsageError(
            f"--to {extra} needs {' and '.join(missing)}: pip install 'deepcluster[{extra}]'"
        )


def _without_places(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without where things lay on the machine that trained."""
    effective = dict(settings["effective"])
    if began := effective.get("network.init"):
        effective["network.init"] = Path(began).name
    return {**settings, "images": "", "asked": [], "effective": effective}


def _metadata(folder: RunFolder) -> dict[str, str]:
    settings = _without_places(folder.settings)
    effective = settings["effective"]
    classes: dict[str, dict[str, Any]] = {}
    for name, value in effective.items():
        kind, _, leaf = name.rpartition(".")
        classes.setdefault(kind or "run", {})[leaf] = value
    return {
        "format": "pt",
        "deepcluster": str(settings.get("version")),
        "data": str(settings["data"]),
        "preprocessing": json.dumps(preprocessing(effective)),
        **{f"settings.{kind}": json.dumps(values) for kind, values in classes.items()},
    }


def _write(out: Path, content: bytes) -> None:
    RunFolder(out.parent).write(out.name, content)
