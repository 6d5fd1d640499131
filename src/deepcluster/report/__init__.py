"""Run folder -> web page. Reads files; imports no torch."""

from deepcluster.report.page import write_report
from deepcluster.report.selection import Selection, select

__all__ = ["Selection", "select", "write_report"]
