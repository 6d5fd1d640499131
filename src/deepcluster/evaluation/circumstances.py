"""Where and by which code figures came about: what is needed to get them again."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch

import deepcluster

COMMIT = "DEEPCLUSTER_COMMIT"
"""Variable of the environment that names the commit where the code lies in no repository."""


@cache
def circumstances() -> dict[str, Any]:
    """Commit, versions and device of this process."""
    gpu = torch.cuda.is_available()
    return {
        "commit": commit(),
        "versions": {
            "deepcluster": deepcluster.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "device": torch.cuda.get_device_name() if gpu else f"{platform.machine()} CPU",
    }


def commit() -> str | None:
    """The commit of this code, where it lies in a repository of its own."""
    here = Path(deepcluster.__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(here), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return os.environ.get(COMMIT)
