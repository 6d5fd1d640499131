"""How well a run's groups agree with classes that it never saw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from deepcluster.clusters import Contingency, assign
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.evaluated import Evaluated
from deepcluster.evaluation.labelled_images import LabelledImages
from deepcluster.evaluation.rows import unit_rows
from deepcluster.images.index import Index
from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.runtime.run_folder import RunFolder


@dataclass(frozen=True)
class GroupAgreement:
    """Figures of groups beside classes, all from one table of counts."""

    nmi: float
    """I / sqrt(H H'), the paper's."""
    nmi_arithmetic: float
    """2 I / (H + H'), scikit-learn's default."""
    ami: float
    ari: float
    purity: float
    accuracy: float
    """Share of images in the class of their group, groups and classes matched one to one."""
    groups: int
    classes: int
    images: int

    @staticmethod
    def of(groups: NDArray[np.int64], classes: NDArray[np.int64]) -> GroupAgreement:
        """The figures of two labelings of the same images; -1 is none."""
        table = Contingency.of(groups, classes)
        return GroupAgreement(
            nmi=table.normalized_mutual_information(),
            nmi_arithmetic=table.normalized_mutual_information("arithmetic"),
            ami=table.adjusted_mutual_information(),
            ari=table.adjusted_rand_index(),
            purity=table.purity(),
            accuracy=table.accuracy(),
            groups=len(table.sizes_a),
            classes=len(table.sizes_b),
            images=table.rows,
        )


def own_agreement(folder: RunFolder) -> GroupAgreement:
    """Of the run's groups with the folders of its own images."""
    classes = Index.load(folder.verified("index.parquet")).labels
    if classes is None:
        raise DataError(
            f"the images of {folder.path} have no labels: they were not given as one folder per "
            "class, or as a list with a label column; give labelled images by --data"
        )
    # Not read_table: its threads, beside torch's, can abort the process when it ends.
    table = pq.ParquetFile(folder.verified("clusters.parquet")).read(use_threads=False)
    groups = table["cluster"].to_numpy().astype(np.int64)
    return GroupAgreement.of(groups, classes)


def refuse_without_groups(subject: Evaluated) -> None:
    """Raise where there is nothing to compare with classes."""
    if subject.pca is None or subject.centroids is None:
        raise UsageError(
            "agreement: this network was imported and has no groups to compare with classes; knn, "
            "linear and mlp can judge it"
        )


def predicted_agreement(
    subject: Evaluated, labelled: LabelledImages, bench: Bench
) -> GroupAgreement:
    """Of the groups that the run's PCA and centroids give to other images."""
    refuse_without_groups(subject)
    assert subject.pca is not None
    assert subject.centroids is not None
    network, read = subject.network, subject.seen
    rows = unit_rows(network, read, labelled.images, subject.pca, bench, "looking")
    groups = bench.world.gather(assign(rows, subject.centroids)[0].cpu())
    return GroupAgreement.of(groups.numpy().astype(np.int64), labelled.classes)
