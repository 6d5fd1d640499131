"""Reading images beside what a user would do instead, as ratios in one run.

    python benchmarks/images.py [--images FOLDER] [--out FILE] [--computing | --check | --gpu]

FOLDER holds photographs of about 500 x 375 in JPEG (some are made up if it is not given). Where
there is a GPU, crops from a store that lives on it are measured too. With --computing only packing
is measured, in milliseconds of computing an image, all processes together: what others do on the
machine meanwhile changes it little, where it changes images a second at will. With --check only
`deepcluster check` is measured, on many small files; with --gpu only crops made on the GPU.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
import torchvision
from other_decoders import CORES, PEERS, started
from PIL import Image
from torchvision.transforms import v2

from deepcluster.images import crew
from deepcluster.images.kept import Pixels
from deepcluster.images.on_device import DeviceImages
from deepcluster.images.packing import pack
from deepcluster.images.source import Folder
from deepcluster.images.store import Contents, Store
from deepcluster.images.stored import StoredImages

REPEATS = 3
PACKINGS = 8  # the machine varies by a tenth from minute to minute, more than they differ by
MANY = 9_000  # so many that packing is by processes
ROUNDS = 5  # of --computing


def rate(work: Callable[[], int]) -> float:
    """Images a second, the best of a few runs: the machine is shared, and noise only slows."""
    best = 0.0
    for _ in range(REPEATS):
        begun = time.perf_counter()
        count = work()
        best = max(best, count / (time.perf_counter() - begun))
    return best


def photographs(folder: Path, count: int) -> None:
    randomness = np.random.default_rng(0)
    for number in range(count):
        rough = randomness.integers(0, 256, (24, 32, 3)).astype(np.uint8)
        image = Image.fromarray(rough).resize((500, 375), Image.Resampling.BICUBIC)
        noise = randomness.normal(0, 8, (375, 500, 3))
        pixels = (np.asarray(image) + noise).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:05d}.jpg", quality=90)


def copies(folder: Path, many: Path, count: int) -> list[str]:
    """The photographs again and again, until there are so many, in a folder of their own."""
    many.mkdir()
    files = sorted(folder.iterdir())
    for number in range(-(-count // len(files)) * len(files)):
        file = files[number % len(files)]
        shutil.copy(file, many / f"{number // len(files):03d}-{file.name}")
    return [str(path) for path in sorted(many.iterdir())]


def packing(folder: Path, scratch: Path) -> list[str]:
    """Round by round, ours and each of the others, since the machine may be in use."""
    many = scratch / "many"
    paths = copies(folder, many, MANY)
    pools, lines = started(paths)
    best: Counter[str] = Counter()
    for _ in range(PACKINGS):
        for colour in ("grey", "rgb"):
            best[colour] = max(best[colour], packed(many, scratch / "store", colour))
        for name, pool in pools.items():
            begun = time.perf_counter()
            list(pool.map(PEERS[name], paths, chunksize=16))
            best[name] = max(best[name], len(paths) / (time.perf_counter() - begun))
    for pool in pools.values():
        pool.shutdown()
    for colour in ("grey", "rgb"):
        lines += [
            f"| packing to 256 px, {colour}, verdict, hash, sync | {best[colour]:,.0f} images/s | "
            f"{name}, decode and resize alone, {CORES} processes: {best[name]:,.0f} | "
            f"{best[colour] / best[name]:.2f} |"
            for name in pools
        ]
    shutil.rmtree(many)
    return lines


def packed(folder: Path, store: Path, colour: str) -> float:
    """Images a second in the second half: the others have their processes from the start, too."""
    shutil.rmtree(store, ignore_errors=True)
    times: list[tuple[float, int]] = []
    source = Folder(folder)
    pack(
        source,
        store,
        colour,  # type: ignore[arg-type]
        Pixels(),
        CORES,
        lambda done, total: times.append((time.perf_counter(), done)),
    )
    (begun, first), (ended, last) = times[len(times) // 2], times[-1]
    return (last - first) / (ended - begun)


def computing(folder: Path, scratch: Path) -> list[str]:
    """Milliseconds of computing an image, ours and each of the others in turn, for some rounds."""
    paths = copies(folder, scratch / "many", MANY // 3)
    pools, lines = started(paths)
    spent: dict[str, list[float]] = {name: [] for name in ("grey", "rgb", *pools)}
    crew.PROCESSES_PAY = 1
    for _ in range(ROUNDS):
        for colour in ("grey", "rgb"):
            spent[colour].append(computed_by_packing(scratch / "many", scratch / "store", colour))
        for name, pool in pools.items():
            begun = computed()
            list(pool.map(PEERS[name], paths, chunksize=16))
            spent[name].append((computed() - begun) / len(paths))
    for pool in pools.values():
        pool.shutdown()
    middle = {name: statistics.median(each) * 1000 for name, each in spent.items()}
    for name, each in spent.items():
        rounds = ", ".join(f"{one * 1000:.2f}" for one in sorted(each))
        what = f"packing, {name}" if name in ("grey", "rgb") else f"{name}, decode and resize alone"
        ratios = [f"{middle[name] / middle[colour]:.2f}" for colour in ("grey", "rgb")]
        lines.append(f"| {what} | {middle[name]:.2f} | {rounds} | {ratios[0]} | {ratios[1]} |")
    return lines


def computed_by_packing(folder: Path, store: Path, colour: str) -> float:
    """Seconds an image once all processes have begun to decode: the others' have, too."""
    shutil.rmtree(store, ignore_errors=True)
    seen: list[tuple[float, int]] = []
    pack(
        Folder(folder),
        store,
        colour,  # type: ignore[arg-type]
        Pixels(),
        CORES,
        lambda done, total: seen.append((computed(), done)),
    )
    first, last = seen[len(seen) // 4], seen[-1]
    return (last[0] - first[0]) / (last[1] - first[1])


def computed() -> float:
    """Seconds that this process and its children have computed since they began."""
    ticks = 0
    for process in ("self", *children()):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def children() -> list[str]:
    tasks = Path("/proc/self/task").glob("*/children")  # each thread has its own
    return [child for task in tasks for child in task.read_text().split()]


def memory(folder: Path, scratch: Path) -> list[str]:
    """What packing holds at the most, of few files and of many small ones, and what it computes."""
    peaks, computed = [], []
    for count in (2_000, 20_000):
        place = scratch / f"small-{count}"
        place.mkdir()
        pictures = [Image.open(file).resize((64, 48)) for file in sorted(folder.iterdir())[:100]]
        for number in range(count):
            pictures[number % len(pictures)].save(place / f"image-{number:07d}.jpg")
        code = (
            "import resource, sys; from deepcluster.images import crew, packing, kept, source\n"
            "crew.PROCESSES_PAY = 1\n"
            "packing.pack(source.source_of(sys.argv[1]), sys.argv[2], 'grey', kept.Pixels(), 2)\n"
            "used = resource.getrusage(resource.RUSAGE_SELF)\n"
            "print(used.ru_maxrss, used.ru_utime + used.ru_stime)"
        )
        words = [sys.executable, "-c", code, str(place), str(scratch / f"s-{count}")]
        peak, seconds = subprocess.run(words, capture_output=True, check=True).stdout.split()
        peaks.append(int(peak))
        computed.append(float(seconds))
        shutil.rmtree(place)
    growth = (peaks[1] - peaks[0]) * 1024 / 18_000
    each = (computed[1] - computed[0]) * 1e6 / 18_000
    return [
        f"| memory of packing, 2,000 and 20,000 files | {peaks[0] / 1024:,.0f} and "
        f"{peaks[1] / 1024:,.0f} MiB | {growth:,.0f} bytes a file | |",
        f"| computing by the process that packs, beside those that decode | {each:,.0f} "
        "microseconds a file | | |",
    ]


def checked(scratch: Path) -> list[str]:
    """The memory of `deepcluster check` at the most, on few files and on many, and its time."""
    counts = (10_000, 100_000)
    peaks, seconds = [], []
    for count in counts:
        place = scratch / f"tiny-{count}"
        randomness = np.random.default_rng(0)
        for number in range(count):
            folder = place / f"class-{number % 50:02d}"
            folder.mkdir(parents=True, exist_ok=True)
            pixels = randomness.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"image-{number:07d}.png")
        begun = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "deepcluster", "check", str(place)], stdout=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        seconds.append(time.perf_counter() - begun)
        peaks.append(used.ru_maxrss)
        shutil.rmtree(place)
    each = (peaks[1] - peaks[0]) * 1024 / (counts[1] - counts[0])
    return [
        f"| check, {count:,} PNG files of 8 x 8 in 50 folders | {peak / 1024:,.0f} MiB | "
        f"{taken:.1f} s | {count / taken:,.0f} |"
        for count, peak, taken in zip(counts, peaks, seconds, strict=True)
    ] + [f"| memory a file more | {each:,.0f} bytes | | |"]


def two_thousand_eighteen(folder: Path, workers: int) -> float:
    """The loader of the released code: every image decoded anew."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "all").symlink_to(folder.resolve())
        crop = v2.Compose(
            [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), v2.PILToTensor()]
        )
        loader = torch.utils.data.DataLoader(
            torchvision.datasets.ImageFolder(name, crop), 64, num_workers=workers
        )
        return rate(lambda: sum(len(images) for images, _ in loader))


def batches_on_cpu(folder: Path, store: Store) -> str:
    images = StoredImages(store, 224)
    draws = np.arange(4 * len(images))
    parts = np.array_split(draws, max(1, len(draws) // 64))
    which = draws % len(images)
    mine = rate(lambda: sum(len(b) for b, _ in images.drawn(parts, which, 0, 0, CORES)))
    theirs = two_thousand_eighteen(folder, CORES)
    return (
        f"| random crops to 224 px from a grey store, {CORES} threads | {mine:,.0f} images/s | "
        f"DataLoader(ImageFolder), {CORES} workers: {theirs:,.0f} | {mine / theirs:.2f} |"
    )


def made_up_store(folder: Path, count: int) -> Store:
    """A grey store of `count` images of 256 x 341 without the files they came from."""
    folder.mkdir(parents=True, exist_ok=True)
    height, width = 256, 341
    pixels = np.random.default_rng(0).integers(0, 256, count * height * width, dtype=np.uint8)
    pixels.tofile(folder / "pixels.u8")
    starts = np.arange(count, dtype=np.int64) * height * width
    layout = np.stack([starts, np.full(count, height), np.full(count, width)], axis=1)
    np.save(folder / "layout.npy", layout)
    contents = Contents(Pixels(colour="grey"), count, pixels.nbytes, [], [])
    (folder / "store.json").write_text(contents.to_json())
    return Store(folder)


class _WithoutFiles(DeviceImages):
    """A store's crops, where there is no index of files."""

    def __init__(self, store: Store, size: int, live: str) -> None:
        store.__dict__["index"] = type("Nothing", (), {"labels": None, "paths": []})()
        super().__init__(store, size, torch.device("cuda"), live)


def delivered(batches: Iterable[tuple[torch.Tensor, object]]) -> int:
    count = 0
    for images, _ in batches:
        count += len(images)
    torch.cuda.synchronize()
    return count


def batches_on_gpu(folder: Path, scratch: Path) -> list[str]:
    store = made_up_store(scratch / "made-up", 40_000)
    lines = []
    theirs = two_thousand_eighteen(folder, CORES)
    which = np.random.default_rng(0).integers(0, len(store), 40_000)
    parts = [np.arange(first, first + 256) for first in range(0, 39_936, 256)]
    for live in ("device", "pinned", "host"):
        images = _WithoutFiles(store, 224, live)
        delivered(images.drawn(parts[:4], which, 0, 0, 4))
        mine = rate(lambda images=images: delivered(images.drawn(parts, which, 0, 0, 4)))
        lines.append(
            f"| 256 random crops to 224 px from 40,000 grey images at 256 px, living on the {live} "
            f"| {mine:,.0f} images/s | DataLoader(ImageFolder), {CORES} workers: {theirs:,.0f} | "
            f"{mine / theirs:.0f} |"
        )
    return lines


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--images", type=Path)
    arguments.add_argument("--out", type=Path)
    only = arguments.add_mutually_exclusive_group()
    only.add_argument("--computing", action="store_true")
    only.add_argument("--check", action="store_true")
    only.add_argument("--gpu", action="store_true")
    asked = arguments.parse_args()
    header = ["| what | ours | instead | times as fast |", "|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        folder = asked.images
        if folder is None:
            folder = scratch / "photographs"
            folder.mkdir()
            photographs(folder, 400)
        if asked.check:
            header = ["| what | most memory | time | files a second |", "|---|---|---|---|"]
            lines = checked(scratch)
        elif asked.computing:
            header = [
                "| what | CPU ms an image | rounds | times grey packing | times packing in rgb |",
                "|---|---|---|---|---|",
            ]
            lines = computing(folder, scratch)
        elif asked.gpu:
            lines = batches_on_gpu(folder, scratch)
        else:
            lines = [*packing(folder, scratch), *memory(folder, scratch)]
            store = pack(Folder(folder), scratch / "few", "grey", Pixels(), CORES)
            lines.append(batches_on_cpu(folder, store))
            if torch.cuda.is_available():
                lines += batches_on_gpu(folder, scratch)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    words = [" --images ..."] * bool(asked.images) + [" --computing"] * asked.computing
    words += [" --check"] * asked.check + [" --gpu"] * asked.gpu
    times = f"median of {ROUNDS} rounds" if asked.computing else f"best of {REPEATS}"
    times = "run once" if asked.check else times
    about = (
        f"`python benchmarks/images.py{''.join(words)}`, {CORES} cores "
        f"({platform.machine()}), {device}, Python {platform.python_version()}, torch "
        f"{torch.__version__}, torchvision {torchvision.__version__}, Pillow {Image.__version__}; "
        f"{times}."
    )
    text = "\n".join([about, "", *header, *lines, ""])
    print(text)
    if asked.out is not None:
        asked.out.write_text(text)


if __name__ == "__main__":
    main()
