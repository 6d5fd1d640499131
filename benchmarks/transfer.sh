#!/usr/bin/env bash
# Table 2 (but for random-rgb), and AlexNet's rows of table 5, from nothing on one GPU.
#
#   benchmarks/transfer.sh DATA OUT [FLAGS of reproduce ...]
#
# DATA holds tiny-imagenet-100/ (train/, val/), VOCdevkit/ and oxford5k-small/. A task of transfer leaves a large GPU idle most of the
# time, so tasks are judged side by side, each in a folder of its own under OUT, and put together in the end. The same command goes on
# where it was stopped: what is done is not done again.
set -euo pipefail
data=$1 out=$2
shift 2
mkdir -p "$out"
read -ra deepcluster <<<"${DEEPCLUSTER:-deepcluster}"
common=(--data "$data/tiny-imagenet-100" --preset small-alexnet --seeds 0
    --supervised-steps 0.05 --supervised-decays 2e-3 --supervised-epochs 60 "$@")
voc=(--voc "$data/VOCdevkit")
lanes=()
trap 'for one in "${lanes[@]}"; do kill "${one%%:*}" 2>/dev/null || true; done' EXIT

# A command beside the others, with a log of its own.
lane() {
    local name=$1 study=$2
    shift 2
    "${deepcluster[@]}" reproduce "$study" "${common[@]}" "$@" --out "$out/$name" >"$out/$name.log" 2>&1 &
    lanes+=("$!:$name")
}

# Wait for all of them; the log of one that failed ends with why.
together() {
    local failed=0 one
    for one in "${lanes[@]}"; do
        wait "${one%%:*}" || { failed=1; echo "${one#*:} failed: $(tail -n 1 "$out/${one#*:}.log")" >&2; }
    done
    lanes=()
    ((failed)) || echo "$(date +%T) $1 done"
    return "$failed"
}

# While two networks learn, the untrained one is judged, and regions are found by cores that have nothing else to do.
lane networks table2 "${voc[@]}" --rows DeepCluster supervised --tasks "classification fc6-8"
lane untrained table2 "${voc[@]}" --rows random-sobel
together "networks"

from=(--networks-of "$out/networks" "$out/untrained")
trained=(--rows DeepCluster supervised)
for task in "classification all" "detection fc6-8" "detection all" "segmentation fc6-8" "segmentation all"; do
    lane "${task// /-}" table2 "${voc[@]}" "${trained[@]}" --tasks "$task" "${from[@]}"
done
whiten=$out/whiten.txt
devkit=$(realpath "$data/VOCdevkit/VOC2007")
sed -n '1,1000{s/ .*//;p}' "$devkit/ImageSets/Main/trainval.txt" | while read -r name; do
    ls "$devkit/JPEGImages/$name".*
done >"$whiten"
alexnet=("supervised AlexNet" "random AlexNet" "DeepCluster AlexNet")
lane table5 table5 --oxford "$data/oxford5k-small" --whiten-on "$whiten" --retrieval-size 480 --rows "${alexnet[@]}" "${from[@]}"
together "tasks"

"${deepcluster[@]}" reproduce table2 "${common[@]}" "${voc[@]}" --rows random-sobel DeepCluster supervised --out "$out/table2" \
    --networks-of "$out"/{networks,untrained,classification-all,detection-fc6-8,detection-all,segmentation-fc6-8,segmentation-all}
