"""Activations -> the matrix that is clustered."""
