"""A checkpoint is a directory that is whole or not there.

Written aside, synced, its manifest with the SHA-256 of every file last, then renamed into place.
Tensors are safetensors, the rest is JSON; nothing is a pickle. Hashes are verified on load, and
after writing, before an older checkpoint is given up. All of that happens in the background, from a
copy in the host's memory: the disk is waited for only by the next save, and at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file as load_tensors
from torch import Tensor

from deepcluster.runtime import faults
from deepcluster.runtime.errors import HealthWarning, ResumeError
from deepcluster.runtime.run_folder import storage_errors_named, sync

_MANIFEST = "MANIFEST.json"
_STATE = "state.json"
_FORMAT = 1
_WRITING = ".writing"
_NAME = re.compile(r"epoch-(\d+)-step-(\d+)")
_KINDS = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What safetensors calls the kinds of numbers."""


class CheckpointDamaged(HealthWarning):
    """A checkpoint does not match its hashes; the one before is used."""

    name = "checkpoint-damaged"


@dataclass(frozen=True)
class Checkpoint:
    """Groups of named tensors, and a small state as JSON."""

    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]
    name: str = ""
    digest: str = ""  # of the manifest: names the content


class Checkpoints:
    """The checkpoints of one run, the newest first to be read and the oldest first to go."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep
        self._saving: Future[None] | None = None

    def save(self, epoch: int, step: int, checkpoint: Checkpoint) -> None:
        """Copy the tensors as they are now, and commit them in the background, one save at a time.

        Raises what the save before failed with.
        """
        self.wait()
        copied = {
            group: {name: _on_host(tensor) for name, tensor in tensors.items()}
            for group, tensors in checkpoint.tensors.items()
        }
        name = f"epoch-{epoch:04d}-step-{step:08d}"
        self._saving = _begun(partial(self._commit, name, replace(checkpoint, tensors=copied)))

    @property
    def busy(self) -> bool:
        """Whether a save is still being written."""
        return self._saving is not None and not self._saving.done()

    def wait(self) -> None:
        """Return when the save under way is committed, or raise what it failed with, once."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()

    def _commit(self, name: str, checkpoint: Checkpoint) -> None:
        target = self.folder / name
        aside = self.folder / f"{_WRITING}-{name}"
        with storage_errors_named(target):
            faults.point("checkpoint.open")
            self._clear_unfinished()
            aside.mkdir(parents=True)
            try:
                self._write(aside, checkpoint)
                faults.point("checkpoint.rename")
                if target.exists():  # a damaged one of the same name, or the run was taken back
                    shutil.rmtree(target)
                aside.replace(target)
            except OSError:
                shutil.rmtree(aside, ignore_errors=True)
                raise
            sync(self.folder)
        _verified(target)
        faults.point("checkpoint.prune")
        for old in self._committed()[: -self.keep]:
            shutil.rmtree(old)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole; a damaged one is named and passed over."""
        self._clear_unfinished()
        found = self._committed()
        for path in reversed(found):
            try:
                return _loaded(path)
            except ResumeError as error:
                warnings.warn(CheckpointDamaged(f"{error}; using the one before"), stacklevel=2)
        if found:
            raise ResumeError(
                f"none of the {len(found)} checkpoints in {self.folder} is whole; "
                "start again with --fresh"
            )
        return None

    def drop_after(self, name: str) -> None:
        """Remove the checkpoints newer than the named one: damaged, or of a course not taken."""
        for path in self._committed():
            if not name or _moment(path.name) > _moment(name):
                shutil.rmtree(path)

    def _write(self, aside: Path, checkpoint: Checkpoint) -> None:
        hashes = {_STATE: _write_synced(aside / _STATE, json.dumps(checkpoint.state).encode())}
        for name, tensors in checkpoint.tensors.items():
            faults.point("checkpoint.data")
            file = f"{name}.safetensors"
            hashes[file] = _write_tensors(aside / file, tensors)
        faults.point("checkpoint.manifest")
        manifest = json.dumps({"format": _FORMAT, "sha256": hashes}, indent=2).encode()
        _write_synced(aside / _MANIFEST, manifest)
        sync(aside)

    def _committed(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        found = (path for path in self.folder.iterdir() if _NAME.fullmatch(path.name))
        return sorted(found, key=lambda path: _moment(path.name))

    def _clear_unfinished(self) -> None:
        for path in self.folder.glob(f"{_WRITING}-*"):
            shutil.rmtree(path, ignore_errors=True)  # another process may be at it too


def _moment(name: str) -> tuple[int, int]:
    """The epoch and the step that a checkpoint's name tells."""
    match = _NAME.fullmatch(name)
    assert match is not None
    return int(match[1]), int(match[2])


def _on_host(tensor: Tensor) -> Tensor:
    """A copy in the host's memory; a GPU's goes to locked pages, which is several times faster."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    return copy.copy_(tensor.detach())


def _begun(work: Callable[[], None]) -> Future[None]:
    """The work, begun in a thread that does not keep an impatient user's process alive."""
    future: Future[None] = Future()

    def carry_out() -> None:
        try:
            work()
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=carry_out, name="save", daemon=True).start()
    return future


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Put tensors on the disk as safetensors; gives the file's hash.

    The library's own writers either hold up all threads while they copy, or hide why the system
    refused a write.
    """
    kinds = list(_KINDS)  # the widest numbers first, so that all of them are aligned
    ordered = dict(sorted(tensors.items(), key=lambda item: kinds.index(item[1].dtype)))
    about = {}
    end = 0
    for name, tensor in ordered.items():
        begin, end = end, end + tensor.nbytes
        kind, shape = _KINDS[tensor.dtype], [*tensor.shape]
        about[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    header = json.dumps(about).encode()
    header += b" " * (-len(header) % 8)
    numbers = (tensor.reshape(-1).view(torch.uint8).numpy().data for tensor in ordered.values())
    return _write_synced(path, len(header).to_bytes(8, "little"), header, *numbers)


def _write_synced(path: Path, *parts: bytes | memoryview) -> str:
    """Put the parts on the disk, one after the other; gives their hash."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for part in parts:
            file.write(part)
            digest.update(part)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _verified(path: Path) -> tuple[str, list[str]]:
    """The manifest's digest and its files, if every file has the hash that the manifest gives."""
    try:
        manifest = (path / _MANIFEST).read_bytes()
        content = json.loads(manifest)
        if content["format"] != _FORMAT:
            raise ValueError(f"its manifest is of format {content['format']}")
        hashes: dict[str, str] = content["sha256"]
        if _STATE not in hashes:
            raise ValueError(f"its manifest does not name {_STATE}")
        for name, expected in hashes.items():
            if Path(name).name != name:
                raise ValueError(f"{name!r} is no file name")
            with (path / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                    raise ValueError(f"{name} does not have the hash that its manifest gives")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResumeError(f"checkpoint {path} is damaged ({error})") from error
    return hashlib.sha256(manifest).hexdigest(), list(hashes)


def _loaded(path: Path) -> Checkpoint:
    digest, names = _verified(path)
    tensors = {Path(name).stem: load_tensors(path / name) for name in names if name != _STATE}
    state = json.loads((path / _STATE).read_text())
    return Checkpoint(tensors, state, path.name, digest)
