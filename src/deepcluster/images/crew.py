"""Processes that judge files: a file on which a decoder crashes, or never ends, costs itself only.

They also leave the interpreter's lock behind, which on many cores is what threads wait for. Each is
a Python of its own (not a fork, which beside torch's threads and a GPU may hang), is told of some
files at a time, reads them, answers with the verdicts, and puts the pixels into memory that both
share. It ends when its input does, so that none is left behind, however this process ends.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from queue import LifoQueue
from struct import Struct
from typing import IO, Any, BinaryIO, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deepcluster.images import kept
from deepcluster.images.decode import Unusable, unreadable
from deepcluster.images.folder import Extent, Found
from deepcluster.images.judging import Judged, Wanted, content_hash, examined, judged
from deepcluster.images.kept import Pixels
from deepcluster.images.shrink import Room
from deepcluster.images.source import Source
from deepcluster.images.threads import in_order
from deepcluster.images.trays import Counter, Tray, Trays
from deepcluster.runtime.errors import DeepClusterError

PROCESSES_PAY = 5000
"""Files, below which threads are done before processes have begun."""

SECONDS = 60
"""Of computing, for one file; the clock stands while the file is read, so no disk is too slow."""

MEMORY = 4 * 2**30
"""Bytes, for one file."""

_TOGETHER = 16
"""Files that a process is told of at once: telling it of one costs this process as much."""

_AHEAD = 5
"""Such groups for each process that may wait to be asked for, while a store is synced."""

_KEPT = 32 * 2**20
"""Bytes that such a process keeps for what comes; the most that glibc allows."""

_HELD = 16
"""Such groups of files that whoever asked may hold, before pixels take the slower way."""

_LENGTHS = Struct(">QQ")
_SERVE = "from deepcluster.images.crew import serve; serve()"
_READY = b"\x06"


@contextlib.contextmanager
def judging(
    source: Source,
    found: Sequence[Found],
    wanted: Wanted,
    workers: int,
    *,
    apart: bool = False,
) -> Generator[Iterator[Judged], None, None]:
    """What becomes of the files, in their order, read and decoded ahead.

    Args:
        source: Where the files are.
        found: Which of them.
        wanted: How they are read, and pixels are to be kept.
        workers: How many are to be decoded at a time.
        apart: Take processes for a few files too, because an earlier attempt came to an end that
            a decoder may have caused.
    """
    if not apart and len(found) < PROCESSES_PAY:
        judge = partial(judged, source.open, partial(examined, wanted))
        with contextlib.closing(in_order(judge, found, workers)) as results:
            yield results
        return
    crew = Crew(wanted, max(1, workers))
    judge_all = partial(crew.judge, source)
    together = min(_TOGETHER, 1 + len(found) // (4 * crew.size))
    parts = (found[first : first + together] for first in range(0, len(found), together))
    try:
        # While processes compute, other threads have the next files for them ready.
        threads = crew.size + 1 + crew.size // 4
        ahead = _AHEAD * (crew.size + 1)
        with contextlib.closing(in_order(judge_all, parts, threads, ahead)) as results:
            try:
                yield chain.from_iterable(results)
            finally:
                crew.stop()
    finally:
        crew.close()


class _Readable(Protocol):
    """What of a source is asked here."""

    def open(self, path: str) -> BinaryIO: ...

    def extent(self, path: str) -> Extent | None: ...


class _Content(NamedTuple):
    """One file that is in memory."""

    data: bytes

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.data)

    def extent(self, path: str) -> None:
        return None


class Crew:
    """The processes. Threads may ask at once; those without one wait for it, their files ready."""

    def __init__(self, wanted: Wanted, size: int) -> None:
        self.size = size
        self._wanted = wanted
        self._stopped = False
        # Being filled, waiting to be asked for, and in the hands of who asked.
        trays = 0 if wanted.colour is None else (_AHEAD + 2) * (size + 1) + _HELD
        self._trays = Trays(trays)
        self._idle: LifoQueue[_Member] = LifoQueue()
        for _ in range(size):
            self._idle.put(_Member(wanted, self._trays))

    def judge(self, source: _Readable, files: Sequence[Found]) -> list[Judged]:
        """What becomes of files, whatever becomes of the process that decodes them."""
        answer = self._answer(_requested(source, files, self._trays.take()))
        if answer is None:
            return [self._judge_alone(source, one) for one in files]
        return answer.judged()

    def _answer(self, request: _Request) -> _Answer | None:
        """What a process says, or None: it has ended with one of the files."""
        member = self._idle.get()
        try:
            return _NOTHING if self._stopped else member.answer(request)
        except (BrokenPipeError, EOFError):
            member.ended()
            member = _Member(self._wanted, self._trays)
            return None
        finally:
            self._idle.put(member)

    def examine(self, data: bytes) -> Judged:
        """The same of one file's content, which has no name."""
        return self._judge_alone(_Content(data), Found("", len(data), 0))

    def _judge_alone(self, source: _Readable, found: Found) -> Judged:
        """The same of one file, among those with which a process has ended."""
        for attempt in range(2):
            request = _requested(source, [found], self._trays.take())
            member = self._idle.get()
            try:
                return member.answer(request).judged()[0]
            except (BrokenPipeError, EOFError):
                ended = member.ended()
                member = _Member(self._wanted, self._trays)
                # Somebody may have ended it, so that one more is asked before the file is blamed.
                if attempt or ended == -signal.SIGVTALRM:
                    why = partial(_blamed, _why(ended))
                    return judged(source.open, why, found)
            finally:
                self._idle.put(member)
        raise AssertionError("the second attempt returns")

    def stop(self) -> None:
        """Begin nothing more: who waits for a process is told of no files."""
        self._stopped = True

    def close(self) -> None:
        """End them all; what they are at is dropped."""
        for _ in range(self.size):
            member = self._idle.get()
            member.process.kill()
            member.ended()
        self._trays.close()


class _Member:
    def __init__(self, wanted: Wanted, trays: Trays) -> None:
        manner = [wanted.colour, asdict(wanted.how), trays.descriptor]
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        # The memory of one picture serves for the next, instead of going back to the system.
        keep = {"MALLOC_TRIM_THRESHOLD_": str(_KEPT), "MALLOC_MMAP_THRESHOLD_": str(_KEPT)}
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, json.dumps(manner)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ
                | one
                | keep
                | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=[] if trays.descriptor is None else [trays.descriptor],
                process_group=0,  # Ctrl-C is for this process, which then ends the others
            )
        except OSError as error:
            raise DeepClusterError(
                f"no process can be started to decode images ({error.strerror}); try --workers 1"
            ) from error
        self._ready = False

    def answer(self, request: _Request) -> _Answer:
        """Send and receive; raises BrokenPipeError or EOFError where the process has ended."""
        to, answers = self.process.stdin, self.process.stdout
        if self.process.returncode is not None:  # no other could be started in its place
            raise BrokenPipeError
        assert to is not None
        assert answers is not None
        if not self._ready:
            if answers.read(1) != _READY:
                raise DeepClusterError(
                    "a process that decodes images ended before it began, with code "
                    f"{self.process.wait()}; see above for why"
                )
            self._ready = True
        to.write(_LENGTHS.pack(len(request.text), 0) + request.text)
        for content in request.contents:
            to.write(content)
        to.flush()
        told, size = _LENGTHS.unpack(_exactly(answers, _LENGTHS.size))
        text = _exactly(answers, told)
        if request.tray is None or size:
            return _Answer(text, np.frombuffer(_exactly(answers, size), np.uint8))
        return _Answer(text, np.asarray(request.tray))

    def ended(self) -> int:
        """Wait for its end; gives the exit code, negative for a signal."""
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
        return self.process.wait()


def serve() -> None:
    """Be such a process."""
    colour, how, descriptor = json.loads(sys.argv[1])
    wanted = Wanted(colour, Pixels(**how))
    if wanted.colour is not None:
        kept.load()
    counter = Counter(descriptor)
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    _limit_memory()
    gc.freeze()  # what is loaded by now stays, and need not be looked through again and again
    answers.write(_READY)
    answers.flush()
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)  # libraries write of every damaged file; the verdict says it once
    while len(lengths := requests.read(_LENGTHS.size)) == _LENGTHS.size:
        rows, pictures = [], []
        tray, asked = json.loads(_exactly(requests, _LENGTHS.unpack(lengths)[0]))
        counter.begin(tray)
        on_tray = True
        for found, extent, size in asked:
            data = _exactly(requests, size)
            opened = partial(_opened, None if extent is None else Extent(*extent), data)
            examine = partial(_examined_in_time, wanted, counter.room)
            row, pixels = judged(opened, examine, Found(*found))
            rows.append(row | {"shape": None if pixels is None else pixels.shape})
            if pixels is not None:
                pictures.append(pixels)
                on_tray = counter.put(pixels)  # one that is full stays full
        if on_tray:
            pictures = []
        text = json.dumps(rows).encode()
        answers.write(_LENGTHS.pack(len(text), sum(one.nbytes for one in pictures)) + text)
        for one in pictures:
            answers.write(one.data)
        answers.flush()


class _Request(NamedTuple):
    """Files to be judged, as a process is told of them."""

    text: bytes
    contents: list[bytes]
    tray: Tray | None


class _Answer(NamedTuple):
    """What became of them."""

    text: bytes
    pixels: NDArray[np.uint8]

    def judged(self) -> list[Judged]:
        """Each file's row with its own of the pixels."""
        return list(_parts(json.loads(self.text), self.pixels))


_NOTHING = _Answer(b"[]", np.empty(0, np.uint8))


def _requested(source: _Readable, files: Sequence[Found], tray: Tray | None) -> _Request:
    asked = [_asked(source, one) for one in files]
    told = [(one.found, one.extent, len(one.data)) for one in asked]
    text = json.dumps([None if tray is None else tray.at, told]).encode()
    return _Request(text, [one.data for one in asked], tray)


class _Asked(NamedTuple):
    found: Found
    extent: Extent | None
    data: bytes
    """What is nowhere on the disk."""


def _asked(source: _Readable, found: Found) -> _Asked:
    extent = None if found.reason is not None else source.extent(found.path)
    if extent is not None or found.reason is not None:
        return _Asked(found, extent, b"")
    try:
        with source.open(found.path) as file:
            return _Asked(found, None, file.read())
    except OSError as error:
        return _Asked(found._replace(reason=unreadable(error)), None, b"")
    except Unusable as unusable:
        return _Asked(found._replace(reason=unusable.reason), None, b"")


def _opened(extent: Extent | None, data: bytes, _path: str) -> BinaryIO:
    return io.BytesIO(data if extent is None else extent.read())


def _examined_in_time(wanted: Wanted, room: Room, data: bytes) -> Judged:
    # The signal ends the process, in the middle of a decoder too.
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        return examined(wanted, data, room)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _parts(rows: list[dict[str, Any]], pixels: NDArray[np.uint8]) -> Iterator[Judged]:
    """Each row with its own of the pixels."""
    first = 0
    for row in rows:
        shape = row.pop("shape")
        if shape is None:
            yield Judged(row, None)
        else:
            last = first + math.prod(shape)
            yield Judged(row, pixels[first:last].reshape(shape))
            first = last


def _blamed(reason: str, data: bytes) -> Judged:
    return Judged({"hash": content_hash(data), "reason": reason}, None)


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
