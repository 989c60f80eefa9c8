# strata -- the only build description. `make help` lists what it does.
#
# On a machine without a compiler this file must still be readable: `make demo`
# and `make check` install what is missing and then call make again.
#
# Sources are found by wildcard. A kernel source kernels/<op>/<op>*.c names the
# CPU levels it is built for in its first comment ("isa: scalar avx2 avx512 neon"),
# and in the next line flags of its own ("flags: -O3"), both read by src/kload too;
# oracles (*_oracle.c) are built once, plainly. Objects, the library and the
# program go to build/ (BUILD=dir for another).

# V=1 shows whole commands.
V ?= 0
Q := $(if $(filter 1,$(V)),,@)

CC      ?= cc
PREFIX  ?= /usr/local
DESTDIR ?=
VERSION := 0.1.0
SOVERSION := 0
# release, or for tests: sanitize (ASan, UBSan), thread (TSan), fuzz (libFuzzer,
# needs CC=clang). The objects of each lie in a folder of their own.
MODE    ?= release
BUILD   ?= build$(if $(filter-out release,$(MODE)),/$(MODE))
PACKAGES := jansson libpcre2-8 libutf8proc libxxhash libmd

WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
        -Wno-unknown-pragmas
OPT_release  := -O2
OPT_sanitize := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_thread   := -O1 -fsanitize=thread
OPT_fuzz     := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
OPT  := $(OPT_$(MODE))
# What decides about a kernel's code, linked in or compiled at run time (src/kload). Lines
# and names are enough for a backtrace; all of -g is 30 % of the time of compiling.
CODE := -std=c17 -g1 -ffp-contract=off -fvisibility=hidden -fPIC -D_GNU_SOURCE=
BASE := $(CODE) $(OPT) $(WARN) -MMD -MP \
        -Iinclude -Isrc -Ikernels -I$(BUILD)/generated -I.
LINK := $(filter -fsanitize%,$(OPT)) $(LDFLAGS)
PKG_CFLAGS = $(shell pkg-config --cflags $(PACKAGES))
PKG_LIBS   = $(shell pkg-config --libs $(PACKAGES)) -lpthread -lm

# ---- CPU levels --------------------------------------------------------------
ARCH := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
LEVELS_x86_64 := scalar avx2 avx512
LEVELS_aarch64 := scalar neon
LEVELS := $(or $(LEVELS_$(ARCH)),scalar)
FLAGS_scalar :=
FLAGS_avx2   := -mavx2 -mfma -mf16c
FLAGS_neon   :=
FLAGS_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c

# ---- sources -----------------------------------------------------------------
LIB_SRC    := $(wildcard src/*/*.c src/*/*/*.c lab/*.c)
CLI_SRC    := $(wildcard cli/*.c)
OP_SRC     := $(wildcard kernels/*/*_op.c kernels/*/*_cuda_plan.c)
ORACLE_SRC := $(wildcard kernels/*/*_oracle.c)
KERNEL_SRC := $(filter-out $(OP_SRC) $(ORACLE_SRC),$(wildcard kernels/*/*.c))

# The flags that a kernel asks for in the second line of its first comment.
ASKED_FLAGS = $(shell awk 'NR == 2 && /^[ \t*]*flags:/ {sub(/.*flags:/, ""); sub(/\*\/.*/, ""); print} \
              NR == 2 {exit}' $1)
# "path level" pairs from the first comments, one awk for all kernels.
PAIRS := $(if $(KERNEL_SRC),$(shell awk 'FNR==1 && /isa:/ {sub(/.*isa:/,""); sub(/\*\/.*/,""); \
         for (i=1; i<=NF; i++) print FILENAME "@" $$i}' $(KERNEL_SRC)))
PAIRS := $(foreach p,$(PAIRS),$(if $(filter $(lastword $(subst @, ,$p)),$(LEVELS)),$p))

LIB_OBJ    := $(LIB_SRC:%.c=$(BUILD)/%.o)
# KERNELS=dir takes kernels as they lie in another build: those of a sanitized build take
# minutes to compile, and they read no foreign bytes. Ops do: the args of a trace.
KERNELS    ?= $(BUILD)
OP_OBJ     := $(OP_SRC:%.c=$(BUILD)/%.o) $(ORACLE_SRC:%.c=$(KERNELS)/%.o)
KERNEL_OBJ := $(foreach p,$(PAIRS),$(KERNELS)/$(basename $(firstword $(subst @, ,$p))).$(lastword $(subst @, ,$p)).o)
ALL_OBJ    := $(LIB_OBJ) $(OP_OBJ) $(KERNEL_OBJ)
CLI_OBJ    := $(CLI_SRC:%.c=$(BUILD)/%.o)

all: $(BUILD)/strata $(BUILD)/libstrata.so.$(VERSION)

# Says what to install before a compiler stumbles over it.
$(ALL_OBJ) $(CLI_OBJ): | packages
packages:
	@tools/setup.sh --check build

$(BUILD)/strata: $(CLI_OBJ) $(BUILD)/libstrata.a
	@echo '  LINK  $@'
	$(Q)$(CC) $(LINK) -o $@ $(CLI_OBJ) $(BUILD)/libstrata.a $(PKG_LIBS)

$(BUILD)/libstrata.a: $(ALL_OBJ)
	@rm -f $@
	@echo '  AR    $@'
	$(Q)ar rcs $@ $(ALL_OBJ)

$(BUILD)/libstrata.so.$(VERSION): $(ALL_OBJ)
	@echo '  LINK  $@'
	$(Q)$(CC) $(LINK) -shared -Wl,-soname,libstrata.so.$(SOVERSION) -Wl,-Bsymbolic -o $@ $(ALL_OBJ) $(PKG_LIBS)

$(BUILD)/src/%.o: src/%.c
	@mkdir -p $(@D)
	@echo '  CC    $@'
	$(Q)$(CC) $(BASE) $(CFLAGS) $(PKG_CFLAGS) -c -o $@ $<

# The kernels' sources lie in the library as they are (src/kreg/st_source.h): one row
# a file, and the object that holds them is made anew when one of them changes.
EMBEDDED     := $(sort include/strata/kernel.h $(filter-out $(OP_SRC) $(ORACLE_SRC),\
                $(wildcard $(addprefix kernels/*/*.,c h inc cu))))
EMBEDDED_ROW  = 'ST_SOURCE($(subst .,_,$(subst /,_,$1)), "$(patsubst include/%,%,$(1:kernels/%=%))", "$1")'
SOURCE_ROWS  := $(BUILD)/generated/kreg/st_sources.inc
$(SOURCE_ROWS): always
	@mkdir -p $(@D)
	@printf '%s\n' $(foreach file,$(EMBEDDED),$(call EMBEDDED_ROW,$(file))) >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(BUILD)/src/kreg/st_source.o: $(SOURCE_ROWS) $(EMBEDDED)

# The flags of kernels, for those that are compiled at run time: of all, and of each level.
FLAG_ROWS := $(BUILD)/generated/kload/st_kernel_flags.inc
$(FLAG_ROWS): always
	@mkdir -p $(@D)
	@printf '%s\n' 'ST_KERNEL_FLAGS(base, "$(CODE) $(OPT_release) $(CFLAGS)")' \
	  $(foreach level,$(LEVELS),'ST_KERNEL_FLAGS($(level), "$(FLAGS_$(level))")') >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(BUILD)/src/kload/st_kcompile.o: $(FLAG_ROWS)

$(BUILD)/lab/%.o: lab/%.c
	@mkdir -p $(@D)
	@echo '  CC    $@'
	$(Q)$(CC) $(BASE) $(CFLAGS) $(PKG_CFLAGS) -c -o $@ $<

# Ceilings that were kept count only for the sources that measured them.
ROOF_SRC := $(wildcard kernels/roof/*.[ch]) src/device/cpu/st_roof.c lab/lab_ceilings.c
$(BUILD)/lab/lab_ceilings.o: CFLAGS += -DLAB_ROOF_SOURCES='"$(shell cat $(ROOF_SRC) | cksum | tr ' ' -)"'
$(BUILD)/lab/lab_ceilings.o: $(ROOF_SRC)

# The program knows where the shipped model is installed, so it is compiled anew
# when PREFIX changes.
$(CLI_OBJ): $(BUILD)/prefix
$(BUILD)/prefix: always
	@mkdir -p $(@D)
	@echo '$(PREFIX)' | cmp -s - $@ || echo '$(PREFIX)' >$@

$(BUILD)/cli/%.o: cli/%.c
	@mkdir -p $(@D)
	@echo '  CC    $@'
	$(Q)$(CC) $(BASE) $(CFLAGS) $(PKG_CFLAGS) -DSTRATA_DATADIR='"$(PREFIX)/share/strata"' -c -o $@ $<

$(filter %_op.o %_plan.o,$(OP_OBJ)): $(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo '  CC    $@'
	$(Q)$(CC) $(BASE) $(CFLAGS) -c -o $@ $<

# The truth must not depend on what an optimiser does with it.
$(BUILD)/kernels/%_oracle.o: kernels/%_oracle.c
	@mkdir -p $(@D)
	@echo '  CC    $@'
	$(Q)$(CC) $(BASE) -O1 -c -o $@ $<

define LEVEL_RULE
$(BUILD)/kernels/%.$(1).o: kernels/%.c
	@mkdir -p $$(@D)
	@echo '  CC    $$@'
	$$(Q)$$(CC) $$(BASE) $$(CFLAGS) $(FLAGS_$(1)) $$(call ASKED_FLAGS,$$<) -DSTK_LEVEL=$(1) -DSTK_LEVEL_$(1) -c -o $$@ $$<
endef
$(foreach level,$(LEVELS),$(eval $(call LEVEL_RULE,$(level))))

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

# ---- install -----------------------------------------------------------------
BINDIR     := $(DESTDIR)$(PREFIX)/bin
LIBDIR     := $(DESTDIR)$(PREFIX)/lib
INCLUDEDIR := $(DESTDIR)$(PREFIX)/include/strata
MANDIR     := $(DESTDIR)$(PREFIX)/share/man/man1
DATADIR    := $(DESTDIR)$(PREFIX)/share/strata
DOCDIR     := $(DESTDIR)$(PREFIX)/share/doc/strata
MODEL      := models/strata-tiny

define PC_FILE
prefix=$(PREFIX)
libdir=$${prefix}/lib
includedir=$${prefix}/include

Name: strata
Description: Runs language models on the CPU
Version: $(VERSION)
Requires.private: $(PACKAGES)
Libs: -L$${libdir} -lstrata
Libs.private: -lpthread -lm
Cflags: -I$${includedir}
endef
export PC_FILE

install: all
	@install -d $(BINDIR) $(LIBDIR)/pkgconfig $(INCLUDEDIR) $(MANDIR) $(DATADIR)/$(MODEL) $(DOCDIR)
	install -m 755 $(BUILD)/strata $(BINDIR)/strata
	install -m 644 $(BUILD)/libstrata.a $(LIBDIR)/libstrata.a
	install -m 755 $(BUILD)/libstrata.so.$(VERSION) $(LIBDIR)/libstrata.so.$(VERSION)
	@ln -sf libstrata.so.$(VERSION) $(LIBDIR)/libstrata.so.$(SOVERSION)
	@ln -sf libstrata.so.$(SOVERSION) $(LIBDIR)/libstrata.so
	@printf '%s\n' "$$PC_FILE" >$(LIBDIR)/pkgconfig/strata.pc
	install -m 644 include/strata/*.h $(INCLUDEDIR)
	install -m 644 docs/strata.1 $(MANDIR)/strata.1
	install -m 644 $(MODEL)/* $(DATADIR)/$(MODEL)
	install -m 644 LICENSE $(DOCDIR)/LICENSE

uninstall:
	rm -f $(BINDIR)/strata $(LIBDIR)/libstrata.a $(LIBDIR)/libstrata.so* \
	  $(LIBDIR)/pkgconfig/strata.pc $(MANDIR)/strata.1
	rm -rf $(INCLUDEDIR) $(DATADIR) $(DOCDIR)

clean:
	rm -rf $(BUILD)

help:
	@echo 'make             build the program and the libraries in $(BUILD)/'
	@echo 'make demo        set up, build, and let the shipped model write and remember'
	@echo 'make check       set up, build, and run the tests (under five minutes on two cores of Zen 5, eight on Zen 1)'
	@echo 'make check-full  and with sanitizers, at each CPU level, for aarch64, all floats, fuzzers'
	@echo 'make check-gpu   test the GPU kernels'
	@echo 'make fuzz        only the fuzzers, T=20 seconds each'
	@echo 'make install     to PREFIX=/usr/local, below DESTDIR if given; make uninstall'
	@echo 'make clean       remove $(BUILD)/'
	@echo
	@echo 'V=1 shows whole commands; CC, CFLAGS, LDFLAGS, BUILD and MODE may be set.'

include tests/tests.mk

.PHONY: all always packages install uninstall clean help
