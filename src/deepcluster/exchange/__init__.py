"""In and out: what other programs can read, and what others have left."""
