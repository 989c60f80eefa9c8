/* Encoding: added tokens in the raw text, the normal form, added tokens in
 * that, pieces, merges; in this order. The decoder is in st_decoder.c. */
#include "model/token/st_tokenizer.h"

#include <string.h>
#include <utf8proc.h>

#include "model/token/st_utf8.h"
#include "os/st_file.h"

enum { MOST_FILE_BYTES = 256 << 20 };

strata_status strata_tokenizer_open(const char *path, strata_tokenizer **out, strata_error *err) {
  strata_status status = STRATA_OK;
  char *file = NULL, *json = NULL;
  size_t n;
  *out = NULL;
  if (!path) ST_FAIL(err, ARG, "tokenizer: path is NULL: a directory or tokenizer.json expected");
  if (st_path_probe(path) == ST_PATH_DIRECTORY)
    ST_TRY_OUT(st_path_join(&file, path, "tokenizer.json", err));
  else
    ST_TRY_OUT(st_strndup(&file, path, strlen(path), err));
  ST_TRY_OUT(st_file_read(file, MOST_FILE_BYTES, &json, &n, err));
  ST_TRY_OUT(st_tokenizer_parse(json, n, file, out, err));
out:
  st_free(json);
  st_free(file);
  return status;
}

void strata_tokenizer_close(strata_tokenizer **tokenizer) {
  strata_tokenizer *t = tokenizer ? *tokenizer : NULL;
  if (!t) return;
  st_free(t->tokens);
  st_string_release(&t->texts);
  st_vocab_release(&t->vocab);
  st_vocab_release(&t->contents);
  st_merges_release(&t->merges);
  st_pretoken_release(&t->pretoken);
  st_added_release(&t->raw);
  st_added_release(&t->normalized);
  st_free(t);
  *tokenizer = NULL;
}

int32_t strata_tokenizer_id_limit(const strata_tokenizer *tokenizer) {
  return tokenizer->id_limit;
}

bool strata_tokenizer_knows(const strata_tokenizer *tokenizer, int32_t id) {
  return id >= 0 && id < tokenizer->id_limit && tokenizer->tokens[id].known;
}

bool strata_tokenizer_is_special(const strata_tokenizer *tokenizer, int32_t id) {
  return strata_tokenizer_knows(tokenizer, id) && tokenizer->tokens[id].special;
}

int32_t strata_tokenizer_added_id(const strata_tokenizer *tokenizer, const char *content) {
  return st_vocab_find(&tokenizer->contents, content, strlen(content));
}

/* ---- encoding -------------------------------------------------------------- */

/* Where added tokens may match in one stretch of text: ascending, disjoint. */
typedef struct places {
  const strata_span *spans;
  size_t n;
} places;

typedef struct encoder {
  const strata_tokenizer *tokenizer;
  st_ids ids;
  st_bpe bpe;
  st_nfc nfc;
  void *pretoken;
  st_string name; /* scratch: a piece in byte letters */
  st_byte_letters letters;
  strata_span *mapped; /* scratch: spans of the raw text in a normal form */
  size_t mapped_capacity;
  strata_error *err;
} encoder;

/* What to do with the text between two matches; base is where it begins in the
 * text that was scanned. */
typedef strata_status (*gap_fn)(encoder *e, const char *text, size_t n, size_t base, places in);

static strata_status emit_piece(void *user, const char *piece, size_t n, strata_error *err) {
  encoder *e = user;
  const strata_tokenizer *t = e->tokenizer;
  const uint8_t *bytes = (const uint8_t *)piece;
  if (t->ignore_merges) {
    e->name.n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
      utf8proc_uint8_t letter[4];
      utf8proc_ssize_t length = utf8proc_encode_char(e->letters.letter[bytes[i]], letter);
      ST_TRY(st_string_append(&e->name, (const char *)letter, (size_t)length, err));
    }
    int32_t id = st_vocab_find(&t->vocab, e->name.text, e->name.n_bytes);
    if (id >= 0) return st_ids_push(&e->ids, id, err);
  }
  return st_bpe_run(&e->bpe, &t->merges, bytes, n, t->byte_ids, &e->ids, err);
}

static strata_status cut_pieces(encoder *e, const char *text, size_t n, size_t base, places in) {
  (void)base;
  (void)in;
  return st_pretoken_run(&e->tokenizer->pretoken, e->pretoken, text, n, emit_piece, e, e->err);
}

/* Finds the tokens of added in the places given, and hands what lies between
 * to gap. */
static strata_status scan(encoder *e, const st_added *added, const char *text, size_t n, places in,
                          gap_fn gap) {
  size_t done = 0;
  for (size_t i = 0; i < in.n && added->n_tokens; i++) {
    size_t from = in.spans[i].begin;
    for (;;) {
      st_added_match match = st_added_find(added, text, from, in.spans[i].end);
      if (!match.token) break;
      from = match.end;
      if (match.token->single_word && !st_added_stands_alone(text, n, match)) continue;
      size_t left = st_added_left(text, match, done);
      if (done < left) ST_TRY(gap(e, text + done, left - done, done, in));
      ST_TRY(st_ids_push(&e->ids, match.token->id, e->err));
      done = st_added_right(text, n, match);
    }
  }
  return done < n ? gap(e, text + done, n - done, done, in) : STRATA_OK;
}

static strata_status add_place(encoder *e, places *out, size_t begin, size_t end) {
  void *mapped = e->mapped;
  if (end <= begin) return STRATA_OK;
  ST_TRY(st_grow(&mapped, &e->mapped_capacity, out->n + 1, sizeof *e->mapped, "spans", e->err));
  e->mapped = mapped;
  e->mapped[out->n++] = (strata_span){begin, end};
  out->spans = e->mapped;
  return STRATA_OK;
}

/* The places of the whole text that meet [base, base + n), as places of that
 * stretch or, if it was normalised, of its normal form: then cut down to where
 * both texts can be cut. */
static strata_status map_places(encoder *e, size_t base, size_t n, places raw, places *out) {
  size_t m = 0, low = 0, high = raw.n;
  *out = (places){0};
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (raw.spans[middle].end <= base)
      low = middle + 1;
    else
      high = middle;
  }
  for (size_t i = low; i < raw.n && raw.spans[i].begin < base + n; i++) {
    size_t begin = raw.spans[i].begin > base ? raw.spans[i].begin - base : 0;
    size_t end = raw.spans[i].end - base < n ? raw.spans[i].end - base : n;
    if (e->tokenizer->nfc) {
      const st_nfc_mark *marks = e->nfc.marks;
      while (marks[m].raw < begin) m++;
      begin = marks[m].normal;
      while (m + 1 < e->nfc.n_marks && marks[m + 1].raw <= end) m++;
      end = marks[m].normal;
    }
    ST_TRY(add_place(e, out, begin, end));
  }
  return STRATA_OK;
}

static strata_status normalize(encoder *e, const char *text, size_t n, size_t base, places in) {
  const strata_tokenizer *t = e->tokenizer;
  bool look = t->normalized.n_tokens > 0 && in.n > 0;
  places mapped = {0};
  if (t->nfc) {
    e->nfc.want_marks = look;
    ST_TRY(st_nfc_run(&e->nfc, text, n, e->err));
  }
  if (look) ST_TRY(map_places(e, base, n, in, &mapped));
  if (t->nfc) {
    text = e->nfc.out.text;
    n = e->nfc.out.n_bytes;
  }
  return scan(e, &t->normalized, text, n, mapped, cut_pieces);
}

static strata_status check_spans(const strata_span *spans, size_t n_spans, size_t n_bytes,
                                 strata_error *err) {
  size_t floor = 0;
  for (size_t i = 0; i < n_spans; i++) {
    if (spans[i].begin < floor || spans[i].end < spans[i].begin || spans[i].end > n_bytes)
      ST_FAIL(err, ARG,
              "tokenizer: span %zu is %zu .. %zu: ascending and disjoint within %zu bytes expected",
              i, spans[i].begin, spans[i].end, n_bytes);
    floor = spans[i].end;
  }
  return STRATA_OK;
}

static void encoder_release(encoder *e) {
  st_free(e->ids.items);
  st_bpe_release(&e->bpe);
  st_nfc_release(&e->nfc);
  st_pretoken_scratch_free(&e->pretoken);
  st_string_release(&e->name);
  st_free(e->mapped);
}

strata_status strata_tokenizer_encode(const strata_tokenizer *tokenizer, const char *text,
                                      size_t n_bytes, strata_match_added match,
                                      const strata_span *spans, size_t n_spans, int32_t **ids,
                                      size_t *n_ids, strata_error *err) {
  strata_status status = STRATA_OK;
  encoder e = {.tokenizer = tokenizer, .err = err};
  const strata_span whole = {0, n_bytes};
  places in = {0};
  void *none;
  *ids = NULL;
  *n_ids = 0;
  st_byte_letters_init(&e.letters);
  if (!text && n_bytes) ST_FAIL(err, ARG, "tokenizer: text is NULL: %zu bytes expected", n_bytes);
  if (n_bytes > INT32_MAX / 4)
    ST_FAIL(err, LIMIT, "tokenizer: %zu bytes: at most %d expected", n_bytes, INT32_MAX / 4);
  ST_TRY(st_utf8_check(text, n_bytes, "text", err));
  if (match == STRATA_MATCH_ADDED_EVERYWHERE) in = (places){&whole, 1};
  if (match == STRATA_MATCH_ADDED_IN_SPANS) {
    ST_TRY(check_spans(spans, n_spans, n_bytes, err));
    in = (places){spans, n_spans};
  }
  ST_TRY_OUT(st_pretoken_scratch_new(&tokenizer->pretoken, &e.pretoken, err));
  ST_TRY_OUT(scan(&e, &tokenizer->raw, text, n_bytes, in, normalize));
  if (!e.ids.items) {
    ST_TRY_OUT(st_calloc(&none, 1, sizeof **ids, "token ids", err));
    e.ids.items = none;
  }
  *ids = e.ids.items;
  *n_ids = e.ids.n;
  e.ids.items = NULL;
out:
  encoder_release(&e);
  return status;
}
