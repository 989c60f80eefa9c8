/* Decoding, whole and as it comes. Both run the same steps over the bytes of
 * the tokens, so they agree: bytes that cannot be part of a character become
 * one U+FFFD for each longest run that might have begun one, as in the
 * reference. Text of added tokens runs through the same steps. */
#include <string.h>

#include "model/token/st_tokenizer.h"
#include "model/token/st_utf8.h"

static const char REPLACEMENT[] = "\xef\xbf\xbd";

struct strata_decoder {
  const strata_tokenizer *tokenizer;
  bool skip_special;
  uint8_t pending[4]; /* the bytes of a character begun */
  int n_pending;
  st_string out;
};

/* Appends to memory that is there already. */
static void put(strata_decoder *d, const void *bytes, size_t n) {
  memcpy(d->out.text + d->out.n_bytes, bytes, n);
  d->out.n_bytes += n;
}

static void give_up_pending(strata_decoder *d) {
  if (d->n_pending) put(d, REPLACEMENT, sizeof REPLACEMENT - 1);
  d->n_pending = 0;
}

static void take_byte(strata_decoder *d, uint8_t byte) {
  if (d->n_pending && !st_utf8_follows(d->pending, d->n_pending, byte)) give_up_pending(d);
  d->pending[d->n_pending++] = byte;
  int length = st_utf8_length(d->pending[0]);
  if (length == 0) {
    give_up_pending(d);
  } else if (length == d->n_pending) {
    put(d, d->pending, (size_t)length);
    d->n_pending = 0;
  }
}

/* Makes room for what n more bytes can become: a replacement for each, and one
 * for what is pending. Memory runs out here or not at all, so that a call that
 * fails changes nothing. */
static strata_status make_room(strata_decoder *d, size_t n, strata_error *err) {
  void *text = d->out.text;
  ST_TRY(st_grow(&text, &d->out.capacity, d->out.n_bytes + 3 * (n + 1) + 1, 1, "a text", err));
  d->out.text = text;
  return STRATA_OK;
}

/* Appends the text of one token. */
static strata_status take_id(strata_decoder *d, int32_t id, strata_error *err) {
  const strata_tokenizer *t = d->tokenizer;
  if (!strata_tokenizer_knows(t, id))
    ST_FAIL(err, ARG, "decoding: id %d: a known id below %d expected", id, t->id_limit);
  st_token token = t->tokens[id];
  size_t n = d->skip_special && token.special ? 0 : token.text_bytes;
  ST_TRY(make_room(d, n, err));
  for (size_t i = 0; i < n; i++) take_byte(d, (uint8_t)t->texts.text[token.text_off + i]);
  d->out.text[d->out.n_bytes] = 0;
  return STRATA_OK;
}

static strata_status take_end(strata_decoder *d, strata_error *err) {
  ST_TRY(make_room(d, 0, err));
  give_up_pending(d);
  d->out.text[d->out.n_bytes] = 0;
  return STRATA_OK;
}

strata_status strata_tokenizer_decode(const strata_tokenizer *tokenizer, const int32_t *ids,
                                      size_t n_ids, bool skip_special, char **text,
                                      size_t *n_bytes, strata_error *err) {
  strata_status status = STRATA_OK;
  strata_decoder d = {.tokenizer = tokenizer, .skip_special = skip_special};
  *text = NULL;
  *n_bytes = 0;
  for (size_t i = 0; i < n_ids; i++) ST_TRY_OUT(take_id(&d, ids[i], err));
  ST_TRY_OUT(take_end(&d, err));
  *text = d.out.text;
  *n_bytes = d.out.n_bytes;
  d.out = (st_string){0};
out:
  st_string_release(&d.out);
  return status;
}

strata_status strata_decoder_new(const strata_tokenizer *tokenizer, bool skip_special,
                                 strata_decoder **out, strata_error *err) {
  void *memory;
  *out = NULL;
  ST_TRY(st_calloc(&memory, 1, sizeof **out, "a decoder", err));
  *out = memory;
  (*out)->tokenizer = tokenizer;
  (*out)->skip_special = skip_special;
  return STRATA_OK;
}

void strata_decoder_free(strata_decoder **decoder) {
  if (!decoder || !*decoder) return;
  st_string_release(&(*decoder)->out);
  st_free(*decoder);
  *decoder = NULL;
}

strata_status strata_decoder_push(strata_decoder *decoder, int32_t id, const char **text,
                                  size_t *n_bytes, strata_error *err) {
  *text = NULL;
  *n_bytes = 0;
  decoder->out.n_bytes = 0;
  ST_TRY(take_id(decoder, id, err));
  *text = decoder->out.text;
  *n_bytes = decoder->out.n_bytes;
  return STRATA_OK;
}

strata_status strata_decoder_finish(strata_decoder *decoder, const char **text, size_t *n_bytes,
                                    strata_error *err) {
  *text = NULL;
  *n_bytes = 0;
  decoder->out.n_bytes = 0;
  ST_TRY(take_end(decoder, err));
  *text = decoder->out.text;
  *n_bytes = decoder->out.n_bytes;
  return STRATA_OK;
}
