"""MODEL_CARD.md: what a run was made of and came to, for whoever is handed its network."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from deepcluster.images.index import Index
from deepcluster.runtime.run_folder import RunFolder

_SHOWN = (
    "network.arch",
    "network.front",
    "network.input_size",
    "network.width",
    "network.clustered",
    "network.views",
    "network.patches",
    "clustering",
    "clustering.k",
    "whitening.dimensions",
    "epochs",
    "training.batch",
    "training.step",
    "precision",
    "seed",
)


def model_card(folder: RunFolder, closing: dict[str, Any]) -> str:
    """The text of a run's model card, from what is in its folder and its closing record."""
    settings = folder.settings
    effective = settings["effective"]
    imported = settings.get("imported")
    name = folder.path.resolve().name
    # How an imported network was trained is not known here.
    shown = [key for key in _SHOWN if key.startswith("network.") or not imported]
    return "\n".join(
        [
            f"# {name}",
            "",
            f"A convnet ({effective['network.arch']}, {effective['network.front']} front, "
            f"{effective['network.input_size']} pixels) {_origin(settings)}",
            "",
            "## Data",
            "",
            *_data(folder, settings, closing),
            "",
            "## Settings",
            "",
            "| setting | value |",
            "|---|---|",
            *(
                f"| `{key}` | {effective[key]}{_cut_short(key, effective, closing)} |"
                for key in shown
                if key in effective
            ),
            "",
            "All of them are in `settings.json`.",
            "",
            "## Measures",
            "",
            *_measures(folder, closing),
            "",
            "## Versions",
            "",
            f"deepcluster {settings.get('version')}, torch {settings.get('torch')}, run folder "
            f"format {settings.get('format')}.",
            "",
            "## What not to use it for",
            "",
            "- The groups are no classes: nobody has named or checked them, and their numbers mean "
            "nothing in another run.",
            "- Do not decide about people by them (identity, health, credit, work), nor where an "
            "error is dangerous.",
            "- The network knows only images like those above. `predict` says `none` where an "
            "image is far from all of them; that is a distance, not a guarantee.",
            "- What the images are biased towards, the features and groups are too.",
            "",
        ]
    )


def _cut_short(key: str, effective: dict[str, Any], closing: dict[str, Any]) -> str:
    """Of a run to which a time was given: how many of its epochs came about."""
    if key != "epochs" or closing["epochs"] == effective["epochs"]:
        return ""
    minutes = effective.get("minutes")
    given = "" if minutes is None else f" in the {minutes:g} minutes given"
    return f" at the most; {closing['epochs']} made{given}"


def _origin(settings: dict[str, Any]) -> str:
    """Where the weights come from, and what of labels they have seen."""
    effective = settings["effective"]
    method = "(DeepCluster; Caron, Bojanowski, Joulin and Douze, ECCV 2018)."
    if imported := settings.get("imported"):
        return f"imported from {imported['file']} {method}"
    began = effective.get("network.init")
    before = (
        f" It began with the weights of `{Path(began).name}`; what those were trained on, and "
        "whether with labels, is not known here."
        if began
        else ""
    )
    if _supervised(effective):
        return (
            "that was trained on the names of its images' folders: the supervised baseline of "
            f"DeepCluster, not DeepCluster itself.{before}"
        )
    return f"that was trained without labels, by clustering its own features {method}{before}"


def _supervised(effective: dict[str, Any]) -> bool:
    return effective.get("labels") == "folders"


def _data(folder: RunFolder, settings: dict[str, Any], closing: dict[str, Any]) -> list[str]:
    imported = settings.get("imported")
    if imported:
        return [
            f"Not known here: the weights come from `{imported['file']}` "
            f"(SHA-256 `{imported['sha256']}`)."
        ]
    reasons = Counter(reason for _, reason in Index.load(folder.index).unusable)
    left = reasons.total()
    return [
        f"- {closing['images']:,} images; SHA-256 of their paths and contents `{settings['data']}`",
        f"- {left:,} files left out"
        + "".join(f"; {count:,} {reason}" for reason, count in reasons.most_common()),
        *(
            ["- which files they are is not told here"]
            if closing.get("exported")
            else ["- every file with its verdict is in `index.parquet`"]
        ),
    ]


def _measures(folder: RunFolder, closing: dict[str, Any]) -> list[str]:
    if "clusters" not in closing:
        return ["None were taken here."]
    journal = folder.journal()
    never = "" if _supervised(folder.settings["effective"]) else " never"
    dimensions = np.load(folder.path / "features.npy", mmap_mode="r").shape[1]
    lines = [
        "| measure | value | protocol |",
        "|---|---|---|",
        f"| groups | {closing['clusters']:,} of {closing['smallest']:,} to {closing['largest']:,} "
        f"images | clustering of the whitened features ({dimensions} dimensions) of all images, "
        "centre crop, final network |",
        f"| clustering loss | {closing['clustering_loss']:.4f} | mean squared distance of a unit "
        "row to its centroid, same pass |",
    ]
    if closing.get("nmi_last") is not None:
        lines.append(
            f"| NMI with the last epoch's groups | {closing['nmi_last']:.3f} | normalised mutual "
            "information of both labelings of all images |"
        )
    if closing.get("nmi_labels") is not None:
        lines.append(
            f"| NMI with the folders | {closing['nmi_labels']:.3f} | the same with the names of "
            f"the folders, which training{never} saw |"
        )
    if journal:
        lines.append(
            f"| training loss | {journal[-1]['loss']:.3f} (guessing: {journal[-1]['ln_k']:.3f}) | "
            f"mean cross-entropy over epoch {closing['epochs']}, random crops |"
        )
    warned = ", ".join(f"`{name}`" for name in closing.get("warnings", []))
    return [
        *lines,
        "",
        "All of them were taken on the training images themselves.",
        *([f"The run warned of {warned} (see docs/exit-codes.md)."] if warned else []),
    ]
