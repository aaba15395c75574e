"""Learning in two passes: all demonstrations are counted, and a sample of them is learned from."""

from dtdr.predict.counting.counts import Counts
from dtdr.predict.counting.file_parts import rows_of
from dtdr.predict.counting.kept import KeptCounts
from dtdr.predict.counting.passes import Sample, draw_sample

__all__ = ["Counts", "KeptCounts", "Sample", "draw_sample", "rows_of"]
