/* Unicode normalisation form C, as the reference tokenizer library does it. */
#ifndef ST_NFC_H
#define ST_NFC_H

#include "core/st_mem.h"

/* A place where both texts may be cut: the normal form of text[0, raw) is
 * out[0, normal), and so for the rest. */
typedef struct st_nfc_mark {
  size_t raw, normal;
} st_nfc_mark;

/* Memory that one encoding reuses from text to text. Zero to begin with. */
typedef struct st_nfc {
  st_string out;      /* the normal form of the last text */
  bool want_marks;    /* set by the caller: fill marks */
  st_nfc_mark *marks; /* [n_marks], ascending, the ends of the text included */
  size_t n_marks, marks_capacity;
  int32_t *codes; /* scratch */
  size_t codes_capacity;
} st_nfc;

/* Fills nfc->out, and nfc->marks if wanted, from n bytes of valid UTF-8. Takes
 * time linear in n whatever the text. */
strata_status st_nfc_run(st_nfc *nfc, const char *text, size_t n, strata_error *err);
void st_nfc_release(st_nfc *nfc);

#endif
