"""The folder of a study while a command works in it: held by one command, and of one study."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import deepcluster
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import DeepClusterError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.world import World, joined
from deepcluster.studies.outcome import refuse_foreign

_NAMED = "study.json"


@contextmanager
def claimed(out: Path, name: str, device: str) -> Iterator[tuple[World, Display]]:
    """The processes at work, and whom they tell; Ctrl-C is noticed.

    Args:
        out: The folder, which the leading process holds.
        name: The study's; a folder of another one is refused.
        device: cpu, cuda, or auto.
    """
    with (
        interruption.noticed(),
        joined(device) as world,
        Display(speaks=world.leads).shown() as display,
        ExitStack() as held,
    ):
        refuse_foreign(out, name)
        begun = not out.exists()
        world.wait()  # all have looked before the leader writes
        if world.leads:
            folder = RunFolder(out)
            held.enter_context(folder.locked())
            said = {"study": name, "deepcluster": deepcluster.__version__}
            folder.write(_NAMED, json.dumps(said) + "\n")
        try:
            yield world, display
        except DeepClusterError:
            if world.leads and begun:
                _leave_no_empty(out)
            raise


def _leave_no_empty(out: Path) -> None:
    """Remove a folder that a refused command has made and put nothing into."""
    ours = {_NAMED, "lock"}
    if {one.name for one in out.iterdir()} <= ours:
        for name in ours:
            (out / name).unlink(missing_ok=True)
        out.rmdir()
