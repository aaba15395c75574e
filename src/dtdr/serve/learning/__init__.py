"""One process that applies a log of feedback to a model which servers watch."""

from dtdr.serve.learning.trainer import LearningOutcome, LearnOptions, Trainer
from dtdr.serve.learning.versions import VersionChange, Versions

__all__ = ["LearnOptions", "LearningOutcome", "Trainer", "VersionChange", "Versions"]
