"""What a run begins with: a network that is drawn, given weights, or has filters from patches."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import torch

from deepcluster.exchange.starting_point import begin_with
from deepcluster.images.loader import Images
from deepcluster.networks import Network, build_network, looked_at
from deepcluster.runtime.display import Display
from deepcluster.runtime.seeds import generator
from deepcluster.runtime.world import World
from deepcluster.settings import Run
from deepcluster.training.first_filters import Sight, begin_with_patches, begun_by_patches, looks


def new_network(run: Run) -> Network:
    """The untrained network of a run: a function of its settings alone."""
    network = run.network
    made = build_network(
        network.arch,
        network.front,
        input_size=network.input_size,
        dropout=network.dropout,
        width=network.width,
        generator=generator(run.seed, "network"),
    )
    looked_at(made, network.clustered)  # refuses a layer that is not there
    begun_by_patches(made, network.patches)  # and more convolutions than there are
    return made


def network_begun(run: Run, images: Images, world: World, display: Display) -> Network:
    """The network of a run before its first step, on the device: drawn, or begun by patches."""
    network = on_device(run, world)
    if run.network.patches:
        find_first_filters(network, images, run, world, display)
    return network


def as_it_began(run: Run, images: Images, world: World, display: Display) -> Network:
    """The network of a run before its first step, made once more, by this process alone."""
    network = network_begun(run, images, replace(world, rank=0, size=1), display)
    if run.network.init is not None:
        begin_with(network, Path(run.network.init))
    return network


def on_device(run: Run, world: World) -> Network:
    """The untrained network where it computes."""
    network = new_network(run).to(world.device)
    return network.to(memory_format=torch.channels_last) if run.speed.channels_last else network


def begin_with_weights(network: Network, run: Run, display: Display) -> None:
    """Take the weights that the run is to begin with, and say which were left over."""
    assert run.network.init is not None
    left = begin_with(network, Path(run.network.init))
    over = f"; left over: {', '.join(left)}" if left else ""
    display.say(f"beginning with {run.network.init}{over}")


def find_first_filters(
    network: Network, images: Images, run: Run, world: World, display: Display
) -> str:
    """Begin by patches: the leading process looks, and the others are told: a matter of seconds.

    Gives the name of this state of the network: another machine may find others.
    """
    count = run.network.patches
    total = looks(len(images), count)
    with display.phase("first filters from patches", total, {}, "start") as phase:
        if world.leads:
            with world.others_told():
                sight = Sight(images, world.device, run.speed.threads, phase.advance)
                begin_with_patches(network, count, sight, run.seed)
            world.tell({})
        else:
            world.told()
    content = hashlib.sha256()
    for tensor in network.trunk.state_dict().values():
        tensor.copy_(world.broadcast(tensor))
        content.update(tensor.cpu().contiguous().numpy().tobytes())
    return f"untrained-{content.hexdigest()}"
