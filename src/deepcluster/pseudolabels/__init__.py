"""Groups -> a training set."""
