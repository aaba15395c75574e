"""Learning from large data in two passes: count all demonstrations, then draw a sample."""

from dtdr.predict.counting.counts import SAMPLE, Counts
from dtdr.predict.counting.file_parts import has_more_rows
from dtdr.predict.counting.passes import Sample, draw_sample

__all__ = ["SAMPLE", "Counts", "Sample", "draw_sample", "has_more_rows"]
