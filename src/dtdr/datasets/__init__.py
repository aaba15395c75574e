"""Published sets of demonstrations, splits, and the bundled synthetic set."""
