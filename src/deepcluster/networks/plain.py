"""Plain convnets: convolutions one after another, then fc6 and fc7, as AlexNet and VGG are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from torch import Tensor, nn

from deepcluster.networks.folded import FoldedConv2d
from deepcluster.runtime.errors import UsageError


class PlainConvnet(nn.Module):
    """B x width: the output of fc7 before its ReLU, which is what gets clustered."""

    fc6: nn.Sequential
    fc7: nn.Sequential
    width: int

    def __init__(self, convolutions: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(OrderedDict(convolutions))

    def forward(self, images: Tensor) -> Tensor:
        """One feature vector an image."""
        return self.fc7(self.fc6(self.convolutions(images).flatten(1)))

    @property
    def layers(self) -> dict[str, nn.Module]:
        """The modules that put out conv1, conv2, ... and fc6 after their ReLU, fc7 before it."""
        convolutions = {
            name: module
            for name, module in self.convolutions.named_children()
            if name.startswith("conv")
        }
        return {**convolutions, "fc6": self.fc6, "fc7": self.fc7}

    def flat_width(self, input_size: int) -> int:
        """How many numbers the convolutions leave of one square image."""
        side = input_size
        for layer in self.convolutions.modules():
            if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
                kernel, step, padding = (
                    extent if isinstance(extent, int) else int(extent[0])
                    for extent in (layer.kernel_size, layer.stride, layer.padding)
                )
                side = (side + 2 * padding - kernel) // step + 1
            if isinstance(layer, nn.Conv2d):
                channels = layer.out_channels
            if side < 1:
                raise UsageError(
                    f"{type(self).__name__} leaves nothing of images of {input_size} x "
                    f"{input_size} pixels; choose a larger input size"
                )
        return channels * side * side


def convolution(
    channels: int, filters: int, side: int, *, stride: int = 1, padding: int
) -> nn.Sequential:
    """A convolution, its batch norm and its ReLU."""
    kind = FoldedConv2d if stride > 1 else nn.Conv2d
    return nn.Sequential(
        kind(channels, filters, side, stride=stride, padding=padding),
        nn.BatchNorm2d(filters),
        nn.ReLU(inplace=True),
    )
