"""Network or run -> pictures."""
