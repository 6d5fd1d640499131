"""A run's network in the formats of others."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as tensors_as_bytes
from torch import Tensor, nn

from deepcluster.exchange.model_card import model_card
from deepcluster.exchange.torchvision_names import torchvision_names
from deepcluster.images.crops import DEVIATION, MEAN
from deepcluster.networks import VGG16, Backbone, Network
from deepcluster.networks.backbone import torchvision_arguments
from deepcluster.runtime.errors import NumericsError, UsageError
from deepcluster.runtime.run_folder import RunFolder

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


class WithPreprocessing(nn.Module):
    """B x d features of whole pictures of one size, B x H x W x 3, uint8: all is inside.

    The cut is written as two matrix products, so that a graph of it holds for any H and W: the
    same triangle filter as Pillow's, which rounds once more on the way.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: Network, size: int) -> None:
        super().__init__()
        self.trunk, self.size = network.trunk, size
        self.short = round(size * 256 / 224)
        self.register_buffer("mean", 255 * torch.tensor(MEAN).view(-1, 1, 1), persistent=False)
        self.register_buffer(
            "deviation", 255 * torch.tensor(DEVIATION).view(-1, 1, 1), persistent=False
        )

    def forward(self, images: Tensor) -> Tensor:
        """One feature vector an image."""
        pixels = images.permute(0, 3, 1, 2).float()
        down, across = pixels[0, 0, :, 0] * 0 + 1, pixels[0, 0, 0, :] * 0 + 1
        least = torch.minimum(down.sum(), across.sum())
        cut = self._weights(down, least) @ (pixels @ self._weights(across, least).T)
        cut = torch.floor(cut + 0.5)
        return self.trunk((cut - self.mean) / self.deviation)

    def _weights(self, ones: Tensor, least: Tensor) -> Tensor:
        """(size, H): how much each row of pixels counts for each row of the cut."""
        height = ones.sum()
        new = torch.floor(self.short * height / least)
        scale = height / new
        start = torch.round((new - self.size) / 2) * scale
        centres = start + (torch.arange(self.size, device=ones.device) + 0.5) * scale
        places = torch.cumsum(ones, 0) - 0.5
        reach = torch.clamp(scale, min=1.0)
        weights = torch.relu(1 - (places[None] - centres[:, None]).abs() / reach)
        return weights / weights.sum(dim=1, keepdim=True)


def to_onnx(folder: RunFolder, network: Network, out: Path) -> str:
    """One ONNX file: uint8 pictures of any size in, features out; checked against torch."""
    refuse_without("onnx", "onnx", "onnxscript", "onnxruntime")
    import onnx
    import onnxruntime

    size = folder.settings["effective"]["network.input_size"]
    module = WithPreprocessing(network.eval(), size).eval()
    randomness = np.random.default_rng(0)
    pixels = randomness.integers(0, 256, (5, 2 * size + 31, 3 * size, 3), dtype=np.uint8)
    aside = out.with_name(f".{out.name}.writing")
    aside.parent.mkdir(parents=True, exist_ok=True)
    try:
        torch.onnx.export(
            module,
            (torch.from_numpy(pixels[:2]),),
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
        worst = largest = 0.0
        with torch.no_grad():
            for some in (pixels, pixels[:1, :, : size + 5], pixels[:2, : size // 2]):
                ours = module(torch.from_numpy(some)).numpy()
                (theirs,) = session.run(None, {"images": some})
                worst = max(worst, float(np.abs(ours - theirs).max()))
                largest = max(largest, float(np.abs(ours).max()))
        if not worst <= _SAME * largest:
            raise NumericsError(
                f"the ONNX file differs from torch by {worst:.2g} where the largest number is "
                f"{largest:.2g}; it was not kept; please report it with the versions of both"
            )
        aside.replace(out)
    finally:
        aside.unlink(missing_ok=True)
    return (
        f"pictures (uint8, N x H x W x 3) to features (N x {network.width}) in {out}; largest "
        f"difference from torch {worst:.2g} (largest number {largest:.2g})"
    )


def to_huggingface(folder: RunFolder, out: Path) -> str:
    """A folder for the Hugging Face hub: weights, configuration, model card; no upload."""
    settings = folder.settings
    place = RunFolder(out)
    front = [
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
    card = model_card(folder, folder.closing)
    use = [
        "",
        "## Use",
        "",
        "```python",
        "import deepcluster",
        "",
        'model = deepcluster.load(".")   # this folder',
        'vectors = model.embed("photos/")',
        "```",
        "",
    ]
    place.write("settings.json", json.dumps(_without_places(settings), indent=2) + "\n")
    # Byte for byte: closing.json vouches for them by hash.
    for name in ("model.safetensors", "groups.safetensors", "closing.json"):
        if (folder.path / name).exists():
            place.write(name, (folder.path / name).read_bytes())
    config = {"model_type": "deepcluster", "settings": settings["effective"]}
    place.write("config.json", json.dumps(config, indent=2) + "\n")
    about = json.dumps(preprocessing(settings["effective"]), indent=2)
    place.write("preprocessor_config.json", about + "\n")
    place.write("README.md", "\n".join(front) + card + "\n".join(use))
    return f"weights, groups, configuration and model card in {out}; nothing was uploaded"


def refuse_without(extra: str, *packages: str) -> None:
    """Raise with the line to type where a package of an extra is not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise UsageError(
            f"--to {extra} needs {' and '.join(missing)}: pip install 'deepcluster[{extra}]'"
        )


def _without_places(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without where things lay on the machine that trained."""
    return {**settings, "images": "", "asked": []}


def _metadata(folder: RunFolder) -> dict[str, str]:
    settings = folder.settings
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
