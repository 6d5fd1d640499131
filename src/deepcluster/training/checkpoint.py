"""A checkpoint is a directory that is whole or not there.

Written aside, synced, its manifest with the SHA-256 of every file last, then renamed into place.
Tensors are safetensors, the rest is JSON; nothing is a pickle. Hashes are verified on load, and
after writing, before an older checkpoint is given up.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file as load_tensors
from safetensors.torch import save as tensors_as_bytes
from torch import Tensor

from deepcluster.runtime import faults
from deepcluster.runtime.errors import HealthWarning, ResumeError
from deepcluster.runtime.run_folder import storage_errors_named, sync

_MANIFEST = "MANIFEST.json"
_STATE = "state.json"
_FORMAT = 1
_WRITING = ".writing"
_NAME = re.compile(r"epoch-(\d+)-step-(\d+)")


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

    def save(self, epoch: int, step: int, checkpoint: Checkpoint) -> str:
        """Commit a checkpoint; gives the digest that names its content."""
        target = self.folder / f"epoch-{epoch:04d}-step-{step:08d}"
        aside = self.folder / f"{_WRITING}-{target.name}"
        with storage_errors_named(target):
            faults.point("checkpoint.open")
            self._clear_unfinished()
            aside.mkdir(parents=True)
            try:
                digest = self._write(aside, checkpoint)
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
        return digest

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

    def _write(self, aside: Path, checkpoint: Checkpoint) -> str:
        hashes = {_STATE: _write_synced(aside / _STATE, json.dumps(checkpoint.state).encode())}
        for name, tensors in checkpoint.tensors.items():
            faults.point("checkpoint.data")
            on_host = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
            file = f"{name}.safetensors"
            hashes[file] = _write_synced(aside / file, tensors_as_bytes(on_host))
        faults.point("checkpoint.manifest")
        manifest = json.dumps({"format": _FORMAT, "sha256": hashes}, indent=2).encode()
        digest = _write_synced(aside / _MANIFEST, manifest)
        sync(aside)
        return digest

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


def _write_synced(path: Path, content: bytes) -> str:
    """Put the content on the disk; gives its hash."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(content).hexdigest()


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
