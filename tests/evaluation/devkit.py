"""The small devkit that `reproduce table2 --smoke` draws, for tests."""

from deepcluster.studies.drawn_devkit import SPLITS, annotate, write_devkit

__all__ = ["SPLITS", "annotate", "write_devkit"]
