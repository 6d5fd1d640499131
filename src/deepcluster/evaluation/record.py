"""The file that an evaluation leaves beside the run: the same form for every protocol."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from pathlib import Path
from typing import Any

import torch

import deepcluster
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.circumstances import commit
from deepcluster.evaluation.labelled_images import remarks_on
from deepcluster.runtime.run_folder import RunFolder, sha256

_WEIGHTS = ("model.safetensors", "groups.safetensors")


def place_of(out: Path | None, folder: RunFolder | None) -> RunFolder:
    """Where results go: as named, else beside the run, else evaluations."""
    return RunFolder(
        out or (Path("evaluations") if folder is None else folder.path / "evaluations")
    )


def conditions(bench: Bench) -> dict[str, Any]:
    """By what the figures were computed."""
    device = bench.world.device
    return {
        "precision": "float32" if bench.autocast is None else "bfloat16",
        "versions": {
            "deepcluster": deepcluster.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        },
    }


def write(
    target: RunFolder,
    name: str,
    protocol: str,
    folder: RunFolder | None,
    about: dict[str, Any],
    bench: Bench,
) -> None:
    """Write what an evaluation came to, and say of which images it is not.

    The same evaluation has the same name.

    Args:
        target: The folder of results.
        name: What the network is called.
        protocol: By which it was judged.
        folder: The run, where it is one.
        about: network, data, settings (with what those came to that were not given) and result.
        bench: By what it was computed.
    """
    record = {
        "format": 1,
        "protocol": protocol,
        "run": name,
        "trained": None if folder is None else folder.settings["effective"],
        "weights": None if folder is None else _weights(folder),
        **about,
        "commit": commit(),
        **conditions(bench),
    }
    same = {key: record.get(key) for key in ("run", "network", "settings", "precision")}
    same["data"] = _named(record["data"])
    digest = hashlib.blake2b(json.dumps(same, sort_keys=True).encode(), digest_size=4).hexdigest()
    who = "" if folder is not None else re.sub(r"[^\w.-]+", "-", name) + "-"
    target.write(f"{who}{protocol}-{digest}.json", json.dumps(record, indent=2) + "\n")
    for remark in remarks_on(record["data"]):
        bench.display.say(remark)
    bench.display.say(f"written to {target.path}/{who}{protocol}-{digest}.json")


def _named(data: dict[str, Any]) -> dict[str, Any]:
    """What names the images; not the words that were found for the bad ones."""
    words = ("left_out_first", "unusable")
    kept = ((key, value) for key, value in data.items() if key not in words)
    return {key: _named(value) if isinstance(value, dict) else value for key, value in kept}


def _weights(folder: RunFolder) -> dict[str, str]:
    """The SHA-256 of what the run has learnt; the untrained network is its seed."""
    files = (folder.path / name for name in _WEIGHTS)
    return {file.name: sha256(file) for file in files if file.is_file()}
