"""Learning in two passes: all demonstrations are counted, and a sample of them is learned from."""

from dtdr.counting.counts import Counts
from dtdr.counting.passes import Sample, draw_sample, rows_of

__all__ = ["Counts", "Sample", "draw_sample", "rows_of"]
