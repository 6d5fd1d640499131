"""Unsupervised learning of visual features by clustering (Caron et al., ECCV 2018)."""
