/* libFuzzer entry for the tokenizer. The first byte chooses:
 *   even  the rest is a tokenizer.json
 *   odd   the rest is a text for a small tokenizer that uses every step; the
 *         next byte says where added tokens match. What is encoded must decode
 *         to the text, and in steps as in one go.
 * Needs no file: the small tokenizer is made from memory. */
#include <stdlib.h>
#include <string.h>

#include <strata/strata.h>
#include <utf8proc.h>

#include "core/st_mem.h"
#include "model/token/st_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FLAGS(strip) \
  ",\"special\":false,\"single_word\":false,\"lstrip\":" strip ",\"rstrip\":false,\"normalized\":"

static void must(bool holds) {
  if (!holds) abort();
}

static void put(st_string *s, const char *text) {
  must(st_string_puts(s, text, NULL) == STRATA_OK);
}

static strata_tokenizer *make_tokenizer(void) {
  st_byte_letters letters;
  st_string json = {0};
  strata_tokenizer *t;
  st_byte_letters_init(&letters);
  put(&json, "{\"added_tokens\":[{\"id\":400,\"content\":\"<|x|>\"" FLAGS("false") "false},"
             "{\"id\":401,\"content\":\"<|x\"" FLAGS("true") "false},"
             "{\"id\":402,\"content\":\"\\u00e9y\"" FLAGS("true") "true}],"
             "\"normalizer\":{\"type\":\"NFC\"},\"decoder\":{\"type\":\"ByteLevel\"},"
             "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":true},\"model\":{"
             "\"merges\":[\"a b\",\"ab a\",\"ab ab\",\"c c\",\"cc cc\"],\"vocab\":{"
             "\"ab\":300,\"aba\":301,\"abab\":302,\"cc\":303,\"cccc\":304");
  for (int byte = 0; byte < 256; byte++) {
    char key[8] = {0};
    utf8proc_encode_char(letters.letter[byte], (utf8proc_uint8_t *)key);
    put(&json, byte == '"' || byte == '\\' ? ",\"\\" : ",\"");
    put(&json, key);
    must(st_string_printf(&json, NULL, "\":%d", byte) == STRATA_OK);
  }
  put(&json, "}}}");
  must(st_tokenizer_parse(json.text, json.n_bytes, "small", &t, NULL) == STRATA_OK);
  st_string_release(&json);
  return t;
}

static void check_steps(const strata_tokenizer *t, const int32_t *ids, size_t n, const char *text,
                        size_t n_bytes) {
  strata_decoder *decoder;
  const char *step;
  size_t n_step, at = 0;
  must(strata_decoder_new(t, false, &decoder, NULL) == STRATA_OK);
  for (size_t i = 0; i <= n; i++) {
    if (i < n)
      must(strata_decoder_push(decoder, ids[i], &step, &n_step, NULL) == STRATA_OK);
    else
      must(strata_decoder_finish(decoder, &step, &n_step, NULL) == STRATA_OK);
    must(n_step <= n_bytes - at && memcmp(text + at, step, n_step) == 0);
    at += n_step;
  }
  must(at == n_bytes);
  strata_decoder_free(&decoder);
}

/* Text without added tokens, in its normal form, comes back as it was. */
static void check_round_trip(const strata_tokenizer *t, const char *text, size_t n,
                             const char *back, size_t n_back) {
  st_nfc nfc = {0};
  must(st_nfc_run(&nfc, text, n, NULL) == STRATA_OK);
  must(nfc.out.n_bytes == n_back && memcmp(nfc.out.text, back, n_back) == 0);
  must(t->nfc);
  st_nfc_release(&nfc);
}

static void fuzz_text(const strata_tokenizer *t, uint8_t mode, const char *text, size_t n) {
  int32_t *ids;
  char *back;
  size_t n_ids, n_back;
  strata_match_added match = (strata_match_added)(mode % 3);
  const strata_span spans[] = {{0, n / 3}, {n / 3, n / 2}, {n - n / 4, n}};
  if (strata_tokenizer_encode(t, text, n, match, spans, 3, &ids, &n_ids, NULL) != STRATA_OK) return;
  must(strata_tokenizer_decode(t, ids, n_ids, false, &back, &n_back, NULL) == STRATA_OK);
  check_steps(t, ids, n_ids, back, n_back);
  if (match == STRATA_MATCH_ADDED_NEVER) check_round_trip(t, text, n, back, n_back);
  strata_free(back);
  strata_free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static strata_tokenizer *small;
  strata_tokenizer *t;
  strata_error err;
  if (!small) small = make_tokenizer();
  if (size >= 2 && data[0] % 2 == 1) {
    fuzz_text(small, data[1], (const char *)data + 2, size - 2);
  } else if (size >= 1) {
    if (st_tokenizer_parse((const char *)data + 1, size - 1, "input", &t, &err) != STRATA_OK)
      must(t == NULL && !strchr(err.message, '\n'));
    strata_tokenizer_close(&t);
  }
  return 0;
}
