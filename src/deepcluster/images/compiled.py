"""What was compiled when the package was installed, where there was a compiler then."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path


def compiled(name: str, usable: Callable[[ctypes.CDLL], bool]) -> ctypes.CDLL | None:
    """The library of a name beside this file, if there is one that can be used here.

    Args:
        name: Of the extension.
        usable: Prepares it, and says whether it works on this processor and does what it should.
    """
    for place in Path(__file__).parent.glob(f"{name}*.so"):
        try:
            library = ctypes.CDLL(str(place))
            if usable(library):
                return library
        except (OSError, AttributeError):  # of another machine, or of another version
            continue
    return None
