/* kernel.h -- what the author of a kernel sees.
 *
 * An op is a contract (kernels/<op>/<op>.h): an args struct, the mathematics,
 * the order of every sum. A kernel is one implementation of it: one source file
 * that defines one descriptor with STK_KERNEL and one function
 *
 *     void run(const void *args, int32_t part, int32_t n_parts)
 *
 * which does slice `part` of `n_parts` of the work. Parts run at the same time
 * on different threads, write no common element, and the bytes of the result
 * do not depend on n_parts. Nothing can fail in run: the contract's check was
 * called when the plan was built. A kernel allocates, prints, locks nothing and
 * keeps no static mutable data.
 *
 * The CPU levels of a source stand in its first comment, "isa: avx2 avx512", and in
 * the next line further flags, "flags: -O3"; the Makefile and the loader of modules
 * (docs/add-a-kernel.md) read them. */
#ifndef STRATA_KERNEL_H
#define STRATA_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#define STK_ABI 1u

typedef enum stk_dtype { STK_F32, STK_F16, STK_BF16, STK_I32, STK_I64, STK_U8 } stk_dtype;

static inline size_t stk_dtype_bytes(stk_dtype dtype) {
  switch (dtype) {
    case STK_F16:
    case STK_BF16: return 2;
    case STK_I64: return 8;
    case STK_U8: return 1;
    case STK_F32:
    case STK_I32: break;
  }
  return 4;
}

/* A weight matrix as it lies in the file: row-major [n_rows][n_cols], dense,
 * F32, F16 or BF16, aligned to its element only. */
typedef struct stk_matrix {
  const void *data;
  stk_dtype dtype;
  int32_t n_rows, n_cols;
} stk_matrix;

typedef enum stk_class {
  STK_EXACT, /* the oracle's bytes, on any split, thread count and ISA */
  STK_FAST,  /* within the contract's bound; the same bytes run after run */
} stk_class;

typedef struct stk_kernel {
  uint32_t abi;          /* STK_ABI */
  uint32_t struct_bytes; /* sizeof(stk_kernel) */
  uint32_t contract;     /* STK_<OP>_CONTRACT of the header it was built with */
  uint32_t args_bytes;   /* size of the op's args struct */
  const char *op;        /* "linear" */
  const char *variant;   /* "avx2"; shown as linear.avx2 */
  const char *isa;       /* the CPU level it needs: scalar, avx2, avx512, neon */
  stk_class numerics;
  void (*run)(const void *args, int32_t part, int32_t n_parts);
} stk_kernel;

/* Defines the descriptor: STK_KERNEL(linear, avx2, "avx2", STK_LINEAR_CONTRACT,
 * stk_linear_args, STK_EXACT, run). Linked into the program its name is unique;
 * built alone as a module (STK_MODULE) its name is fixed and exported. */
#ifdef STK_MODULE
#define STK_KERNEL(op_, variant_, isa_, contract_, args_type_, class_, run_)        \
  __attribute__((visibility("default"))) extern const stk_kernel stk_module_kernel; \
  const stk_kernel stk_module_kernel =                                              \
      STK_KERNEL_FIELDS(op_, variant_, isa_, contract_, args_type_, class_, run_)
#else
#define STK_KERNEL(op_, variant_, isa_, contract_, args_type_, class_, run_) \
  extern const stk_kernel stk_##op_##__##variant_;                           \
  const stk_kernel stk_##op_##__##variant_ =                                 \
      STK_KERNEL_FIELDS(op_, variant_, isa_, contract_, args_type_, class_, run_)
#endif
#define STK_KERNEL_FIELDS(op_, variant_, isa_, contract_, args_type_, class_, run_)              \
  {.abi = STK_ABI, .struct_bytes = sizeof(stk_kernel), .contract = (contract_),                  \
   .args_bytes = sizeof(args_type_), .op = #op_, .variant = #variant_, .isa = (isa_),            \
   .numerics = (class_), .run = (run_)}

/* For a source that is built once for each CPU level its first comment names
 * (-DSTK_LEVEL_<level> -DSTK_LEVEL=<level>): the variant is the level. */
#ifdef STK_LEVEL
#define STK_STRINGIZE_(x) #x
#define STK_STRINGIZE(x) STK_STRINGIZE_(x)
#define STK_KERNEL_EXPAND(op_, level_, contract_, args_type_, class_, run_) \
  STK_KERNEL(op_, level_, STK_STRINGIZE(level_), contract_, args_type_, class_, run_)
#define STK_KERNEL_LEVEL(op_, contract_, args_type_, class_, run_) \
  STK_KERNEL_EXPAND(op_, STK_LEVEL, contract_, args_type_, class_, run_)
/* A further variant of an op at the same level: avx2_<tag>. It is never chosen by
 * itself, only by name. */
#define STK_KERNEL_TAG_NAME(op_, level_, tag_, contract_, args_type_, class_, run_)               \
  STK_KERNEL(op_, level_##_##tag_, STK_STRINGIZE(level_), contract_, args_type_, class_, run_)
#define STK_KERNEL_TAG_EXPAND(op_, level_, tag_, contract_, args_type_, class_, run_) \
  STK_KERNEL_TAG_NAME(op_, level_, tag_, contract_, args_type_, class_, run_)
#define STK_KERNEL_TAGGED(op_, tag_, contract_, args_type_, class_, run_) \
  STK_KERNEL_TAG_EXPAND(op_, STK_LEVEL, tag_, contract_, args_type_, class_, run_)
#endif

/* The slice of 0 .. n-1 that belongs to part: [*begin, *end). Cuts at multiples
 * of unit (the last slice takes the rest). */
static inline void stk_slice(int64_t n, int64_t unit, int32_t part, int32_t n_parts,
                             int64_t *begin, int64_t *end) {
  int64_t n_units = (n + unit - 1) / unit;
  *begin = n_units * part / n_parts * unit;
  *end = n_units * (part + 1) / n_parts * unit;
  if (*begin > n) *begin = n;
  if (*end > n) *end = n;
}

/* ---- what an op says about its args: for tests, lab, profile and docs ------- */

typedef enum stk_role { STK_IN, STK_OUT, STK_INOUT } stk_role;

/* How a test fills an input. */
typedef enum stk_fill {
  STK_FILL_NONE,    /* an output, or set up by the op itself */
  STK_FILL_UNIFORM, /* in [low, high] */
  STK_FILL_INDEX,   /* integers 0 .. high - 1 */
  STK_FILL_UNREAD,  /* a kernel must not read it: bytes that would mislead it */
} stk_fill;

typedef struct stk_tensor {
  const char *name;
  void **slot; /* the pointer in the args struct */
  size_t n;    /* elements */
  stk_dtype dtype;
  stk_role role;
  stk_fill fill;
  double low, high;
} stk_tensor;

enum { STK_TENSORS_MAX = 24, STK_PARAMS_MAX = 12 };

/* A number in the args struct that a user may set, by the name that the contract's
 * shapes give it, the same in all ops:
 *
 *   T  tokens            Hk, Hv  key and value heads    N0 .. N4  rows of a matrix
 *   pos0  first position Dk, Dv  their sizes            K   columns of it
 *   S  residual streams  E, k    experts, used ones     C   channels
 *   H  hidden size       F, Fs   their sizes, shared    taps  of a convolution
 *   V  rows of a table   W  their width                 rows  their type (common/k_rows.h)
 * and others as the contract has them.
 *
 * A name with a bit is a switch: 1 if this bit of *slot is set, 0 if not. So "f32"
 * of gdn_post asks for the f32 output beside the f16 one. */
typedef struct stk_param {
  const char *name;
  int32_t *slot;
  int32_t bit; /* 0: the parameter is *slot itself */
} stk_param;

static inline int32_t stk_param_get(const stk_param *param) {
  return param->bit ? (*param->slot & param->bit) != 0 : *param->slot;
}

/* A switch takes 0 or 1. The op's derive and check come after the last one. */
static inline void stk_param_set(const stk_param *param, int32_t value) {
  if (!param->bit) *param->slot = value;
  else if (value) *param->slot |= param->bit;
  else *param->slot &= ~param->bit;
}

/* Operations and bytes of one run: the floor of its time is
 * max(flops / peak, bytes / bandwidth). A fused multiply-add is two flops;
 * weight_bytes and state_bytes are touched once by any implementation. */
typedef struct stk_work {
  double flops, weight_bytes, state_bytes, io_bytes;
} stk_work;

typedef struct stk_op {
  const char *name;
  uint32_t contract;
  size_t args_bytes;
  const stk_kernel *oracle;
  /* NULL, or what is wrong with the args' shapes, as one line. */
  const char *(*check)(const void *args);
  /* Fills tensors (at most STK_TENSORS_MAX) for args whose shapes are set;
   * returns how many. */
  int32_t (*tensors)(void *args, stk_tensor *tensors);
  /* Optional: makes filled inputs consistent (index ranges and the like). */
  void (*prepare)(void *args, uint64_t seed);
  void (*work)(const void *args, stk_work *work);
  /* Test shapes: n_cases args structs with NULL pointers. */
  const void *cases;
  int32_t n_cases;
  /* Optional: fills params (at most STK_PARAMS_MAX); returns how many. */
  int32_t (*params)(void *args, stk_param *params);
  /* Optional: sets the fields that follow from the parameters, such as strides. */
  void (*derive)(void *args);
  /* Optional: args with NULL pointers, of the shape that timings take: that of the
   * released model of 48 layers at T = 512. A table of which a call reads single
   * rows, and experts whose weights a test makes, may be fewer, so that they fit:
   * still many times what a cache holds. */
  const void *released;
  /* For kernels of class STK_FAST: the relative L2 distance to the oracle that each
   * f32 or f16 output may have. 0: the op has no such kernels. */
  double fast_bound;
  /* Optional, where one result may be stored in several ways: brings the outputs of a
   * finished run to one of them, so that distances mean something. Twice is as once. */
  void (*settle)(void *args);
  /* Optional, for copying a call of the engine, whose args may have more pointers than
   * tensors says, tables of pointers (U8) that lead anywhere, and bytes between fields.
   * shape fills zeroed args without pointers, whose tensors can hold all that the call
   * reads and writes; it returns NULL, or what stands against that, as one line. */
  const char *(*shape)(const void *args, void *shape);
  /* Where a tensor is such a table: link lets it lead into the tensor that a test has
   * for its memory; sizes may be forged, so addresses are computed as integers, which
   * may wrap, and are looked at before use. piece tells where stretch i of what the
   * tables lead to begins and returns its bytes, 0 past the last one; the same i is the
   * same data in all args of a shape, and after link no shorter than anywhere else. */
  void (*link)(void *args);
  size_t (*piece)(const void *args, int32_t i, void **data);
} stk_op;

/* Defines stk_<op>_op from the file-static check, tensors, work and cases and
 * the oracle's descriptor; PREPARE is a function or NULL. The other optional
 * fields follow by name: .params = params, .released = &released. */
#define STK_OP(op_, contract_, args_type_, prepare_, ...)                                    \
  extern const stk_kernel stk_##op_##__oracle;                                               \
  const stk_op stk_##op_##_op = {                                                            \
      .name = #op_, .contract = (contract_), .args_bytes = sizeof(args_type_),               \
      .oracle = &stk_##op_##__oracle, .check = check, .tensors = tensors,                    \
      .prepare = (prepare_), .work = work, .cases = cases,                                   \
      .n_cases = (int32_t)(sizeof cases / sizeof *cases), __VA_ARGS__}

/* A row of an op's parameter list; FIELD is an int32_t in the args struct. */
#define STK_PARAM(name_, field_) ((stk_param){(name_), &(field_), 0})

/* A row of an op's tensor list; FIELD is a pointer in the args struct. */
#define STK_TENSOR(name_, field_, n_, dtype_, role_, fill_, low_, high_) \
  ((stk_tensor){(name_), (void **)(void *)&(field_), (size_t)(n_), (dtype_), (role_), (fill_), (low_), (high_)})

/* ---- kernels for GPUs ------------------------------------------------------------ */

/* What a plan may ask about the GPU: its processors, and the most shared memory that a
 * block can have. */
typedef struct stk_cuda_chip {
  int32_t n_processors, shared_bytes_max;
} stk_cuda_chip;

/* How a kernel is launched: blocks in three dimensions, threads of a block, shared
 * memory of a block, blocks of a cluster (0: none), and what the source is compiled
 * with ("-DGDN_DK=128"). */
typedef struct stk_cuda_launch {
  uint32_t grid[3], block, shared_bytes, cluster;
  char options[128];
} stk_cuda_launch;

/* A kernel in CUDA C: a source that begins an entry with KC_KERNEL (common/k_cuda.h)
 * and takes the op's args struct by value, its pointers into the device's memory. */
typedef struct stk_cuda_kernel {
  const char *op, *variant;
  const char *source; /* "gdn_scan/gdn_scan_cuda.cu", below kernels/ */
  const char *entry;
  uint32_t contract, args_bytes;
  stk_class numerics;
  /* NULL, or why the kernel does not take these shapes on this chip, as one line. */
  const char *(*plan)(const void *args, const stk_cuda_chip *chip, stk_cuda_launch *launch);
} stk_cuda_kernel;

/* Defines the descriptor of an entry: stk_cuda_<entry>. */
#define STK_CUDA_KERNEL(op_, variant_, entry_, contract_, args_type_, class_, plan_)         \
  extern const stk_cuda_kernel stk_cuda_##entry_;                                            \
  const stk_cuda_kernel stk_cuda_##entry_ = {                                                \
      .op = #op_, .variant = #variant_, .source = #op_ "/" #entry_ ".cu", .entry = #entry_,  \
      .contract = (contract_), .args_bytes = sizeof(args_type_), .numerics = (class_), .plan = (plan_)}

#endif
