"""Kernels for k-means on a GPU; the plain versions beside them are the reference."""
