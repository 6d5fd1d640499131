"""Unsupervised learning of visual features by clustering (Caron et al., ECCV 2018).

Look: compute the network's features of every image. Group: cluster them. Learn: train the network
to predict each image's group from a random crop. And again, with a new head every time, since
cluster 7 is not last epoch's cluster 7. `deepcluster.loop.alternate` is this, in forty lines.
"""

__version__ = "0.1.0"
