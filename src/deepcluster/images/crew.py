"""Processes that decode files: a file on which a decoder crashes, or never ends, costs itself only.

They also leave the interpreter's lock behind, which on many cores is what threads wait for. Each is
a Python of its own (not a fork, which beside torch's threads and a GPU may hang), is sent the bytes
of one file at a time and answers with the verdict and the pixels. It ends when its input does, so
that none is left behind, however this process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Generator
from functools import partial
from queue import LifoQueue
from struct import Struct
from typing import IO, Any

import numpy as np

from deepcluster.images.judging import Examine, Judged, Wanted, content_hash, examined
from deepcluster.images.kept import Pixels
from deepcluster.runtime.errors import DeepClusterError

PROCESSES_PAY = 5000
"""Files, below which threads are done before processes have begun."""

SECONDS = 60
"""Of computing, for one file; the clock stands while the file is read, so no disk is too slow."""

MEMORY = 4 * 2**30
"""Bytes, for one file."""

_LENGTHS = Struct(">QQ")
_SERVE = "from deepcluster.images.crew import serve; serve()"
_READY = b"\x06"


@contextlib.contextmanager
def examining(
    wanted: Wanted | None, files: int, workers: int, *, apart: bool = False
) -> Generator[tuple[Examine, int], None, None]:
    """What examines files, for so many of them, and how many threads may ask it at once.

    Args:
        wanted: How pixels are to be kept, if they are.
        files: How many there are.
        workers: How many are to be decoded at a time.
        apart: Take processes for a few files too, because an earlier attempt came to an end that
            a decoder may have caused.
    """
    if not apart and files < PROCESSES_PAY:
        yield partial(examined, wanted), max(1, workers)
        return
    # One more than decode at a time: while it waits for its next file another one computes.
    crew = Crew(wanted, max(1, workers) + 1)
    try:
        yield crew.examine, crew.size
    finally:
        crew.close()


class Crew:
    """The processes. Threads may ask at once, one for each."""

    def __init__(self, wanted: Wanted | None, size: int) -> None:
        self.size = size
        self._wanted = wanted
        self._idle: LifoQueue[_Member] = LifoQueue()
        for _ in range(size):
            self._idle.put(_Member(wanted))

    def examine(self, data: bytes) -> Judged:
        """What the content of a file decides, whatever becomes of the process that decodes it."""
        for attempt in range(2):
            member = self._idle.get()
            try:
                return member.examine(data)
            except (BrokenPipeError, EOFError):
                ended = member.ended()
                member = _Member(self._wanted)
                # Somebody may have ended it, so that one more is asked before the file is blamed.
                if attempt or ended == -signal.SIGVTALRM:
                    return Judged({"hash": content_hash(data), "reason": _why(ended)}, None)
            finally:
                self._idle.put(member)
        raise AssertionError("the second attempt returns")

    def close(self) -> None:
        """End them all; what they are at is dropped."""
        for _ in range(self.size):
            member = self._idle.get()
            member.process.kill()
            member.ended()


class _Member:
    def __init__(self, wanted: Wanted | None) -> None:
        manner = (
            None if wanted is None else [wanted.colour, wanted.how.short_side, wanted.how.shape]
        )
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, json.dumps(manner)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | one | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                process_group=0,  # Ctrl-C is for this process, which then ends the others
            )
        except OSError as error:
            raise DeepClusterError(
                f"no process can be started to decode images ({error.strerror}); try --workers 1"
            ) from error
        self._ready = False

    def examine(self, data: bytes) -> Judged:
        """Send and receive; raises BrokenPipeError or EOFError where the process has ended."""
        to, answers = self.process.stdin, self.process.stdout
        assert to is not None
        assert answers is not None
        if not self._ready:
            if answers.read(1) != _READY:
                raise DeepClusterError(
                    "a process that decodes images ended before it began, with code "
                    f"{self.process.wait()}; see above for why"
                )
            self._ready = True
        to.write(_LENGTHS.pack(len(data), 0))
        to.write(data)
        to.flush()
        text, size = _LENGTHS.unpack(_exactly(answers, _LENGTHS.size))
        about: dict[str, Any] = json.loads(_exactly(answers, text))
        shape = about.pop("shape")
        if shape is None:
            return Judged(about, None)
        return Judged(about, np.frombuffer(_exactly(answers, size), np.uint8).reshape(shape))

    def ended(self) -> int:
        """Wait for its end; gives the exit code, negative for a signal."""
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
        return self.process.wait()


def serve() -> None:
    """Be such a process."""
    import torch

    manner = json.loads(sys.argv[1])
    wanted = None if manner is None else Wanted(manner[0], Pixels("store", *manner[1:]))
    torch.set_num_threads(1)
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    _limit_memory()
    answers.write(_READY)
    answers.flush()
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)  # libraries write of every damaged file; the verdict says it once
    while len(lengths := requests.read(_LENGTHS.size)) == _LENGTHS.size:
        data = _exactly(requests, _LENGTHS.unpack(lengths)[0])
        # The signal ends the process, in the middle of a decoder too.
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        about, pixels = examined(wanted, data, quick=True)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        text = json.dumps(about | {"shape": None if pixels is None else pixels.shape}).encode()
        answers.write(_LENGTHS.pack(len(text), 0 if pixels is None else pixels.nbytes) + text)
        if pixels is not None:
            answers.write(pixels.data)
        answers.flush()


def _limit_memory() -> None:
    """Allow so much more than is in use; a decoder that wants more is refused it."""
    with contextlib.suppress(
        OSError, ValueError
    ):  # not every system counts, or lets itself be told
        with open("/proc/self/statm") as file:  # noqa: PTH123 - no path of the user's
            in_use = int(file.read().split()[0]) * resource.getpagesize()
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY, most))


def _exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _why(ended: int) -> str:
    if ended == -signal.SIGVTALRM:
        return f"takes more than {SECONDS} s to decode"
    if ended == -signal.SIGKILL:
        return "decoding it was killed, as systems do where memory runs out"
    return "the decoder crashed on it"
