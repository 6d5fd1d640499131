"""Which studies there are. Imports no torch: the help must come at once."""

STUDIES = {
    "table1": "table 1: linear classifiers on conv1 to conv5, beside random and supervised",
    "table2": "table 2: transfer to Pascal VOC, fc6 to fc8 or all layers learnt; needs --voc",
    "table3": "table 3: the same transfer after unbalanced images mixed with scenes",
    "pic": "the appendix's table of transfer: k-means against power iteration",
    "fig2": "figure 2: clusters beside labels and the last epoch's, and quality against k",
    "draw": "every cluster drawn equally often, or as large as it is, or weighted: does it matter?",
    "reassign": "how often to recluster, at a given number of updates",
    "sobel": "Sobel filters against colours",
    "dimensions": "PCA before clustering, on and off, and with how many dimensions",
    "depth": "AlexNet against VGG-16",
    "stopping": "how probe accuracy and clusters change over training",
    "uncurated": "unbalanced classes mixed with scenes, in the place of the paper's YFCC100M",
    "variants": "the appendix's table of variants: uncurated images, power iteration, colours",
    "classif": "the appendix's table of data and clusterings: fc6 to fc8 on frozen convolutions",
}
