"""Tensors -> activations."""

from deepcluster.networks.alexnet import AlexNet
from deepcluster.networks.backbone import Backbone, backbone_names
from deepcluster.networks.layer_view import looked_at
from deepcluster.networks.network import Front, Network, Trunk, build_network, fresh_head
from deepcluster.networks.sobel import Sobel
from deepcluster.networks.vgg16 import VGG16

__all__ = [
    "VGG16",
    "AlexNet",
    "Backbone",
    "Front",
    "Network",
    "Sobel",
    "Trunk",
    "backbone_names",
    "build_network",
    "fresh_head",
    "looked_at",
]
