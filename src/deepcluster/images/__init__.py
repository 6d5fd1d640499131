"""Files on disk -> batches of tensors."""
