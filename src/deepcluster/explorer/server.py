"""Serving on this machine: the first free port, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Iterator

import uvicorn

from deepcluster.explorer.guard import App
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import UsageError

HERE = "127.0.0.1"
_TRIED = 100  # ports from the one that is asked for


def listening(port: int) -> socket.socket:
    """A socket of this machine alone, at the port or the next free one."""
    for number in range(port, min(port + _TRIED, 65_536)):
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((HERE, number))
            bound.listen(64)
        except OSError as error:
            bound.close()
            if error.errno != errno.EADDRINUSE:
                reason = (error.strerror or str(error)).lower()
                raise UsageError(
                    f"--port {port} cannot be used: {reason}; try --port 8765"
                ) from error
            continue
        return bound
    raise UsageError(f"--port {port}: no port from there on is free; name another one")


class _Server(uvicorn.Server):
    """Ends when the program is asked to; what signals mean is decided in one place."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `interruption`."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Whether to end, asked ten times a second."""
        return await super().on_tick(counter) or interruption.asked() is not None


def serve(app: App, bound: socket.socket) -> signal.Signals | None:
    """Answer until asked to stop; gives the signal by which."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",  # what goes wrong is said in a sentence by the site
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        http="h11",
        ws="none",
        lifespan="on",
        limit_concurrency=200,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=2,
    )
    with interruption.noticed():
        asyncio.run(_Server(config).serve([bound]))
        return interruption.asked()
