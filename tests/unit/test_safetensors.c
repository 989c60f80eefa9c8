/* The safetensors container: what is read, and that each kind of damage is
 * refused with a message that names the file and the tensor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/st_mem.h"
#include "model/safetensors/st_safetensors.h"
#include "st_test_model.h"

#define ENTRY(name, dtype, shape, begin, end)                                          \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin \
  "," end "]}"

/* gives a file image: a header of this length and text, then zeros. The block
 * has no byte to spare, so that the address sanitizer sees any over-read. */
static uint8_t *new_image(uint64_t header_length, const char *text, size_t data_bytes,
                          size_t *n_bytes) {
  size_t text_bytes = strlen(text);
  *n_bytes = 8 + text_bytes + data_bytes;
  uint8_t *image = calloc(*n_bytes, 1);
  assert_non_null(image);
  for (int32_t i = 0; i < 8; i++) image[i] = (uint8_t)(header_length >> 8 * i);
  memcpy(image + 8, text, text_bytes);
  return image;
}

static strata_status parse(const char *text, size_t data_bytes, strata_error *err) {
  size_t n_bytes;
  st_safetensors *set = NULL;
  uint8_t *image = new_image(strlen(text), text, data_bytes, &n_bytes);
  strata_status status = st_safetensors_parse("LABEL", image, n_bytes, &set, err);
  if (status != STRATA_OK) assert_null(set);
  st_safetensors_close(&set);
  assert_null(set);
  free(image);
  return status;
}

/* ---- one image ------------------------------------------------------------ */

static void reads_what_was_written(void **state) {
  (void)state;
  static const char text[] =
      "{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("b", "BF16", "[2,3]", "4", "16") ","
      ENTRY("a", "F32", "[]", "0", "4") "," ENTRY("c", "I64", "[0,7]", "16", "16") "}   ";
  size_t n_bytes;
  st_safetensors *set;
  uint8_t *image = new_image(strlen(text), text, 20, &n_bytes); /* 4 bytes unused at the end */
  assert_int_equal(st_safetensors_parse("LABEL", image, n_bytes, &set, NULL), STRATA_OK);
  assert_int_equal(st_safetensors_count(set), 3);
  assert_string_equal(st_safetensors_path(set), "LABEL");
  const st_tensor *a = st_safetensors_at(set, 0), *b = st_safetensors_at(set, 1);
  const st_tensor *c = st_safetensors_find(set, "c");
  assert_string_equal(a->name, "a");
  assert_int_equal(a->n_dims, 0);
  assert_int_equal(a->n_elems, 1);
  assert_ptr_equal(b, st_safetensors_find(set, "b"));
  assert_ptr_equal(b->data, image + 8 + strlen(text) + 4);
  assert_int_equal(b->dtype, ST_DTYPE_BF16);
  assert_int_equal(b->shape[0], 2);
  assert_int_equal(b->shape[1], 3);
  assert_int_equal(b->n_bytes, 12);
  assert_string_equal(b->file, "LABEL");
  assert_int_equal(c->n_elems, 0);
  assert_null(st_safetensors_find(set, "d"));
  assert_null(st_safetensors_find(set, "__metadata__"));
  st_safetensors_close(&set);
  free(image);
}

static void accepts_no_tensors(void **state) {
  (void)state;
  strata_error err;
  st_safetensors *none = NULL;
  assert_int_equal(parse("{}", 0, &err), STRATA_OK);
  st_safetensors_close(&none); /* closing nothing is allowed */
}

static void knows_each_dtype(void **state) {
  (void)state;
  static const struct {
    const char *name;
    size_t n_bytes;
  } rows[] = {{"F32", 4},     {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"I64", 8},
              {"I32", 4},     {"I16", 2}, {"I8", 1},   {"U64", 8}, {"U32", 4},
              {"U16", 2},     {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[256];
    strata_error err;
    snprintf(text, sizeof text, "{" ENTRY("x", "%s", "[3]", "0", "%zu") "}", rows[i].name,
             3 * rows[i].n_bytes);
    assert_int_equal(parse(text, 24, &err), STRATA_OK);
    assert_string_equal(st_tensor_dtype_name((st_tensor_dtype)i), rows[i].name);
    assert_int_equal(st_tensor_dtype_bytes((st_tensor_dtype)i), rows[i].n_bytes);
  }
}

static void refuses_bad_headers(void **state) {
  (void)state;
  static const struct {
    const char *text;
    const char *needle; /* what the message must contain besides the file */
  } rows[] = {
      /* not the JSON that it must be */
      {"", "JSON"},
      {"{", "JSON"},
      {"[]", "object expected"},
      {"7", "JSON"},
      {"{\"x\":7}", "tensor x"},
      {"{\"x\":null}", "tensor x"},
      {"{\"__metadata__\":7}", "__metadata__"},
      {"{} {}", "JSON"},
      {"{\"x\":{}}", "tensor x: dtype"},
      {"{\"x\":{\"dtype\":\"F32\"}}", "tensor x: shape"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1]}}", "tensor x: data_offsets"},
      {"{" ENTRY("x", "F32", "[1]", "0", "4") "," ENTRY("x", "F32", "[1]", "4", "8") "}",
       "duplicate object key near '\"x\"'"},
      /* dtype */
      {"{" ENTRY("x", "F33", "[1]", "0", "4") "}", "tensor x: dtype F33"},
      {"{" ENTRY("x", "f32", "[1]", "0", "4") "}", "tensor x: dtype f32"},
      {"{\"x\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", "tensor x: dtype"},
      /* shape */
      {"{" ENTRY("x", "F32", "4", "0", "4") "}", "tensor x: shape"},
      {"{" ENTRY("x", "F32", "{}", "0", "4") "}", "tensor x: shape"},
      {"{" ENTRY("x", "F32", "[-1]", "0", "4") "}", "tensor x: shape[0]"},
      {"{" ENTRY("x", "F32", "[1,-1]", "0", "4") "}", "tensor x: shape[1]"},
      {"{" ENTRY("x", "F32", "[-1,-1]", "0", "4") "}", "tensor x: shape[0]"},
      {"{" ENTRY("x", "F32", "[1.0]", "0", "4") "}", "tensor x: shape[0]"},
      {"{" ENTRY("x", "F32", "[\"1\"]", "0", "4") "}", "tensor x: shape[0]"},
      {"{" ENTRY("x", "F32", "[1e0]", "0", "4") "}", "tensor x: shape[0]"},
      {"{" ENTRY("x", "F32", "[null]", "0", "4") "}", "tensor x: shape[0]"},
      {"{" ENTRY("x", "F32", "[99999999999999999999]", "0", "4") "}", "JSON"},
      {"{" ENTRY("x", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", "tensor x: shape has 9"},
      {"{" ENTRY("x", "F32", "[4294967296,4294967296]", "0", "0") "}", "tensor x: shape"},
      {"{" ENTRY("x", "F32", "[4294967296,4294967296,0]", "0", "0") "}", "tensor x: shape"},
      {"{" ENTRY("x", "F64", "[4611686018427387904]", "0", "0") "}", "tensor x: shape"},
      /* offsets */
      {"{" ENTRY("x", "F32", "[1]", "4", "0") "}", "tensor x: data_offsets [4, 0]: they end"},
      /* the difference of these offsets wraps around to what the shape needs */
      {"{" ENTRY("x", "BF16", "[9223372036854775806]", "4", "0") "}", "they end before"},
      {"{" ENTRY("x", "F32", "[1]", "-4", "0") "}", "tensor x: data_offsets"},
      {"{" ENTRY("x", "F32", "[1]", "0", "-4") "}", "tensor x: data_offsets"},
      {"{" ENTRY("x", "F32", "[1]", "0.0", "4") "}", "tensor x: data_offsets"},
      {"{" ENTRY("x", "F32", "[1]", "13", "17") "}", "tensor x: data_offsets [13, 17]: past"},
      {"{" ENTRY("x", "F32", "[0]", "17", "17") "}", "tensor x: data_offsets [17, 17]: past"},
      {"{" ENTRY("x", "F32", "[1]", "9223372036854775804", "9223372036854775807") "}",
       "tensor x: data_offsets"},
      {"{" ENTRY("x", "F32", "[1]", "0", "3") "}", "4 bytes expected"},
      {"{" ENTRY("x", "F32", "[2]", "0", "4") "}", "8 bytes expected"},
      {"{" ENTRY("x", "F32", "[0]", "0", "4") "}", "0 bytes expected"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", "tensor x: data_off"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", "tensor x: data_off"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":4}}", "tensor x: data_off"},
      /* overlap: by one byte, the same place, one within another, not neighbours */
      {"{" ENTRY("x", "U8", "[4]", "0", "4") "," ENTRY("y", "U8", "[4]", "3", "7") "}",
       "tensor y: its bytes overlap those of tensor x"},
      {"{" ENTRY("x", "U8", "[4]", "0", "4") "," ENTRY("y", "U8", "[4]", "0", "4") "}",
       "overlap"},
      {"{" ENTRY("y", "U8", "[2]", "3", "5") "," ENTRY("x", "U8", "[9]", "0", "9") "}",
       "tensor y: its bytes overlap those of tensor x"},
      {"{" ENTRY("x", "U8", "[9]", "0", "9") "," ENTRY("e", "U8", "[0]", "4", "4") ","
       ENTRY("y", "U8", "[1]", "8", "9") "}",
       "tensor y: its bytes overlap those of tensor x"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    strata_error err;
    strata_status status = parse(rows[i].text, 16, &err);
    st_test_expect_error(status, &err, STRATA_FORMAT, "LABEL: ", rows[i].needle);
  }
}

static void refuses_deep_json(void **state) {
  (void)state;
  enum { DEPTH = 100000 };
  char *text = malloc(DEPTH + 1);
  strata_error err;
  assert_non_null(text);
  memset(text, '[', DEPTH);
  text[DEPTH] = 0;
  strata_status status = parse(text, 0, &err);
  st_test_expect_error(status, &err, STRATA_FORMAT, "LABEL: ", "JSON");
  free(text);
}

static void shows_a_hostile_name_harmlessly(void **state) {
  (void)state;
  strata_error err;
  strata_status status =
      parse("{" ENTRY("\\u001b[2J\\n", "F32", "[1]", "0", "3") "}", 16, &err);
  st_test_expect_error(status, &err, STRATA_FORMAT, "tensor \\x1b[2J\\x0a", NULL);
  assert_null(strpbrk(err.message, "\x1b\n"));
}

static void refuses_bad_lengths(void **state) {
  (void)state;
  static const uint64_t lengths[] = {3, 4, 1000, UINT64_C(1) << 31, UINT64_C(1) << 32,
                                     (UINT64_C(1) << 63) - 8, UINT64_C(1) << 63,
                                     UINT64_MAX - 7, UINT64_MAX};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    strata_error err;
    size_t n_bytes;
    st_safetensors *set;
    uint8_t *image = new_image(lengths[i], "{}", 0, &n_bytes);
    strata_status status = st_safetensors_parse("LABEL", image, n_bytes, &set, &err);
    st_test_expect_error(status, &err, STRATA_FORMAT, "LABEL: header length", "past the end");
    assert_null(set);
    free(image);
  }
}

static void refuses_every_truncation(void **state) {
  (void)state;
  static const char text[] = "{" ENTRY("x", "F32", "[2]", "0", "8") "}";
  size_t n_bytes;
  uint8_t *image = new_image(strlen(text), text, 8, &n_bytes);
  for (size_t n = 0; n < n_bytes; n++) {
    strata_error err;
    st_safetensors *set;
    uint8_t *cut = malloc(n ? n : 1);
    assert_non_null(cut);
    memcpy(cut, image, n);
    strata_status status = st_safetensors_parse("LABEL", cut, n, &set, &err);
    st_test_expect_error(status, &err, STRATA_FORMAT, "LABEL: ", NULL);
    free(cut);
  }
  free(image);
}

/* ---- files and directories ------------------------------------------------ */

typedef struct fixture {
  char dir[ST_TEST_DIR_BYTES];
} fixture;

static int set_up(void **state) {
  fixture *f = calloc(1, sizeof *f);
  if (!f) return -1;
  st_test_dir_new(f->dir);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *f = *state;
  st_test_dir_remove(f->dir);
  free(f);
  return 0;
}

/* Writes a file with one tensor of one F32 element. */
static void write_one(const char *dir, const char *file, const char *tensor) {
  float value = 1;
  st_test_tensor t = {.dtype = ST_DTYPE_F32, .shape = {1}, .n_dims = 1,
                      .data = (uint8_t *)&value, .n_bytes = sizeof value};
  snprintf(t.name, sizeof t.name, "%s", tensor);
  st_test_safetensors_write(dir, file, &t, 1, false);
}

static void write_index(const char *dir, const char *text) {
  st_test_file_write(dir, "model.safetensors.index.json", text, strlen(text));
}

static strata_status open_count(const char *path, int32_t *count, strata_error *err) {
  st_safetensors *set = NULL;
  strata_status status = st_safetensors_open(path, &set, err);
  if (status == STRATA_OK)
    *count = st_safetensors_count(set);
  else
    assert_null(set);
  st_safetensors_close(&set);
  return status;
}

static void expect_open_error(const char *path, strata_status want, const char *a,
                              const char *b) {
  strata_error err;
  int32_t count;
  strata_status status = open_count(path, &count, &err);
  st_test_expect_error(status, &err, want, a, b);
}

static void opens_a_single_file(void **state) {
  const fixture *f = *state;
  char path[2 * ST_TEST_DIR_BYTES];
  int32_t count = 0;
  write_one(f->dir, "any.safetensors", "x");
  assert_int_equal(open_count(f->dir, &count, NULL), STRATA_OK);
  assert_int_equal(count, 1);
  snprintf(path, sizeof path, "%s/any.safetensors", f->dir);
  assert_int_equal(open_count(path, &count, NULL), STRATA_OK);
  assert_int_equal(count, 1);
}

static void opens_several_files_without_an_index(void **state) {
  const fixture *f = *state;
  int32_t count = 0;
  write_one(f->dir, "b.safetensors", "x");
  write_one(f->dir, "a.safetensors", "y");
  st_test_file_write(f->dir, "notes.txt", "x", 1);
  st_test_file_write(f->dir, ".safetensors", "x", 1); /* a suffix is not a name */
  assert_int_equal(open_count(f->dir, &count, NULL), STRATA_OK);
  assert_int_equal(count, 2);
}

static void opens_only_what_an_index_names(void **state) {
  const fixture *f = *state;
  int32_t count = 0;
  write_one(f->dir, "a.safetensors", "x");
  write_one(f->dir, "b.safetensors", "y");
  st_test_file_write(f->dir, "c.safetensors", "broken", 6);
  write_index(f->dir, "{\"metadata\":{\"total_size\":-5},\"weight_map\":"
                      "{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}");
  assert_int_equal(open_count(f->dir, &count, NULL), STRATA_OK);
  assert_int_equal(count, 2);
}

static void refuses_bad_indexes(void **state) {
  const fixture *f = *state;
  static const struct {
    const char *text;
    strata_status status;
    const char *needle;
  } rows[] = {
      {"{", STRATA_FORMAT, "JSON"},
      {"[]", STRATA_FORMAT, "object expected"},
      {"{}", STRATA_FORMAT, "weight_map"},
      {"{\"weight_map\":[]}", STRATA_FORMAT, "weight_map"},
      {"{\"weight_map\":{\"x\":7}}", STRATA_FORMAT, "tensor x"},
      {"{\"weight_map\":{\"x\":\"../a.safetensors\"}}", STRATA_FORMAT, "tensor x: ../a"},
      {"{\"weight_map\":{\"x\":\"/a.safetensors\"}}", STRATA_FORMAT, "tensor x: /a"},
      {"{\"weight_map\":{\"x\":\"d/a.safetensors\"}}", STRATA_FORMAT, "tensor x: d/a"},
      {"{\"weight_map\":{\"x\":\"..\"}}", STRATA_FORMAT, "tensor x: .."},
      {"{\"weight_map\":{\"x\":\"\"}}", STRATA_FORMAT, "tensor x"},
      {"{\"weight_map\":{\"x\":\"config.json\"}}", STRATA_FORMAT, "tensor x: config.json"},
      {"{\"weight_map\":{\"x\":\"a.safetensors\",\"x\":\"b.safetensors\"}}", STRATA_FORMAT,
       "duplicate object key near '\"x\"'"},
      {"{\"weight_map\":{\"z\":\"a.safetensors\"}}", STRATA_FORMAT,
       "tensor z: a.safetensors does not have it"},
      /* y is there, but in the other shard */
      {"{\"weight_map\":{\"x\":\"b.safetensors\",\"y\":\"a.safetensors\"}}", STRATA_FORMAT,
       "tensor x: b.safetensors does not have it"},
  };
  write_one(f->dir, "a.safetensors", "x");
  write_one(f->dir, "b.safetensors", "y");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    write_index(f->dir, rows[i].text);
    expect_open_error(f->dir, rows[i].status, "model.safetensors.index.json", rows[i].needle);
  }
}

static void refuses_a_missing_shard(void **state) {
  const fixture *f = *state;
  write_one(f->dir, "a.safetensors", "x");
  write_index(f->dir, "{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}");
  expect_open_error(f->dir, STRATA_IO, f->dir, "b.safetensors");
}

static void refuses_one_name_in_two_files(void **state) {
  const fixture *f = *state;
  write_one(f->dir, "a.safetensors", "x");
  write_one(f->dir, "b.safetensors", "x");
  expect_open_error(f->dir, STRATA_FORMAT, "tensor x: also in", f->dir);
  write_one(f->dir, "c.safetensors", "y");
  write_index(f->dir, "{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"c.safetensors\"}}");
  int32_t count;
  assert_int_equal(open_count(f->dir, &count, NULL), STRATA_OK);
  write_one(f->dir, "c.safetensors", "x");
  write_index(f->dir, "{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"c.safetensors\"}}");
  expect_open_error(f->dir, STRATA_FORMAT, "tensor x: also in", "a.safetensors");
}

static void refuses_paths_without_tensors(void **state) {
  const fixture *f = *state;
  char path[2 * ST_TEST_DIR_BYTES];
  expect_open_error(f->dir, STRATA_IO, f->dir, "no *.safetensors file");
  snprintf(path, sizeof path, "%s/none.safetensors", f->dir);
  expect_open_error(path, STRATA_IO, "none.safetensors", NULL);
  st_test_file_write(f->dir, "none.safetensors", "", 0);
  expect_open_error(path, STRATA_FORMAT, "none.safetensors", "0 bytes");
}

/* The file is sparse: a header of the forbidden size that would fit into it. */
static void refuses_a_huge_header(void **state) {
  const fixture *f = *state;
  char path[2 * ST_TEST_DIR_BYTES];
  const uint64_t length = ST_SAFETENSORS_HEADER_MAX + 1;
  snprintf(path, sizeof path, "%s/huge.safetensors", f->dir);
  st_test_file_write(f->dir, "huge.safetensors", &length, sizeof length);
  assert_int_equal(truncate(path, (off_t)length + 100), 0);
  expect_open_error(path, STRATA_FORMAT, "huge.safetensors: header length 268435457",
                    "at most 268435456");
}

/* ---- failing allocations -------------------------------------------------- */

static void survives_each_failing_allocation(void **state) {
  const fixture *f = *state;
  enum { ENOUGH = 1000 };
  strata_status status = STRATA_NOMEM;
  int32_t n, count = 0;
  write_one(f->dir, "a.safetensors", "x");
  write_one(f->dir, "b.safetensors", "y");
  for (int32_t with_index = 0; with_index < 2; with_index++) {
    if (with_index)
      write_index(f->dir, "{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}");
    for (n = 0, status = STRATA_NOMEM; status != STRATA_OK && n < ENOUGH; n++) {
      strata_error err;
      st_mem_fail_at(n);
      status = open_count(f->dir, &count, &err);
      st_mem_fail_at(-1);
      if (status != STRATA_OK) st_test_expect_error(status, &err, STRATA_NOMEM, "memory", NULL);
    }
    assert_int_equal(status, STRATA_OK);
    assert_int_equal(count, 2);
    assert_in_range(n, 8, ENOUGH - 1); /* it did fail several times */
  }
}

static int32_t json_allocations_left;

static void *failing_malloc(size_t n_bytes) {
  return json_allocations_left-- == 0 ? NULL : malloc(n_bytes);
}

static void survives_each_failing_json_allocation(void **state) {
  (void)state;
  enum { ENOUGH = 1000 };
  strata_status status = STRATA_NOMEM;
  int32_t n;
  for (n = 0; status != STRATA_OK && n < ENOUGH; n++) {
    strata_error err;
    json_allocations_left = n;
    json_set_alloc_funcs(failing_malloc, free);
    status = parse("{" ENTRY("x", "F32", "[1]", "0", "4") "," ENTRY("y", "F32", "[]", "4", "8") "}",
                   8, &err);
    json_set_alloc_funcs(malloc, free);
    /* jansson takes some of its failing allocations for a fault of the text. */
    if (status != STRATA_OK && status != STRATA_NOMEM)
      st_test_expect_error(status, &err, STRATA_FORMAT, "LABEL", "JSON");
    if (n == 0) st_test_expect_error(status, &err, STRATA_NOMEM, "LABEL", NULL);
  }
  assert_int_equal(status, STRATA_OK);
  assert_in_range(n, 8, ENOUGH - 1);
}

#define WITH_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_what_was_written),
      cmocka_unit_test(accepts_no_tensors),
      cmocka_unit_test(knows_each_dtype),
      cmocka_unit_test(refuses_bad_headers),
      cmocka_unit_test(refuses_deep_json),
      cmocka_unit_test(shows_a_hostile_name_harmlessly),
      cmocka_unit_test(refuses_bad_lengths),
      cmocka_unit_test(refuses_every_truncation),
      WITH_DIRECTORY(opens_a_single_file),
      WITH_DIRECTORY(opens_several_files_without_an_index),
      WITH_DIRECTORY(opens_only_what_an_index_names),
      WITH_DIRECTORY(refuses_bad_indexes),
      WITH_DIRECTORY(refuses_a_missing_shard),
      WITH_DIRECTORY(refuses_one_name_in_two_files),
      WITH_DIRECTORY(refuses_paths_without_tensors),
      WITH_DIRECTORY(refuses_a_huge_header),
      WITH_DIRECTORY(survives_each_failing_allocation),
      cmocka_unit_test(survives_each_failing_json_allocation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
