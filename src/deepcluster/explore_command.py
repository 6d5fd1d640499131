"""The verb explore: the page of a run as a site of this machine."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from importlib.util import find_spec
from threading import Thread

from deepcluster import flags
from deepcluster.flags import RunPlace
from deepcluster.report.edits import FILE
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.run_folder import finished_run


@dataclass(frozen=True)
class Explore:
    """Serve the page of a run to your browser, on this machine only, until Ctrl-C.

    Search by image, neighbours by click, fewer groups by a slider, names, moves, CSV. Names and
    moves are kept in RUN/explorer.json; neither images nor results are changed.
    """

    run: RunPlace
    """Folder of a finished run, or its name in runs/."""

    port: int = 8765
    """Where to serve; if it is busy, the next free one."""

    device: str = "auto"
    """cpu, cuda, or auto: where searched images are looked at."""


def explore(words: list[str]) -> int:
    """Carry out `deepcluster explore`; gives the exit code."""
    asked = flags.read(Explore, words, "explore")
    if not 1 <= asked.port <= 65_535:
        raise UsageError(f"--port {asked.port}: ports are from 1 to 65535")
    folder = finished_run(asked.run)
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"explore needs {' and '.join(missing)}: pip install 'deepcluster[explore]'"
        )
    display = Display()
    if "images" in folder.closing:  # an imported network has none
        display.say(f"reading what is known of {folder.closing['images']:,} images ...")
    from deepcluster.explorer.exploration import Exploration
    from deepcluster.explorer.pictures import Pictures
    from deepcluster.explorer.query import Query
    from deepcluster.explorer.server import HERE, listening, serve
    from deepcluster.explorer.site import site_of

    exploration = Exploration(folder)
    pictures, query = Pictures(folder), Query(folder, asked.device)
    secret = secrets.token_urlsafe(18)
    with listening(asked.port) as bound:
        port = bound.getsockname()[1]
        if port != asked.port:
            display.say(f"port {asked.port} is busy, so that {port} is used")
        site = site_of(exploration, pictures, query, port, secret, display.say)
        count, groups = len(exploration.view.record.names), len(exploration.view.groups)
        display.say(f"{count:,} images in {groups:,} groups; Ctrl-C ends it. Open this address:")
        display.say(f"http://{HERE}:{port}/{secret}/")

        def prepare() -> None:
            pictures.prepare()
            exploration.prepare()

        # What the first to ask would wait for; a daemon, since it may be left undone.
        Thread(target=prepare, daemon=True).start()
        stopped = serve(site, bound)
    kept = folder.path / FILE
    display.say(f"stopped; names and moves are in {kept}" if kept.exists() else "stopped")
    return 0 if stopped is None else 128 + stopped
