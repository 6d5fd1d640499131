"""The page of a run as a site of this machine: search by image, naming, moving, merging."""
