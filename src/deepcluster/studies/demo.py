"""The demo: a convnet teaches itself from crops of a few real pictures, on two CPU cores.

Which picture a crop was cut from is known and never used in training; at the end it tells whether
the network has learned: how often the nearest neighbour of a crop, among crops that share no pixel
with it, is from the same picture, for the trained network beside the untrained one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file

from deepcluster.beginning import new_network
from deepcluster.clusters import KMeans, normalized_mutual_information
from deepcluster.evaluation.neighbour_agreement import neighbour_agreement
from deepcluster.features import Looking, Whitening, extract
from deepcluster.flags import read
from deepcluster.images.index import Index
from deepcluster.images.loader import Images
from deepcluster.images.pictures import overlapping, read_boxes, write_demo_images
from deepcluster.networks import Network
from deepcluster.report import write_report
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.seeds import generator
from deepcluster.runtime.world import World, joined
from deepcluster.session import Asked, train
from deepcluster.settings import Architecture, Run
from deepcluster.training.optimizers import Optimization

CROPS_PER_PICTURE = 100


@dataclass(frozen=True)
class Demo:
    """See a convnet teach itself from images that come with the package."""

    out: Path = Path("runs/demo")
    """Run folder; the images are written beside it."""

    seed: int = 0
    """Names every random stream of the run."""

    epochs: int = 16
    """Clusterings, each followed by training on its labels."""


def demo(words: list[str]) -> int:
    """Carry out `deepcluster demo`; gives the exit code."""
    asked = read(Demo, words, "demo")
    run = demo_run(asked.seed, asked.epochs)
    pictures = asked.out.with_name(asked.out.name + "-images")
    with interruption.noticed(), joined() as world, Display(speaks=world.leads).shown() as display:
        if world.leads and not (pictures / ".done").exists():
            display.say(f"cutting crops out of pictures into {pictures}")
            write_demo_images(pictures, CROPS_PER_PICTURE)
            (pictures / ".done").touch()
        world.wait()
        folder, _ = train(
            Asked(pictures, lambda images, gpu: (run, []), out=asked.out), world, display
        )
        if world.leads:
            _compare(run, folder, pictures, replace(world, rank=0, size=1), display)
    return 0


def demo_run(seed: int = 0, epochs: int = 16) -> Run:
    """The demo's settings: the paper's plain way, narrow, of which an epoch takes seconds."""
    return Run(
        seed=seed,
        epochs=epochs,
        network=Architecture(input_size=64, width=512, dropout=0.2),
        whitening=Whitening(dimensions=64),
        clustering=KMeans(k=50),
        training=Optimization(batch=32),
    )


@dataclass(frozen=True)
class Scores:
    """How well a feature space keeps the pictures apart."""

    agreement: float  # share of crops whose nearest neighbour is from the same picture
    nmi: float  # of the groups with the pictures


def scores(network: Network, run: Run, images: Images, world: World) -> Scores:
    """The scores of a network, by the features that the run would cluster."""
    raw = extract(network.trunk, images, world, Looking(workers=run.speed.threads, keep="device"))
    features = run.whitening(raw, world)
    clusters = run.clustering(features.matrix, world, generator(run.seed, "cluster", run.epochs))
    boxes = read_boxes(images.names)

    def share_pixels(block: slice) -> torch.Tensor:
        return torch.from_numpy(overlapping(boxes[block], boxes))

    assert images.labels is not None
    pictures = torch.from_numpy(images.labels)
    return Scores(
        neighbour_agreement(features.matrix.cpu(), pictures, share_pixels),
        normalized_mutual_information(clusters.labels, pictures),
    )


def trained_network(run: Run, folder: RunFolder) -> Network:
    """The network that the run has left."""
    network = new_network(run)
    network.trunk.load_state_dict(load_file(folder.path / "model.safetensors"))
    return network


def _compare(run: Run, folder: RunFolder, pictures: Path, world: World, display: Display) -> None:
    images = Images(pictures, Index.load(folder.index), run.network.input_size)
    before = scores(new_network(run).to(world.device), run, images, world)
    after = scores(trained_network(run, folder).to(world.device), run, images, world)
    display.say()
    display.say(f"{'has it learned?':<62}{'untrained':>11}{'trained':>9}")
    for what, untrained, trained in (
        (
            "nearest neighbour is from the same picture, overlap excluded",
            f"{before.agreement:.1%}",
            f"{after.agreement:.1%}",
        ),
        ("groups agree with the pictures (NMI)", f"{before.nmi:.3f}", f"{after.nmi:.3f}"),
    ):
        display.say(f"{what:<62}{untrained:>11}{trained:>9}")
    _put_on_the_page(folder, before.agreement, after.agreement, len(images))
    display.say(f"\nsee it: open {folder.path / 'report' / 'index.html'} in a browser")


def _put_on_the_page(folder: RunFolder, untrained: float, trained: float, images: int) -> None:
    """Show the same figures on the page: crops that overlap are neighbours by nature."""
    try:
        known = json.loads((folder.path / "baseline.json").read_text())
    except (OSError, ValueError):
        return  # the run is older than pages are
    chance = next((e["chance"] for e in known["comparisons"] if e["name"] != "crops"), 0.0)
    known["comparisons"] = [
        {
            "name": "pictures",
            "untrained": untrained,
            "trained": trained,
            "chance": chance,
            "images": images,
        },
        *(entry for entry in known["comparisons"] if entry["name"] == "crops"),
    ]
    folder.write("baseline.json", json.dumps(known, indent=2) + "\n")
    write_report(folder)
