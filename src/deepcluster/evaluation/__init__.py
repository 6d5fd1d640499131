"""Network -> scores."""
