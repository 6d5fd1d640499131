# What transfer.mk leaves out: tables 3 and 4, VGG-16's rows of table 5, pic and mlp, of networks that learn for few epochs,
# from nothing on one GPU.
#
#   make -f benchmarks/short.mk -j 8 DATA=folder OUT=folder [EPOCHS=8] [TASKS="detection:fc6-8 ..."] [LEND="studies to take from"] [FLAGS="flags of reproduce"]
#
# DATA holds tiny-imagenet-100/ and places-50/ (train/, val/), VOCdevkit/ and oxford5k-small/. The name of a table as a target makes
# that alone. The supervised networks go through the images as often as ours, AlexNet and VGG-16 alike. A lane is a row
# of a study, which learns in a folder of its own; when all have learnt, each is judged in all tasks, several beside each other (as in transfer.mk,
# which says why; nvidia-cuda-mps-control -d), and tables are put together of what the lanes came to.
# The same command goes on where it was stopped. Names of folders must have no spaces.
SHELL := bash
.SHELLFLAGS := -eo pipefail -c
.DELETE_ON_ERROR:
$(if $(DATA),,$(error say where the images are: DATA=folder))
$(if $(OUT),,$(error say where all of it is to be kept: OUT=folder))
DEEPCLUSTER ?= deepcluster
EPOCHS ?= 8
PASSES ?= $(shell echo $$((2 * $(EPOCHS))))
TASKS ?= classification:fc6-8 detection:fc6-8 segmentation:fc6-8
DEEP_TASKS ?= classification:fc6-8 detection:fc6-8
# Study and row, in which + is a space. VGG-16 takes longest, so it comes first. The untrained AlexNet finds the regions of all.
DEEP := $(addsuffix +VGG-16,table4/DeepCluster table4/supervised table4/random)
FLAT := table2/random-sobel table2/DeepCluster table2/supervised pic/PIC table3/curated table3/uncurated
REGIONS := table2/random-sobel
NETWORKS := $(patsubst %,$(OUT)/networks/%/table.md,$(DEEP) $(FLAT))
judged = $(patsubst %,$(OUT)/judged/%/table.md,$(1))
quoted = $(foreach one,$(1),"$(subst :, ,$(one))")
# The studies that a target waits for and takes from.
OTHERS = $(LEND) $(patsubst %/table.md,%,$(filter %/table.md,$^))
COMMON = --data $(DATA)/tiny-imagenet-100 --preset small-alexnet --epochs $(EPOCHS) --seeds 0 \
	--supervised-steps 0.05 --supervised-decays 2e-3 --supervised-epochs $(PASSES) $(FLAGS)
VOC = --voc $(DATA)/VOCdevkit
SECOND = --second $(DATA)/places-50
# A study with a log beside its folder; what is wrong is the log's last line.
STUDY = @mkdir -p $(dir $(@D)) && { $(DEEPCLUSTER) reproduce $(1) $(COMMON) $(2) --out $(@D) >$(@D).log 2>&1 \
	&& echo "$$(date +%T) $(@D)" || { echo "$(@D) failed: $$(tail -n 1 $(@D).log)" >&2; exit 1; }; }
# A lane in these tasks.
LANE = $(call STUDY,$(firstword $(subst /, ,$*)),$(VOC) $(if $(filter table3/%,$*),$(SECOND)) \
	--rows "$(subst +, ,$(notdir $*))" --tasks $(call quoted,$(1)) $(if $(OTHERS),--networks-of $(OTHERS)))

TABLES := table3 table4 table5 pic mlp
.PHONY: all $(TABLES)
all: $(TABLES)
$(TABLES): %: $(OUT)/%/table.md

$(OUT)/networks/%/table.md:
	$(call LANE,$(if $(filter $(REGIONS),$*),detection:fc6-8,classification:fc6-8))

$(OUT)/judged/%/table.md: $(OUT)/networks/%/table.md $(OUT)/networks/$(REGIONS)/table.md | $(NETWORKS)
	$(call LANE,$(if $(filter $(DEEP),$*),$(DEEP_TASKS),$(TASKS)))

$(OUT)/table3/table.md: $(call judged,$(filter-out pic/%,$(FLAT)))
	$(call STUDY,table3,$(VOC) $(SECOND) --tasks $(call quoted,$(TASKS)) --networks-of $(OTHERS))

$(OUT)/table4/table.md: $(call judged,$(filter table2/%,$(FLAT)) $(DEEP))
	$(call STUDY,table4,$(VOC) --tasks $(call quoted,$(DEEP_TASKS)) --networks-of $(OTHERS))

$(OUT)/pic/table.md: $(call judged,$(filter-out table3/%,$(FLAT)))
	$(call STUDY,pic,$(VOC) --tasks $(call quoted,$(TASKS)) --networks-of $(OTHERS))

$(OUT)/mlp/table.md: $(patsubst %,$(OUT)/networks/%/table.md,$(FLAT)) | $(NETWORKS)
	$(call STUDY,mlp,$(SECOND) --networks-of $(OTHERS))

$(OUT)/whiten.txt:
	@mkdir -p $(OUT) && cd $(DATA)/VOCdevkit/VOC2007 && head -n 1000 ImageSets/Main/trainval.txt | cut -d " " -f 1 | while read -r name; do \
		ls "$$PWD/JPEGImages/$$name".*; done >$(abspath $@)

# Its supervised VGG-16 on colours would be one more training of minutes.
$(OUT)/table5/table.md: $(patsubst %,$(OUT)/networks/%/table.md,$(filter table2/%,$(FLAT)) $(DEEP)) | $(NETWORKS) $(OUT)/whiten.txt
	$(call STUDY,table5,--oxford $(DATA)/oxford5k-small --whiten-on $(OUT)/whiten.txt --retrieval-size 480 --networks-of $(OTHERS) \
		--rows $(foreach row,supervised random DeepCluster,"$(row) AlexNet" "$(row) VGG-16"))
