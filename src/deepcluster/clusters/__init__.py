"""Matrix -> groups. Knows nothing of images: an array in, labels out."""
