"""The images of a store as batches of crops; nothing is decoded any more."""

from __future__ import annotations

import numpy as np
from PIL import Image

from deepcluster.images.crops import PAPER, CropRange
from deepcluster.images.loader import Images
from deepcluster.images.store import Store


class StoredImages(Images):
    """The usable images of a store, cropped by threads; image i is image i of its index."""

    def __init__(self, store: Store, size: int, crops: CropRange = PAPER) -> None:
        super().__init__(store.folder, store.index, size, crops)
        self.store = store
        self.channels = store.channels

    def picture(self, number: int) -> Image.Image:
        """Image `number` as the store keeps it; of a grey store a grey one."""
        pixels = self.store.image(number)
        return Image.fromarray(pixels[..., 0] if self.channels == 1 else np.asarray(pixels))
