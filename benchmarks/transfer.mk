# Linear probes (main rows of table 1), table 2 (but for random-rgb) and AlexNet's rows of table 5, from nothing on one GPU.
#
#   make -f benchmarks/transfer.mk -j 8 DATA=folder OUT=folder [SEEDS="0 1 2"] [TASKS="classification:fc6-8 ..."] \
#       [SUPERVISED="how the baseline learns"] [OURS="runs of ours, one a seed"] [FLAGS="flags of reproduce, such as --all-seeds"]
#
# OURS are runs of `deepcluster train` to be judged, with whatever settings, in the place of those that small-alexnet would train; all have the same recipe.
# DATA holds tiny-imagenet-100/ (train/, val/), VOCdevkit/ and oxford5k-small/, perhaps places-50/. The name of a table as a target makes that alone. A task of transfer leaves a large GPU idle much of the
# time, so cells of the table are judged side by side, each in a folder of its own, and put together in the end. Most of them not before
# the networks have learnt: tasks beside a training take most of the GPU from it, and everything waits for the longest. With CUDA's
# multi-process service (nvidia-cuda-mps-control -d) programs use the GPU at the same time instead of in turns.
# The same command goes on where it was stopped: what is done is not done again. Names of folders must have no spaces.
SHELL := bash
.SHELLFLAGS := -eo pipefail -c
.DELETE_ON_ERROR:
$(if $(DATA),,$(error say where the images are: DATA=folder))
$(if $(OUT),,$(error say where all of it is to be kept: OUT=folder))
DEEPCLUSTER ?= deepcluster
SEEDS ?= 0
ROWS := DeepCluster supervised random-sobel
TRAINED := $(OUT)/networks/DeepCluster/table.md $(OUT)/networks/supervised/table.md
TASKS ?= classification:fc6-8 detection:fc6-8 detection:all segmentation:all classification:all segmentation:fc6-8
LATER := $(filter-out classification:fc6-8,$(TASKS))
REGIONS := $(OUT)/$(subst :,-,$(firstword $(filter detection:%,$(TASKS))))/random-sobel
# What six trials chose (small-alexnet_tiny-imagenet-100_h200.md).
SUPERVISED ?= --supervised-steps 0.05 --supervised-decays 2e-3 --supervised-epochs 120
FOLDERS := $(foreach row,$(ROWS),$(OUT)/networks/$(row) $(foreach task,$(LATER),$(OUT)/$(subst :,-,$(task))/$(row)))
OURS ?=
ADOPTED = $(if $(OURS),--adopt $(foreach run,$(OURS),"$(if $(filter table5,$(1)),DeepCluster AlexNet,DeepCluster)=$(run)"))
COMMON = --data $(DATA)/tiny-imagenet-100 --preset small-alexnet --seeds $(SEEDS) $(SUPERVISED) $(FLAGS)
VOC = --voc $(DATA)/VOCdevkit
# The studies that a target waits for and takes from.
OTHERS = $(patsubst %/table.md,%,$(filter %/table.md,$^))
# A study with a log beside its folder; what is wrong is the log's last line.
STUDY = @mkdir -p $(dir $(@D)) && { $(DEEPCLUSTER) reproduce $(1) $(COMMON) $(2) $(call ADOPTED,$(1)) --out $(@D) >$(@D).log 2>&1 \
	&& echo "$$(date +%T) $(@D)" || { echo "$(@D) failed: $$(tail -n 1 $(@D).log)" >&2; exit 1; }; }

TABLES := table1 table2 table5
.PHONY: all asked $(TABLES)
all: $(TABLES)
$(TABLES): %: $(OUT)/%/table.md

# Whoever asks for something else, such as more seeds, gets it.
$(OUT)/asked.txt: asked
	@mkdir -p $(OUT) && { echo '$(COMMON) $(OURS)' | cmp -s - $@ || echo '$(COMMON) $(OURS)' >$@; }

$(OUT)/table2/table.md: $(FOLDERS:=/table.md)
	$(call STUDY,table2,$(VOC) --rows $(ROWS) --networks-of $(FOLDERS) \
		--tasks "classification fc6-8" $(foreach task,$(LATER),"$(subst :, ,$(task))"))

$(OUT)/table1/table.md: $(TRAINED)
	$(call STUDY,table1,--rows DeepCluster supervised random --ten-crops --networks-of $(OTHERS) \
		$(addprefix --second ,$(wildcard $(DATA)/places-50)))

# The network learns, and its first task is judged.
$(OUT)/networks/random-sobel/table.md: | $(TRAINED)
$(OUT)/networks/%/table.md: $(OUT)/asked.txt
	$(call STUDY,table2,$(VOC) --rows $* --tasks "classification fc6-8")

# Detection by the untrained network waits for nothing: it finds the regions of all, which takes minutes and no GPU.
define CELL
$(OUT)/$(subst :,-,$(2))/$(1)/table.md: $(OUT)/asked.txt $(if $(filter random-%,$(1)),,$(OUT)/networks/$(1)/table.md) \
		$(if $(filter-out $(REGIONS),$(OUT)/$(subst :,-,$(2))/$(1)),$(if $(filter detection:%,$(2)),$(REGIONS)/table.md) | $(TRAINED))
	$$(call STUDY,table2,$$(VOC) --rows $(1) --tasks "$(subst :, ,$(2))" $$(if $$(OTHERS),--networks-of $$(OTHERS)))
endef
$(foreach row,$(ROWS),$(foreach task,$(LATER),$(eval $(call CELL,$(row),$(task)))))

$(OUT)/whiten.txt:
	@mkdir -p $(OUT) && cd $(DATA)/VOCdevkit/VOC2007 && head -n 1000 ImageSets/Main/trainval.txt | cut -d " " -f 1 | while read -r name; do \
		ls "$$PWD/JPEGImages/$$name".*; done >$(abspath $@)

$(OUT)/table5/table.md: $(TRAINED) | $(OUT)/whiten.txt
	$(call STUDY,table5,--oxford $(DATA)/oxford5k-small --whiten-on $(OUT)/whiten.txt --retrieval-size 480 \
		--rows "supervised AlexNet" "random AlexNet" "DeepCluster AlexNet" --networks-of $(OTHERS))
