"""The flags of verbs that read files: which links are followed, how files become images."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

import tyro

from deepcluster.flags import shown_as
from deepcluster.images.kept import Frames, Pixels


@dataclass(frozen=True, kw_only=True)
class LinkFlags:
    """The flag of every verb that looks for images in folders."""

    follow_links: tyro.conf.FlagCreatePairsOff[bool] = Pixels.follow_links
    """Follow links out of the folder, too."""


@dataclass(frozen=True, kw_only=True)
class ReadingFlags(LinkFlags):
    """Settings of `Pixels` by their own names; train has them too, as short names.

    A command is a subclass, and may have further settings of `Pixels` as fields of its own.
    """

    frames: Frames = Pixels.frames
    """all: every frame or page of a file is an image."""

    min_side: int = Pixels.min_side
    """Images whose short side has fewer pixels are left out."""

    bands: Annotated[str | None, shown_as("R,G,B")] = Pixels.bands
    """Bands of a TIFF that are its colours, as 4,3,2."""

    max_pixels: Annotated[int, tyro.conf.arg(metavar="N")] = Pixels.max_pixels
    """Larger images are left out."""

    background: Annotated[str, tyro.conf.arg(metavar="C")] = Pixels.background
    """Colour under what is transparent."""

    accept_truncated: tyro.conf.FlagCreatePairsOff[bool] = Pixels.accept_truncated
    """Use JPEGs that are cut short."""

    @property
    def how(self) -> Pixels:
        """The manner of reading, of which the command says all or a part."""
        names = {entry.name for entry in fields(Pixels)} & {entry.name for entry in fields(self)}
        return Pixels(**{name: getattr(self, name) for name in names})


SHORT = {
    f"--{name}": f"--pixels.{name}"
    for name in (entry.name.replace("_", "-") for entry in fields(ReadingFlags))
}
"""What train calls them in full."""
