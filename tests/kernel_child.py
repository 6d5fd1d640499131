"""Kernels beside their plain version, in a Python of its own: Triton reads its settings once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)


def says_equal(*words: str, **environment: str) -> None:
    """Assert that Python, called with these words, prints `equal`."""
    result = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([_HERE, *sys.path]), **environment},
        capture_output=True,
        text=True,
    )
    assert result.stdout.strip() == "equal", result.stderr
