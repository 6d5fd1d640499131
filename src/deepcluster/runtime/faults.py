"""Named points at which a test can make a run fail, to prove that nothing is lost.

`DEEPCLUSTER_FAULT=train.step:kill@7` ends the process with SIGKILL when `train.step` is reached for
the seventh time. Without the variable a point costs one comparison.
"""

from __future__ import annotations

import errno
import os
import signal
import time

POINTS = (
    "pack.block",
    "tile.image",
    "index.write",
    "features.batch",
    "features.flush",
    "whiten",
    "kmeans.iteration",
    "train.step",
    "checkpoint.open",
    "checkpoint.data",
    "checkpoint.manifest",
    "checkpoint.rename",
    "checkpoint.prune",
    "journal.write",
    "closing.write",
)

_asked = os.environ.get("DEEPCLUSTER_FAULT", "")
_reached = 0


def ask(fault: str) -> None:
    """Ask for a fault in this process, as the variable does."""
    global _asked, _reached
    _asked, _reached = fault, 0


def point(name: str) -> None:
    """Do what the environment asks to happen here; usually nothing."""
    if not _asked:
        return
    global _reached
    where, _, what = _asked.partition(":")
    if where not in POINTS:
        raise ValueError(f"no fault point {where!r}; there are {', '.join(POINTS)}")
    if where != name:
        return
    action, _, at = what.partition("@")
    _reached += 1
    if _reached != int(at or 1):
        return
    match action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "term":
            os.kill(os.getpid(), signal.SIGTERM)
        case "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        case "no-space":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        case "slow":
            time.sleep(60)
        case _:
            raise ValueError(f"no fault action {action!r}")
