"""MODEL_CARD.md: what a run was made of and came to, for whoever is handed its network."""

from __future__ import annotations

from collections import Counter
from typing import Any

from deepcluster.images.index import Index
from deepcluster.runtime.run_folder import RunFolder

_SHOWN = (
    "network.arch",
    "network.front",
    "network.input_size",
    "network.width",
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
            f"{effective['network.input_size']} pixels) "
            + (
                f"imported from {imported['file']}"
                if imported
                else "that was trained without labels, by clustering its own features"
            )
            + " (DeepCluster; Caron, Bojanowski, Joulin and Douze, ECCV 2018).",
            "",
            "## Data",
            "",
            *_data(folder, settings, closing),
            "",
            "## Settings",
            "",
            "| setting | value |",
            "|---|---|",
            *(f"| `{key}` | {effective[key]} |" for key in shown if key in effective),
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
    lines = [
        "| measure | value | protocol |",
        "|---|---|---|",
        f"| groups | {closing['clusters']:,} of {closing['smallest']:,} to {closing['largest']:,} "
        "images | clustering of the whitened features of all images, centre crop, final network |",
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
            "the folders, which training never saw |"
        )
    if journal:
        lines.append(
            f"| training loss | {journal[-1]['loss']:.3f} (guessing: {journal[-1]['ln_k']:.3f}) | "
            f"mean cross-entropy over epoch {closing['epochs']}, random crops |"
        )
    return [*lines, "", "All of them were taken on the training images themselves."]
