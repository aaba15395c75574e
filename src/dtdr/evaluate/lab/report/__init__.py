"""The report: sections of text, tables and figures, as one HTML page and as Markdown."""

from dtdr.evaluate.lab.report.build import build_report
from dtdr.evaluate.lab.report.page import write_report

__all__ = ["build_report", "write_report"]
