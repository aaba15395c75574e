"""Learning in two passes: all demonstrations are counted, and a sample of them is learned from."""

from dtdr.counting.counts import Counts
from dtdr.counting.kept import KeptCounts
from dtdr.counting.parts import rows_of
from dtdr.counting.passes import Sample, draw_sample

__all__ = ["Counts", "KeptCounts", "Sample", "draw_sample", "rows_of"]
