"""What was computed of images as they are and flipped, kept on the device while there is room."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor


class View(NamedTuple):
    """An image of a set, as it is or with left and right exchanged."""

    place: int
    is_flipped: bool = False


@dataclass
class Kept:
    """What was computed of views, kept while it fits."""

    room: int
    """Bytes."""
    _kept: dict[View, Tensor] = field(default_factory=dict)

    def get(self, view: View) -> Tensor | None:
        """What is kept of a view."""
        return self._kept.get(view)

    def add(self, view: View, computed: Tensor) -> None:
        """Keep it, if there is room."""
        if view not in self._kept and (size := computed.nbytes) <= self.room:
            self.room -= size
            # A view of a batch would hold all of it.
            self._kept[view] = computed if computed._base is None else computed.clone()


def room_on(device: torch.device) -> int:
    """Half of the memory that is free there, in bytes; of the host's no more than 4 GiB.

    What the host calls free may be more than a container is allowed.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) // 2
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(free // 2, 4 * 2**30)
