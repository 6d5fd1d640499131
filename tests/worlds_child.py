"""What a process of a test does together with another one."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from deepcluster.clusters.labelled_means import means_of_labelled
from deepcluster.networks import build_network, fresh_head
from deepcluster.pseudolabels import Batch
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.seeds import generator
from deepcluster.runtime.world import World, joined
from deepcluster.training.carried_head import carry_over
from deepcluster.training.course import Course
from deepcluster.training.epoch import EpochProgress, train_epoch
from deepcluster.training.optimizers import Optimization, momenta, restore_momenta


def carry_out(rank: int, work: str, folder: str, port: int) -> None:
    """Join the other process, do the work of this name, and leave nothing that runs on."""
    torch.set_num_threads(1)
    gc.disable()  # what leaves the world does not count on a collection that happens to come
    whose = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2}
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in {**whose, **where}.items()})
    with joined("cpu") as world:
        globals()[work](world, folder)
        assert gloo_threads()
    # One that lets go of a tensor while Python ends would abort the process.
    assert not gloo_threads()


def gloo_threads() -> list[str]:
    names = []
    for thread in Path("/proc/self/task").glob("*"):
        with suppress(OSError):  # it has just ended
            names.append((thread / "comm").read_text())
    return [name for name in names if "gloo" in name]


def leave_a_learner(world: World, folder: str) -> None:
    """Learn as torch has it, and drop what has learnt, which refers to itself."""
    DistributedDataParallel(nn.Linear(2, 1))(torch.ones(2, 2)).sum().backward()


def train_an_epoch(world: World, folder: str) -> None:
    """Train two heads one after the other, each process on images of its own."""
    network = build_network("alexnet", "sobel", 64, width=32, generator=generator(0, "network"))
    optimization = Optimization(batch=8)
    trunk_optimizer = optimization.for_trunk(network)
    for epoch in range(2):  # the second head is the one that a stale reducer would miss
        network.head = fresh_head(32, 3 + epoch, generator(0, "head", epoch))
        if epoch == 1 and world.leads:
            save_file(
                {"weight": network.head.weight.detach().clone()}, f"{folder}/fresh.safetensors"
            )
        randomness = generator(0, "images", epoch, world.rank)
        pixels = torch.randint(256, (4, 3, 64, 64), dtype=torch.uint8, generator=randomness)
        labels = torch.tensor([0, 1, 2, 0])
        batches = [Batch(step, pixels, labels, torch.ones(4), 8) for step in (0, 1)]
        train_epoch(
            network,
            batches,
            (trunk_optimizer, optimization.for_head(network)),
            world,
            progress=EpochProgress(),
            dropout_stream=(0, epoch),
        )
    save_file(network.state_dict(), f"{folder}/network-{world.rank}.safetensors")


def carry_a_head(world: World, folder: str) -> None:
    """Train a head, carry it over to renamed clusters, and train on."""
    network = build_network("alexnet", "sobel", 64, width=32, generator=generator(0, "network"))
    optimization = Optimization(batch=8, head="matched", head_momentum=0.5)
    trunk_optimizer = optimization.for_trunk(network)
    course = Course(RunFolder(Path(folder)), network, trunk_optimizer, world, keeps_head=True)
    labels = torch.tensor([0, 1, 2, 0])
    kept = {}
    for epoch in range(2):
        head = fresh_head(32, 3, generator(0, "head", epoch))
        if epoch == 1 and world.leads:
            last = network.head.weight.detach().clone()
            save_file({"weight": last}, f"{folder}/last.safetensors")
        carry_over(course, head, labels)
        course.labels = labels.numpy()
        kept["start"] = head.weight.detach().clone()
        network.head = head
        head_optimizer = optimization.for_head(network)
        restore_momenta(head_optimizer, course.head_momenta)
        randomness = generator(0, "images", epoch, world.rank)
        pixels = torch.randint(256, (4, 3, 64, 64), dtype=torch.uint8, generator=randomness)
        batches = [Batch(step, pixels, labels, torch.ones(4), 8) for step in (0, 1)]
        optimizers = (trunk_optimizer, head_optimizer)
        train_epoch(
            network, batches, optimizers, world, progress=EpochProgress(), dropout_stream=(0, epoch)
        )
        course.head_momenta = momenta(head_optimizer)
        labels = (labels + 2) % 3  # the same clusters under other names
    kept |= {"weight": network.head.weight.detach(), **momenta(head_optimizer)}
    save_file(kept, f"{folder}/carried-{world.rank}.safetensors")


def mean_of_labelled(world: World, folder: str) -> None:
    """The means of eleven rows by label, of which one label has none."""
    rows = torch.randn(11, 3, generator=generator(0, "rows"))
    labels = torch.tensor([0, 1, 3, 0, 1, 3, -1, 1, 0, 3, 3])
    share = slice(world.share(11).start, world.share(11).stop)
    means = means_of_labelled(rows[share], labels[share], 4, world, generator(0, "filling"))
    save_file({"means": means}, f"{folder}/means-{world.rank}-of-{world.size}.safetensors")


class PlainNetwork(nn.Module):
    """A trunk and a head in which no image depends on the others of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 16))
        self.head = nn.Linear(16, 4)
        randomness = generator(0, "plain")
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.1, generator=randomness)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.trunk(images).relu())


def train_without_batch_norm(world: World, folder: str) -> None:
    """Take four steps on batches of seven, which two processes share as three and four."""
    network = PlainNetwork()
    optimization = Optimization(batch=7)
    randomness = generator(0, "images")
    batches = []
    for step in range(4):
        pixels = torch.randint(256, (7, 3, 8, 8), dtype=torch.uint8, generator=randomness)
        labels = torch.randint(4, (7,), generator=randomness)
        weights = torch.rand(7, generator=randomness)
        share = slice(world.share(7).start, world.share(7).stop)
        batches.append(Batch(step, pixels[share], labels[share], weights[share], 7))
    optimizers = (optimization.for_trunk(network), optimization.for_head(network))
    train_epoch(
        network, batches, optimizers, world, progress=EpochProgress(), dropout_stream=(0, 0)
    )
    save_file(network.state_dict(), f"{folder}/plain-{world.rank}-of-{world.size}.safetensors")
