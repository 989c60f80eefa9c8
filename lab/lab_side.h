/* One side of a comparison: a kernel's source, frozen under its own name and hash,
 * and the module that is made from it. Built-in variants come through the same door:
 * their embedded source is frozen and compiled like any other. */
#ifndef LAB_SIDE_H
#define LAB_SIDE_H

#include "core/st_error.h"
#include "lab/lab_copies.h"

enum { LAB_PATH_MAX = 1024 };

/* Plain data, for shared memory. */
typedef struct lab_side {
  const stk_op *op;
  bool cuda;                 /* a kernel for a GPU, in CUDA C */
  char given[LAB_PATH_MAX];  /* what the user said: a variant or a file */
  char frozen[LAB_PATH_MAX]; /* the copy: DIR/base/gdn_scan.c */
  char file[64];             /* of it within the report: base/gdn_scan.c */
  char wanted_level[16];     /* empty: the best one that source and CPU have */
  char sha256[65];
  /* Known once it was compiled: */
  char module[LAB_PATH_MAX]; /* the shared object */
  char key[65], variant[64], level[16], compiler[160], flags[1024];
  stk_class numerics;
  bool relaxed_math;
} lab_side;

/* How kernels are compiled. */
typedef struct lab_toolchain {
  const char *cache_dir, *compiler; /* NULL: the usual ones */
  double seconds;
} lab_toolchain;

/* given: a variant of op that lab list shows, or a path (it has a slash or ends in
 * ".c" or ".cu"). Copies the source to directory/place/OP.c (OP.cu), where it must not be
 * yet. ARG: no such variant, or no such file. */
strata_status lab_side_freeze(lab_side *side, const stk_op *op, bool cuda, const char *given,
                              const char *directory, const char *place, strata_error *err);

/* Compiles it if need be, in a child (a module may crash as it is loaded), and
 * notes in side what came of it. */
strata_status lab_side_compile(lab_side *side, const lab_toolchain *tools, strata_error *err);

/* Loaded copies of a compiled side that is for the CPU. */
typedef struct lab_loaded {
  struct st_library *library[LAB_COPIES]; /* NULL: none */
  lab_copies kernels;
} lab_loaded;

/* Loads n copies, 1 to LAB_COPIES; unload also what a failure leaves. */
strata_status lab_side_load(const lab_side *side, int32_t n, lab_loaded *out, strata_error *err);
void lab_side_unload(lab_loaded *loaded);

#endif
