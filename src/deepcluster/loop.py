"""The method of the paper: look, group, learn, and again.

Deep Clustering for Unsupervised Learning of Visual Features (Caron, Bojanowski, Joulin and
Douze, ECCV 2018). Read `alternate` first; everything else serves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.optim import SGD

from deepcluster.clusters import Clusters, KMeans
from deepcluster.clusters.labelled_means import means_of_labelled
from deepcluster.features import Features, Looking, extract
from deepcluster.images.loader import Images
from deepcluster.networks import fresh_head, looked_at
from deepcluster.pseudolabels import training_batches
from deepcluster.pseudolabels.batches import batch_bounds
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import NumericsError
from deepcluster.runtime.seeds import generator
from deepcluster.runtime.world import World
from deepcluster.settings import Run
from deepcluster.training.carried_head import carry_over
from deepcluster.training.course import Course
from deepcluster.training.epoch import EpochProgress, train_epoch
from deepcluster.training.optimizers import momenta, restore_momenta
from deepcluster.training.record import about_clusters, about_training
from deepcluster.training.step import Recorder


@dataclass(frozen=True)
class Sitting:
    """What the method works with: the settings, the images, where the run stands, who watches."""

    run: Run
    images: Images
    course: Course
    world: World
    display: Display
    recorder: Recorder | None = None
    """What makes the steps of learning quick, on devices where it can."""


def alternate(sitting: Sitting) -> None:
    """Cluster the features, train the network to predict the clusters, and begin anew."""
    run, images, course = sitting.run, sitting.images, sitting.course
    network = course.network
    for epoch in course.epochs(until=run.epochs):
        record: dict[str, Any] = {"epoch": epoch, "seconds": {}, "warnings": []}
        head = course.saved_head(epoch)  # of an epoch that was interrupted while learning
        if head is None:
            # Look: every image once, without chance. Row i is image i, from here on.
            features = look(sitting, epoch, record)

            # Group: what looks alike to the network now shares a label.
            clusters = group(sitting, features, epoch, record)
            record |= about_clusters(clusters, course.labels, images.labels)

            # Cluster 7 is not last epoch's cluster 7, so the old head has nothing to say and a
            # new one takes its place.
            head = fresh_head(network.width, clusters.count, generator(run.seed, "head", epoch))
            if run.training.head == "matched":  # not in the paper: it keeps what still applies
                record["carried"] = carry_over(course, head, clusters.labels)
            course.labels = clusters.labels.numpy()
        network.head = head.to(sitting.world.device)

        # Learn: predict the label from a random crop, every cluster drawn equally often.
        loss = learn(sitting, epoch, record)
        record |= about_training(loss, record["clusters"], course.folder.journal(), "groups")
        course.complete(epoch, closed(record, sitting))


def look(sitting: Sitting, epoch: int, record: dict[str, Any]) -> Features:
    """The features of every image, whitened."""
    run, images, world = sitting.run, sitting.images, sitting.world
    seconds = record["seconds"]
    title = f"epoch {epoch + 1}: looking"
    with sitting.display.phase(title, len(world.share(len(images))), seconds, "look") as phase:
        how = Looking(
            batch=run.speed.look_batch,
            workers=run.speed.threads,
            keep=run.speed.keep_features,
            scratch=sitting.course.folder.scratch,
            key=f"{sitting.course.state_name}/{epoch}",
            autocast=run.autocast,
            advance=phase.advance,
            due=sitting.course.save_is_due,
        )
        view = looked_at(sitting.course.network, run.network.clustered, run.network.views)
        raw = extract(view, images, world, how)
    with sitting.display.phase(f"epoch {epoch + 1}: whitening", 1, seconds, "look"):
        features = run.whitening(raw, world)
    interruption.raise_if_asked()  # the rows are kept; what is left is quickly done again
    return features


def group(sitting: Sitting, features: Features, epoch: int, record: dict[str, Any]) -> Clusters:
    """The groups of all images; an image without a finite feature has label -1."""
    title = f"epoch {epoch + 1}: grouping"
    with sitting.display.phase(title, 1, record["seconds"], "group"):
        clusters = _grouped(sitting, features, epoch)
    if clusters.count < 2:
        raise NumericsError(
            "all images fall into one group, and one group teaches nothing; with power iteration "
            "choose a smaller --clustering.sigma, else start again with --fresh and another --seed"
        )
    return _among_all(clusters, features.finite)


def learn(sitting: Sitting, epoch: int, record: dict[str, Any]) -> float:
    """Train one epoch on the labels of `course`; gives the mean loss."""
    run, world, course, display = sitting.run, sitting.world, sitting.course, sitting.display
    assert course.labels is not None
    head_optimizer = run.training.for_head(course.network)
    restore_momenta(head_optimizer, course.head_momenta)  # none, where the head is fresh
    progress, saved = course.inside(epoch, head_optimizer)
    record |= saved
    draws = run.draw(course.labels, generator(run.seed, "draw", epoch))
    batches = training_batches(
        sitting.images,
        course.labels,
        draws,
        batch=run.training.batch,
        seed=run.seed,
        epoch=epoch,
        world=world,
        workers=run.speed.threads,
        start=progress.step,
        jitter=run.jitter,
    )
    record["warnings"] += display.warned
    display.warned.clear()
    seconds = record["seconds"]
    left = len(draws) - progress.step * run.training.batch
    with display.phase(f"epoch {epoch + 1}: learning", left, seconds, "learn") as phase:

        def so_far() -> dict[str, float]:
            return {**seconds, "learn": seconds.get("learn", 0.0) + phase.seconds}

        def save(progress: EpochProgress) -> None:
            course.save_inside(epoch, head_optimizer, progress, {**record, "seconds": so_far()})

        train_epoch(
            course.network,
            batches,
            (course.optimizer, head_optimizer),
            world,
            progress=progress,
            dropout_stream=(run.seed, epoch),
            autocast=run.autocast,
            smoothing=run.training.smoothing,
            recorder=sitting.recorder,
            before_step=_step_sizes(sitting, epoch, len(draws), head_optimizer, record),
            after_step=phase.advance,
            over=lambda: course.time_is_over(so_far()),
            due=course.save_is_due,
            save=save,
        )
    if course.keeps_head:
        course.head_momenta = momenta(head_optimizer)
    totals = [progress.loss_sum, progress.images, progress.right]
    loss_sum, count, right = world.sum(torch.tensor(totals, dtype=torch.float64)).tolist()
    record["accuracy"] = right / count
    record["draws"] = batch_bounds(len(draws), run.training.batch)[progress.step - 1][1]
    if record["draws"] < len(draws):
        display.say(f"the time given is over after {record['draws']:,} of {len(draws):,} images")
        if "schedule" in record:  # of its part, what it has gone through
            begin, end = record["schedule"]
            record["schedule"] = begin, begin + (end - begin) * record["draws"] / len(draws)
    return loss_sum / count


def _step_sizes(
    sitting: Sitting, epoch: int, draws: int, head_optimizer: SGD, record: dict[str, Any]
) -> Callable[[int], None]:
    """The function that gives each step of the epoch its size."""
    run, course = sitting.run, sitting.course
    if run.training.schedule != "constant" and "schedule" not in record:
        record["schedule"] = course.part_of_schedule(run.epochs)
    begin, end = record.get("schedule", (0.0, 0.0))
    steps = len(batch_bounds(draws, run.training.batch))

    def set_size(step: int) -> None:
        done, share = epoch + step / steps, begin + (end - begin) * step / steps
        optimizers = course.optimizer, head_optimizer
        run.training.set_step(*optimizers, done, share, head_stays=course.keeps_head)

    return set_size


def _grouped(sitting: Sitting, features: Features, epoch: int) -> Clusters:
    """The groups of the images that have a finite feature."""
    run, world, last = sitting.run, sitting.world, sitting.course.labels
    randomness = generator(run.seed, "cluster", epoch)
    if run.clustering_start == "random" or last is None or not isinstance(run.clustering, KMeans):
        return run.clustering(features.matrix, world, randomness)
    # Whitening turns the space from epoch to epoch: the last centroids are found again as the
    # means of their images.
    mine = world.share(len(features.finite))
    mine_last = torch.from_numpy(last)[mine.start : mine.stop]
    mine_last = mine_last[features.finite[mine.start : mine.stop]]
    filling = generator(run.seed, "cluster-start", epoch)
    start = means_of_labelled(features.matrix, mine_last, run.clustering.k, world, filling)
    return run.clustering(features.matrix, world, randomness, centroids=start)


def _among_all(clusters: Clusters, finite: torch.Tensor) -> Clusters:
    """The same groups, in the index space of all images."""
    if bool(finite.all()):
        return clusters
    labels = torch.full((len(finite),), -1)
    labels[finite] = clusters.labels
    unknown = torch.full((len(finite),), torch.nan)
    distances, margins = unknown.clone(), unknown.clone()
    distances[finite], margins[finite] = clusters.distances, clusters.margins
    return replace(clusters, labels=labels, distances=distances, margins=margins)


def closed(record: dict[str, Any], sitting: Sitting) -> dict[str, Any]:
    """The finished line of the journal, shown as well."""
    run, display = sitting.run, sitting.display
    record["images_per_second"] = round(record["draws"] / max(1e-9, record["seconds"]["learn"]), 1)
    record["warnings"] += display.warned
    display.warned.clear()
    display.epoch(record, run.epochs, _seconds_left(record, sitting))
    return record


def _seconds_left(record: dict[str, Any], sitting: Sitting) -> float:
    """Until the closing pass, if the next epochs take as long as the last three."""
    run = sitting.run
    spent = [sum(entry["seconds"].values()) for entry in [*sitting.course.folder.journal(), record]]
    recent = spent[-3:]
    left = (run.epochs - record["epoch"] - 1) * sum(recent) / len(recent)
    return left if run.minutes is None else max(0.0, min(left, 60 * run.minutes - sum(spent)))
