/* The tokenizer's data, shared by the files that load and use it. */
#ifndef ST_TOKENIZER_H
#define ST_TOKENIZER_H

#include "model/token/st_added.h"
#include "model/token/st_bpe.h"
#include "model/token/st_nfc.h"
#include "model/token/st_pretoken.h"

/* Ids at or above this are taken for damage: no vocabulary is near it. */
enum { ST_TOKEN_ID_LIMIT = 1 << 22 };

typedef struct st_token {
  uint32_t text_off, text_bytes; /* of the bytes it decodes to, in texts */
  bool known, special;
} st_token;

struct strata_tokenizer {
  st_token *tokens; /* [id_limit] */
  size_t tokens_capacity;
  int32_t id_limit;
  st_string texts;
  st_vocab vocab;    /* ordinary tokens by the name in the file */
  st_vocab contents; /* added tokens by content */
  st_merges merges;
  bool ignore_merges; /* a piece that is a token is that token */
  int32_t byte_ids[256];
  bool nfc;
  st_pretoken pretoken;
  st_added raw;        /* added tokens matched in the text as it is */
  st_added normalized; /* those matched in its normal form */
};

/* Makes a tokenizer from the n bytes of a tokenizer.json; label names it in
 * errors. FORMAT if it is damaged, UNSUPPORTED with the key of a feature that
 * strata does not have. */
strata_status st_tokenizer_parse(const char *json, size_t n, const char *label,
                                 strata_tokenizer **out, strata_error *err);

/* The letters that stand for bytes in the names of byte-level tokens: the
 * printable ones of Latin-1 for themselves, U+0100 on for the others, in order. */
typedef struct st_byte_letters {
  int32_t letter[256]; /* byte to letter */
} st_byte_letters;
void st_byte_letters_init(st_byte_letters *letters);
/* The byte a letter stands for, or -1. */
int st_byte_letters_find(const st_byte_letters *letters, int32_t letter);

#endif
