"""What one does with features and groups: embed, predict, find what is alike and what is not."""
