"""Which protocols there are. Imports no torch: the help must come at once."""

HELP = """usage: deepcluster evaluate RUN PROTOCOL --data DIR ...

How good a network is. RUN is a run folder or its name in runs/, or random, random-rgb or
random-sobel: the network untrained (of the shape of --like RUN). supervised, supervised-rgb and
supervised-sobel are names for runs made by deepcluster train --labels folders.

DIR holds train/ and val/ (or test/), each with one folder per class:
  linear              a linear classifier on each frozen layer
  mlp                 fc6 to fc8 learnt anew on the frozen convolutions
  knn                 the vote of the nearest training images
  agreement           the run's groups beside the folders; of its own images without --data

DIR is Pascal VOC's devkit:
  voc-classification  which of 20 classes an image shows; fc6-8 or all learnt
  voc-detection       where objects of 20 classes are, by Fast R-CNN; fc6-8 or all learnt
  voc-segmentation    the class of every pixel; fc6-8 or all learnt

DIR holds images/ and gt_files/, as Oxford5k and Paris6k do:
  retrieval           photographs of the same landmark, found by R-MAC

deepcluster evaluate RUN PROTOCOL --help shows the settings; docs/evaluation.md and
docs/transfer.md say how each protocol differs from the paper's.
"""
