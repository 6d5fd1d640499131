"""Files as torch 0.3 under Python 2 wrote them, made by hand."""

from __future__ import annotations

import io
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
SYSTEM = {
    "protocol_version": PROTOCOL,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}


class Storage:
    """Stands for the memory of a tensor while it is pickled."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.values = tensor.detach().float().contiguous()


class Python2Pickler(pickle._Pickler):
    """Text is bytes, dictionaries in order are lists of pairs, tensors are rebuilt the old way."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012 - as in the class it extends

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=2)
        self.storages: dict[str, Storage] = {}

    def save_str(self, text: str) -> None:
        data = text.encode("latin1")
        self.write(pickle.SHORT_BINSTRING + bytes([len(data)]) + data)
        self.memoize(text)

    dispatch[str] = save_str

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, torch.Tensor):
            storage = Storage(thing)
            shape = storage.values
            return torch._utils._rebuild_tensor, (storage, 0, tuple(shape.shape), shape.stride())
        if isinstance(thing, OrderedDict):
            return OrderedDict, ([[key, value] for key, value in thing.items()],)
        return NotImplemented

    def persistent_id(self, thing: Any) -> Any:
        if not isinstance(thing, Storage):
            return None
        key = str(94000000000000 + len(self.storages))
        self.storages[key] = thing
        return ("storage", torch.FloatStorage, key, "cuda:0", thing.values.numel(), None)


def save(content: Any, path: Path) -> None:
    """Write the content in the layout of torch before 1.6."""
    file = io.BytesIO()
    for part in (MAGIC, PROTOCOL, SYSTEM):
        pickle.dump(part, file, protocol=2)
    pickler = Python2Pickler(file)
    pickler.dump(content)
    pickle.dump(sorted(pickler.storages), file, protocol=2)
    for key in sorted(pickler.storages):
        values = pickler.storages[key].values
        file.write(struct.pack("<q", values.numel()) + values.numpy().tobytes())
    path.write_bytes(file.getvalue())
