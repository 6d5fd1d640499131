"""What every room stands on: errors, named randomness, the world of processes, the run folder."""
