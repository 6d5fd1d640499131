"""Training set -> a better network."""
