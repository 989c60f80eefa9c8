/* NFC, segment by segment.
 *
 * A segment begins at every character below U+0300, since none of those ever
 * combines with what stands before it, so a text of such characters is its own
 * normal form. utf8proc decomposes and composes; the canonical ordering between
 * is done here, because utf8proc's exchange sort is quadratic in a long run of
 * combining marks.
 *
 * The reference library knows the normalisation data of Unicode 9. Marks and
 * composed letters that are younger are starters to it, which combine with
 * nothing: they are barriers, copied as they are. utf8proc (Unicode 15 in 2.8)
 * would reorder them. The list below also holds those of Unicode 16, for newer
 * versions of utf8proc. */
#include "model/token/st_nfc.h"

#include <string.h>
#include <utf8proc.h>

#include "model/token/st_utf8.h"

enum { MOST_DECOMPOSED = 8, SHORT_RUN = 24 };

/* Younger than Unicode 9, with a combining class or part of a composition; and
 * U+11A7, which utf8proc 2.8 takes for an empty final of a Hangul syllable and
 * so loses. */
static const int32_t BARRIERS[][2] = {
    {0x7fd, 0x7fd}, {0x897, 0x89f}, {0x8ca, 0x8d3}, {0x9fe, 0x9fe}, {0xc3c, 0xc3c},
    {0xcf3, 0xcf3}, {0xd3b, 0xd3c}, {0xeba, 0xeba}, {0xece, 0xece}, {0x11a7, 0x11a7},
    {0x1715, 0x1715}, {0x1abf, 0x1ace}, {0x1df6, 0x1dfa}, {0xa82c, 0xa82c}, {0x105c9, 0x105c9},
    {0x105d2, 0x105d2}, {0x105da, 0x105da}, {0x105e4, 0x105e4}, {0x10d24, 0x10d27},
    {0x10d69, 0x10d6d}, {0x10eab, 0x10eac}, {0x10efc, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x11241, 0x11241}, {0x1133b, 0x1133b},
    {0x11382, 0x11385}, {0x1138b, 0x1138b}, {0x1138e, 0x1138e}, {0x11390, 0x11391},
    {0x113b8, 0x113c0}, {0x113c2, 0x113c2}, {0x113c5, 0x113c5}, {0x113c7, 0x113ca},
    {0x113cc, 0x113d0}, {0x113d2, 0x113d2}, {0x113e1, 0x113e2}, {0x1145e, 0x1145e},
    {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938},
    {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34},
    {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45},
    {0x11d97, 0x11d97}, {0x11f00, 0x11f01}, {0x11f03, 0x11f03}, {0x11f34, 0x11f3a},
    {0x11f3e, 0x11f42}, {0x11f5a, 0x11f5a}, {0x13440, 0x13440}, {0x13447, 0x13455},
    {0x1611e, 0x1612f}, {0x16d63, 0x16d6a}, {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f},
    {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
    {0x1e5ee, 0x1e5ef},
};

static bool is_barrier(int32_t code) {
  size_t low = 0, high = sizeof BARRIERS / sizeof BARRIERS[0];
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (code > BARRIERS[middle][1])
      low = middle + 1;
    else
      high = middle;
  }
  return low < sizeof BARRIERS / sizeof BARRIERS[0] && code >= BARRIERS[low][0];
}

static int class_of(int32_t code) { return utf8proc_get_property(code)->combining_class; }

static void sort_short(int32_t *codes, size_t n) {
  for (size_t i = 1; i < n; i++) {
    int32_t code = codes[i];
    size_t j = i;
    for (; j > 0 && class_of(codes[j - 1]) > class_of(code); j--) codes[j] = codes[j - 1];
    codes[j] = code;
  }
}

/* Stable sort of n marks by combining class; temp has room for n more. */
static void sort_long(int32_t *codes, size_t n, int32_t *temp) {
  size_t place[257] = {0};
  for (size_t i = 0; i < n; i++) place[class_of(codes[i]) + 1]++;
  for (size_t c = 1; c < 257; c++) place[c] += place[c - 1];
  for (size_t i = 0; i < n; i++) temp[place[class_of(codes[i])]++] = codes[i];
  memcpy(codes, temp, n * sizeof *codes);
}

static void order_marks(int32_t *codes, size_t n) {
  size_t i = 0;
  while (i < n) {
    size_t run = 0;
    while (i + run < n && class_of(codes[i + run]) != 0) run++;
    if (run > SHORT_RUN)
      sort_long(codes + i, run, codes + n);
    else if (run > 1)
      sort_short(codes + i, run);
    i += run + 1;
  }
}

static strata_status put_codes(st_nfc *nfc, size_t n, strata_error *err) {
  for (size_t i = 0; i < n; i++) {
    utf8proc_uint8_t bytes[4];
    utf8proc_ssize_t length = utf8proc_encode_char(nfc->codes[i], bytes);
    ST_TRY(st_string_append(&nfc->out, (const char *)bytes, (size_t)length, err));
  }
  return STRATA_OK;
}

static strata_status put_segment(st_nfc *nfc, const char *text, size_t n, strata_error *err) {
  size_t n_codes = 0, at = 0, length;
  while (at < n) {
    int32_t code = st_utf8_read(text + at, n - at, &length);
    int last_class;
    void *codes = nfc->codes;
    /* Twice: the second half is the room that sort_long needs. */
    ST_TRY(st_grow(&codes, &nfc->codes_capacity, 2 * (n_codes + MOST_DECOMPOSED),
                   sizeof *nfc->codes, "a normal form", err));
    nfc->codes = codes;
    utf8proc_ssize_t more = utf8proc_decompose_char(code, nfc->codes + n_codes, MOST_DECOMPOSED,
                                                    UTF8PROC_DECOMPOSE, &last_class);
    if (more < 1 || more > MOST_DECOMPOSED)
      ST_FAIL(err, INTERNAL, "normal form: U+%04X: a decomposition expected", (unsigned)code);
    n_codes += (size_t)more;
    at += length;
  }
  order_marks(nfc->codes, n_codes);
  utf8proc_ssize_t left = utf8proc_normalize_utf32(nfc->codes, (utf8proc_ssize_t)n_codes,
                                                   UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  if (left < 0)
    ST_FAIL(err, INTERNAL, "normal form: %zu characters: a composition expected", n_codes);
  return put_codes(nfc, (size_t)left, err);
}

static strata_status mark(st_nfc *nfc, size_t raw, size_t normal, strata_error *err) {
  void *marks = nfc->marks;
  ST_TRY(st_grow(&marks, &nfc->marks_capacity, nfc->n_marks + 1, sizeof *nfc->marks,
                 "the map of a normal form", err));
  nfc->marks = marks;
  nfc->marks[nfc->n_marks++] = (st_nfc_mark){raw, normal};
  return STRATA_OK;
}

/* Copies characters that are segments of their own. */
static strata_status put_plain(st_nfc *nfc, const char *text, size_t begin, size_t end,
                               strata_error *err) {
  if (nfc->want_marks)
    for (size_t i = begin; i < end; i++)
      if (((uint8_t)text[i] & 0xc0) != 0x80)
        ST_TRY(mark(nfc, i, nfc->out.n_bytes + (i - begin), err));
  return st_string_append(&nfc->out, text + begin, end - begin, err);
}

/* The end of the plain characters from begin on: those below U+0300 that the
 * next character cannot change. Their bytes, all of them, are below 0xcc. */
static size_t plain_end(const char *text, size_t begin, size_t n) {
  size_t end = begin, length;
  while (end < n && (uint8_t)text[end] < 0xcc) end++;
  if (end < n && end > begin) {
    st_utf8_read_back(text, end, &length);
    end -= length;
  }
  return end;
}

/* The end of the segment that begins at begin with any character. */
static size_t segment_end(const char *text, size_t begin, size_t n) {
  size_t end = begin, length;
  st_utf8_read(text + end, n - end, &length);
  end += length;
  while (end < n && (uint8_t)text[end] >= 0xcc &&
         !is_barrier(st_utf8_read(text + end, n - end, &length)))
    end += length;
  return end;
}

strata_status st_nfc_run(st_nfc *nfc, const char *text, size_t n, strata_error *err) {
  nfc->out.n_bytes = 0;
  nfc->n_marks = 0;
  ST_TRY(st_string_append(&nfc->out, "", 0, err));
  size_t at = 0, length;
  while (at < n) {
    size_t end = plain_end(text, at, n);
    if (end == at && is_barrier(st_utf8_read(text + at, n - at, &length))) end = at + length;
    if (end > at) {
      ST_TRY(put_plain(nfc, text, at, end, err));
    } else {
      end = segment_end(text, at, n);
      if (nfc->want_marks) ST_TRY(mark(nfc, at, nfc->out.n_bytes, err));
      ST_TRY(put_segment(nfc, text + at, end - at, err));
    }
    at = end;
  }
  return nfc->want_marks ? mark(nfc, n, nfc->out.n_bytes, err) : STRATA_OK;
}

void st_nfc_release(st_nfc *nfc) {
  st_string_release(&nfc->out);
  st_free(nfc->marks);
  st_free(nfc->codes);
  *nfc = (st_nfc){0};
}
