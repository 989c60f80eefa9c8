/* A miniature but complete qwen4_exp model for tests: config.json, weights in
 * one or more safetensors files, and an index if there are several.
 *
 *     char dir[ST_TEST_DIR_BYTES];
 *     st_test_dir_new(dir);
 *     st_test_model_write(dir, &(st_test_model_options){.stacked_experts = true});
 *     ... strata_model_open(engine, dir, ...) ...
 *     st_test_dir_remove(dir);
 *
 * Dimensions are small and no two that could be confused are equal (hidden 40,
 * 3 streams, GDN heads 2/4 of 32/64, attention heads 6/2 of 96, 5 experts of 24,
 * shared 28, ...; st_test_model.c has the list), so swapping two is caught.
 * Layers: GDN, GDN with PLE, QSA, GDN with PLE.
 *
 * Values are pseudo-random, a function of the seed, the tensor's name without
 * prefix and the element's index, and need 8 significant bits: they are exact
 * in F32, F16 and BF16 alike. So the options for prefix, dtype, expert layout,
 * table layout and number of files all give one and the same function; only
 * seed, tied, without_ple and the hooks change it.
 *
 * Every function fails the running cmocka test if something cannot be written. */
#ifndef ST_TEST_MODEL_H
#define ST_TEST_MODEL_H

#include <jansson.h>

#include "model/safetensors/st_safetensors.h"

enum { ST_TEST_DIR_BYTES = 256, ST_TEST_NAME_BYTES = 192 };

/* Makes an empty directory under $TMPDIR or /tmp. */
void st_test_dir_new(char dir[ST_TEST_DIR_BYTES]);
/* Removes the directory and the files in it (it has no subdirectories). */
void st_test_dir_remove(const char *dir);
/* Writes n_bytes to dir/name. */
void st_test_file_write(const char *dir, const char *name, const void *data, size_t n_bytes);

/* Fails the test unless got is want and err says so in a message that contains
 * a and b (either may be NULL). */
void st_test_expect_error(strata_status got, const strata_error *err, strata_status want,
                          const char *a, const char *b);

/* A tensor about to be written. A hook may change anything but data; data are
 * cut or filled up with zeros to what shape and dtype then need. */
typedef struct st_test_tensor {
  char name[ST_TEST_NAME_BYTES]; /* with prefix */
  st_tensor_dtype dtype;
  int64_t shape[ST_TENSOR_DIMS_MAX];
  int32_t n_dims;
  bool skip;     /* leave it out of the files and of the index */
  uint8_t *data; /* row-major, of dtype as it was before the hook */
  size_t n_bytes;
} st_test_tensor;

typedef enum st_test_eos {
  ST_TEST_EOS_SCALAR, /* 96 */
  ST_TEST_EOS_LIST,   /* [96, 3] */
  ST_TEST_EOS_NULL,   /* only valid with without_ple */
} st_test_eos;

/* All zero: text-only layout, F32, one file, experts one by one, untied. */
typedef struct st_test_model_options {
  const char *prefix; /* NULL: "model." */
  st_tensor_dtype matrix_dtype, vector_dtype; /* F32, F16 or BF16 */
  bool stacked_experts;
  bool stacked_odd_layers;     /* stacked in layers 1 and 3 only */
  bool whole_table;            /* the n-gram table in one tensor, else in shards */
  bool without_hash_tensors;   /* leave out the int64 constants */
  bool without_ple;
  bool tied;                   /* no lm_head.weight */
  bool nested_config;          /* under text_config */
  bool unaligned;              /* data begin at an odd byte of the file */
  st_test_eos eos;
  int32_t n_files; /* 0: model.safetensors alone; else that many and an index */
  uint64_t seed;
  /* Hooks, called before writing; each may be NULL. */
  void (*edit_config)(json_t *text_config, void *user);
  void (*edit_tensor)(st_test_tensor *tensor, void *user);
  void *user;
} st_test_model_options;

/* Writes the model's files into dir. */
void st_test_model_write(const char *dir, const st_test_model_options *options);
/* gives config.json's object (json_decref) as written, edit_config applied. */
json_t *st_test_model_config(const st_test_model_options *options);

/* Writes dir/name with the tensors that are not skipped, one after another. */
void st_test_safetensors_write(const char *dir, const char *name, const st_test_tensor *tensors,
                               size_t n, bool unaligned);

#endif
