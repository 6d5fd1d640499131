"""What a process of a test does together with another one."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist

from deepcluster.networks import build_network, fresh_head
from deepcluster.pseudolabels import Batch
from deepcluster.runtime.seeds import generator
from deepcluster.runtime.world import World
from deepcluster.training.epoch import EpochProgress, train_epoch
from deepcluster.training.optimizers import Optimization


def train_an_epoch(rank: int, folder: str) -> None:
    """Train a fresh head, twice over, each process on images of its own."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    world = World(rank, 2)
    network = build_network("alexnet", "sobel", 64, width=32, generator=generator(0, "network"))
    optimization = Optimization(batch=8)
    trunk_optimizer = optimization.for_trunk(network)
    for epoch in range(2):  # the second head is the one that a stale reducer would miss
        network.head = fresh_head(32, 3 + epoch, generator(0, "head", epoch))
        if epoch == 1 and rank == 0:
            np.save(f"{folder}/fresh.npy", network.head.weight.detach().numpy())
        randomness = generator(0, "images", epoch, rank)
        pixels = torch.randint(256, (4, 3, 64, 64), dtype=torch.uint8, generator=randomness)
        batches = [
            Batch(step, pixels, torch.tensor([0, 1, 2, 0]), torch.ones(4), 8) for step in (0, 1)
        ]
        train_epoch(
            network,
            batches,
            (trunk_optimizer, optimization.for_head(network)),
            world,
            progress=EpochProgress(),
            dropout_stream=(0, epoch),
        )
    np.save(f"{folder}/head-{rank}.npy", network.head.weight.detach().numpy())
    dist.destroy_process_group()
