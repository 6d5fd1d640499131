"""What the method does, shown on data: one file each."""
