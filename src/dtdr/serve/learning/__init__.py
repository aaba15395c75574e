"""One process that applies a log of feedback to a model which servers watch."""

from dtdr.serve.learning.trainer import LearnOptions, Outcome, Trainer
from dtdr.serve.learning.versions import Change, Versions

__all__ = ["Change", "LearnOptions", "Outcome", "Trainer", "Versions"]
