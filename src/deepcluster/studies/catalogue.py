"""Which studies there are. Imports no torch: the help must come at once."""

STUDIES = {
    "table1": "table 1: linear classifiers on conv1 to conv5, beside random and supervised",
    "table2": "table 2: transfer to Pascal VOC, fc6 to fc8 or all layers learnt; needs --voc",
    "table3": "table 3: the same transfer after unbalanced images mixed with scenes",
    "table4": "table 4: AlexNet and VGG-16, by the same transfer; needs --voc",
    "table5": "table 5: landmarks found by R-MAC; needs --oxford, --paris or both",
    "mlp": "the appendix's table of fc6 to fc8 learnt anew on frozen convolutions",
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

FIGURES = {
    "fig3": "figure 3: the filters of the first layer, on colours and behind Sobel",
    "fig4": "figure 4: what filters of conv1, conv3 and conv5 want to see, and what they like best",
    "fig5": "figure 5: the images that filters of the last convolution like best",
    "neighbours": "appendix: images and their nearest, by the network untrained and trained",
    "sizes": "appendix: sizes of the clusters of k-means and of power iteration",
    "purity": "appendix: how many images lie in pure clusters, by synset of the ImageNet ontology",
    "vgg": "appendix: what filters of VGG-16's last convolution want to see, and like best",
    "top100": "appendix: what the first 100 filters of the last convolution like best",
}
