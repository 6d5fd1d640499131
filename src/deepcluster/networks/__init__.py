"""Tensors -> activations."""
