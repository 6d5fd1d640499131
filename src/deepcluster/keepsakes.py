"""What the page needs of images and network, kept while both are at hand; then the page itself.

Bounded work, whatever the size of the run: thumbnails of a selection, the network before its
first step beside the trained one on a sample, the first layer's filters, and what excites a deeper
layer.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from deepcluster.beginning import as_it_began
from deepcluster.clusters import Clusters
from deepcluster.evaluation.baseline import FORMAT, Sample, compared
from deepcluster.images.album import colours_of, selection_of
from deepcluster.images.index import Index
from deepcluster.loop import Sitting
from deepcluster.networks import Network, looked_at
from deepcluster.report import select, write_report
from deepcluster.runtime.display import Display
from deepcluster.runtime.durations import duration
from deepcluster.runtime.errors import DeepClusterError
from deepcluster.visuals.filters import first_kernels, grid
from deepcluster.visuals.thumbnails import write_thumbnails
from deepcluster.visuals.top_images import top_images

_FILTERS = 24  # rows of top images on the page


def keep_for_the_page(sitting: Sitting, clusters: Clusters) -> None:
    """Write thumbnails/, figures/ and baseline.json; the leading process alone does."""
    world = sitting.world
    if not world.leads:
        world.heard()
        return
    started = time.monotonic()
    try:
        with world.others_waiting():
            shown = _thumbnails(sitting, clusters)
            with _not_vital("comparison with the network before training", sitting.display):
                _baseline(sitting)
            with _not_vital("pictures of the network", sitting.display):
                _figures(sitting, shown)
    finally:
        world.broadcast_bytes(b"done")
    sitting.display.say(
        f"kept for the page: {len(shown):,} thumbnails, figures, its scores before and after "
        f"({duration(time.monotonic() - started)})"
    )


def write_page(sitting: Sitting) -> None:
    """Lay out the page of the finished run."""
    with _not_vital("page", sitting.display):
        page = write_report(sitting.course.folder)
        sitting.display.say(f"look at it: {page}")


@contextmanager
def _not_vital(what: str, display: Display) -> Iterator[None]:
    """A run is not lost for want of a picture: what went wrong is said, and the run goes on."""
    try:
        yield
    except (DeepClusterError, OSError, RuntimeError) as error:
        display.say(f"no {what}: {error}")


def _thumbnails(sitting: Sitting, clusters: Clusters) -> list[int]:
    folder, images = sitting.course.folder, sitting.images
    ids = select(clusters.labels.numpy(), clusters.distances.numpy()).images.tolist()
    with (
        _not_vital("thumbnails", sitting.display),
        sitting.display.phase("thumbnails", len(ids), {}, "thumbnails") as phase,
    ):
        colours = colours_of(
            Path(folder.settings["images"]), Index.load(folder.index), selection_of(folder)
        )
        workers = sitting.run.speed.threads
        write_thumbnails(folder, images, ids, workers, colours, phase.advance)
    return ids


def _baseline(sitting: Sitting) -> None:
    """Measure both networks in the same way, that before the first step once only."""
    folder, run, device = sitting.course.folder, sitting.run, sitting.world.device
    sample = Sample.of(sitting.images, run.seed, run.speed.threads)
    before = _known_before(folder.path / "baseline.json", sample)
    networks = [sitting.course.network]
    if not before:  # what it began with is no merit of training: patches, given weights
        networks.insert(0, as_it_began(run, sitting.images, sitting.world, sitting.display))
    looks = sample.looks * len(networks)
    with sitting.display.phase("comparing before and after", looks, {}, "compare") as phase:

        def figures(network: Network) -> dict[str, float]:
            view = looked_at(network, run.network.clustered, run.network.views)
            return sample.figures(view, run.whitening.dimensions, device, phase.advance)

        *measured, after = map(figures, networks)
    before = measured[0] if measured else before
    folder.write("baseline.json", json.dumps(compared(sample, before, after), indent=2) + "\n")


def _known_before(path: Path, sample: Sample) -> dict[str, float]:
    """The figures before the first step, if an earlier closing pass of the run took them."""
    try:
        known: dict[str, Any] = json.loads(path.read_text())
        figures = {entry["name"]: float(entry["untrained"]) for entry in known["comparisons"]}
        same = known["images"] == len(sample.ids) and {*figures} == {*sample.chance()}
        same = same and known["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return figures if same else {}


def _figures(sitting: Sitting, shown: list[int]) -> None:
    folder, network, run = sitting.course.folder, sitting.course.network, sitting.run
    content = io.BytesIO()
    Image.fromarray(grid(first_kernels(network))).save(content, "PNG")
    folder.write("figures/filters.png", content.getvalue())
    layer = telling_layer(network)
    if layer is None or not shown:
        return
    step = -(-len(shown) // 1_000)
    looked = shown[::step]
    with sitting.display.phase("what filters like", len(looked), {}, "top") as phase:
        top = top_images(
            network, sitting.images, looked, layer, workers=run.speed.threads, advance=phase.advance
        )
    rows = [
        {"filter": number, "images": top.images[number].tolist()}
        for number in top.most_telling(_FILTERS)
    ]
    about = {"format": 1, "layer": layer, "images": len(looked), "filters": rows}
    folder.write("figures/top.json", json.dumps(about) + "\n")


def telling_layer(network: Network) -> str | None:
    """The last convolution, or None where the network has no layer with maps."""
    names = [name for name in network.layers if name.startswith(("conv", "layer", "features"))]
    return names[-1] if names else None
