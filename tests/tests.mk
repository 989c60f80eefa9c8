# Tests. Each tests/<group>/test_*.c is a program of its own (cmocka); the other
# .c files of tests/unit are linked into all of them. tests/run.sh runs and counts.
TEST_SRC   := $(filter-out tests/math/%,$(wildcard tests/*/test_*.c))
TEST_BIN   := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TEST_SRC))
TEST_EXTRA := $(patsubst %.c,$(BUILD)/%.o,$(filter-out tests/unit/test_%,$(wildcard tests/unit/*.c)))

$(BUILD)/tests/%.o: tests/%.c
	@mkdir -p $(@D)
	@echo '  CC    $@'
	$(Q)$(CC) $(BASE) $(CFLAGS) $(PKG_CFLAGS) -Itests/unit -c -o $@ $<

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_EXTRA) $(BUILD)/libstrata.a
	@echo '  LINK  $@'
	$(Q)$(CC) $(LINK) -o $@ $< $(TEST_EXTRA) $(BUILD)/libstrata.a -lcmocka $(PKG_LIBS)

# Its own names must be there for a module to find, so that it is seen not to.
$(BUILD)/tests/unit/test_kload: LINK += -rdynamic

# The shared functions, built once for each CPU level as kernels are.
MATH_OBJ := $(foreach level,$(LEVELS),$(BUILD)/tests/math/math_lanes.$(level).o)
define MATH_RULE
$(BUILD)/tests/math/math_lanes.$(1).o: tests/math/math_lanes.c
	@mkdir -p $$(@D)
	@echo '  CC    $$@'
	$$(Q)$$(CC) $$(BASE) $$(CFLAGS) $(FLAGS_$(1)) -DSTK_LEVEL=$(1) -DSTK_LEVEL_$(1) -c -o $$@ $$<
endef
$(foreach level,$(LEVELS),$(eval $(call MATH_RULE,$(level))))

$(BUILD)/tests/math/test_math: $(BUILD)/tests/math/test_math.o $(MATH_OBJ) $(BUILD)/libstrata.a
	@echo '  LINK  $@'
	$(Q)$(CC) $(LINK) -o $@ $^ -lpthread -lm

# The GPU kernels as C, for the emulator.
EMULATED_OBJ := $(patsubst %.cu,$(BUILD)/%.emulated.o,$(wildcard kernels/*/*.cu))
$(BUILD)/kernels/%.emulated.o: kernels/%.cu
	@mkdir -p $(@D)
	@echo '  CC    $@'
	$(Q)$(CC) $(BASE) $(CFLAGS) -x c -c -o $@ $<

$(BUILD)/tests/cuda/test_emulated $(BUILD)/tests/cuda/test_sizes: %: %.o $(BUILD)/tests/cuda/cuda_emulator.o $(EMULATED_OBJ) $(BUILD)/libstrata.a
	@echo '  LINK  $@'
	$(Q)$(CC) $(LINK) -o $@ $^ -lcmocka $(PKG_LIBS)

# The same behind a driver that is none: the program has the kernels, and finds the two
# libraries where its run path says (the old kind of path, which comes before the
# system's, and which the sanitizers' dlopen knows).
FAKE := $(BUILD)/tests/cuda/fake
$(FAKE)/libcuda.so.1: $(BUILD)/tests/cuda/fake_driver.o
$(FAKE)/libnvrtc.so.13: $(BUILD)/tests/cuda/fake_nvrtc.o
$(FAKE)/libcuda.so.1 $(FAKE)/libnvrtc.so.13:
	@mkdir -p $(@D)
	@echo '  LINK  $@'
	$(Q)$(CC) $(LINK) -shared -o $@ $<

$(BUILD)/tests/cuda/test_lab_device: $(BUILD)/tests/cuda/test_lab_device.o $(BUILD)/tests/cuda/cuda_emulator.o $(EMULATED_OBJ) \
  $(BUILD)/libstrata.a | $(FAKE)/libcuda.so.1 $(FAKE)/libnvrtc.so.13
	@echo '  LINK  $@'
	$(Q)$(CC) $(LINK) -rdynamic -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/fake' -o $@ $^ -lcmocka $(PKG_LIBS)

$(BUILD)/tools/bench_cuda/bench_cuda: tools/bench_cuda/bench_cuda.c $(BUILD)/libstrata.a
	@mkdir -p $(@D)
	@echo '  LINK  $@'
	$(Q)$(CC) $(BASE) $(CFLAGS) $(LINK) -o $@ $< $(BUILD)/libstrata.a $(PKG_LIBS)
bench-cuda: $(BUILD)/tools/bench_cuda/bench_cuda

# Each tests/fuzz/fuzz_NAME.c is a libFuzzer entry: fuzz_NAME searches (MODE=fuzz),
# replay_NAME runs the files it is given.
FUZZ_SRC   := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_BIN   := $(patsubst tests/%.c,$(BUILD)/tests/%,$(FUZZ_SRC))
REPLAY_BIN := $(patsubst tests/fuzz/fuzz_%.c,$(BUILD)/tests/fuzz/replay_%,$(FUZZ_SRC))

$(FUZZ_BIN): $(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/libstrata.a
	@echo '  LINK  $@'
	$(Q)$(CC) -fsanitize=fuzzer,address,undefined -o $@ $^ $(PKG_LIBS)

$(REPLAY_BIN): $(BUILD)/tests/fuzz/replay_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/replay_main.o $(BUILD)/libstrata.a
	@echo '  LINK  $@'
	$(Q)$(CC) $(LINK) -o $@ $^ $(PKG_LIBS)

.PRECIOUS: $(BUILD)/tests/%.o
unit: $(filter $(BUILD)/tests/unit/%,$(TEST_BIN))
tests: $(TEST_BIN) $(BUILD)/tests/math/test_math $(BUILD)/tests/instructions/scan_repeat \
  $(BUILD)/tests/cross/case_hashes
replays: $(REPLAY_BIN)
fuzzers: $(FUZZ_BIN)

# ---- gates -------------------------------------------------------------------
# Set-up may bring the compiler itself, so the build is a make of its own, run by
# the script. The variables reach it through the environment.
T ?= 20
MATH_STRIDE ?= 1
export BUILD CC

demo:
	@demo/demo.sh

check:
	@tools/setup.sh test
	@tests/run.sh check

check-full:
	@tools/setup.sh full
	@FUZZ_SECONDS=$(T) MATH_STRIDE=$(MATH_STRIDE) tests/run.sh check-full

check-gpu:
	@tests/run.sh check-gpu

fuzz:
	@tools/setup.sh full
	@FUZZ_SECONDS=$(T) tests/run.sh fuzz

.PHONY: unit tests replays fuzzers demo check check-full check-gpu fuzz
