/* Does a kernel give another kernel's bytes on one shape, and nothing else: run in
 * one part and in several, these at the same time too, over different old outputs and
 * surroundings, again, and on other inputs, subnormal ones among them. A kernel that
 * does not is told what is wrong with it in a word. */
#ifndef LAB_PARITY_H
#define LAB_PARITY_H

#include "lab/lab_trace.h"

typedef enum lab_word {
  LAB_PASS,
  LAB_WRONG_RESULT,
  LAB_BEYOND,          /* of a fast kernel: its bound */
  LAB_NAN,
  LAB_LEFT_UNWRITTEN,
  LAB_WROTE_OUTSIDE,
  LAB_WROTE_INPUT,
  LAB_ON_PARTS,        /* depends on the part count */
  LAB_ON_PADDING,      /* depends on bytes around its tensors */
  LAB_ON_OLD_OUTPUT,
  LAB_ON_UNREAD,       /* depends on a tensor that must not be read */
  LAB_ON_OTHER_PARTS,  /* wrong only when parts run at the same time */
  LAB_NOT_REPEATABLE,
  LAB_FIRST_CALL_ONLY, /* writes only once */
  LAB_STALE,           /* gives the result of the call before */
  LAB_FP_MODE,         /* leaves another floating-point mode behind */
  LAB_CRASHED,
  LAB_HUNG,
  LAB_WORDS
} lab_word;
/* "pass", "wrong", "depends on the part count", ... as they stand in a report. */
const char *lab_word_name(lab_word word);

/* What a control does to a result before it is compared, to see that it is noticed. */
typedef enum lab_sabotage { LAB_AS_IS, LAB_FLIP_BIT, LAB_SKIP_HEAD } lab_sabotage;

/* cand beside base, on one shape. bound > 0: cand is of class fast, and so near it must
 * be; that it repeats its own bytes is asked all the same. */
typedef struct lab_trial {
  const stk_op *op;
  const void *shape;
  uint64_t seed;
  lab_runner base, cand;
  lab_runner together; /* cand, its parts at the same time; run NULL: it has none */
  int32_t n_threads;   /* of that */
  double bound;
  lab_sabotage sabotage;
  bool spare_unread; /* tensors that must not be read hold zeros */
  const lab_trace *trace; /* inputs of a captured call, of this shape; NULL: from the seed */
  bool captured; /* what the call left is expected, and not what base gives */
} lab_trial;

/* Where the buffers of a run lie, for whoever has to explain a crash. */
typedef struct lab_place {
  const char *tensor;
  const uint8_t *begin, *end;           /* of its elements */
  const uint8_t *open_begin, *open_end; /* of what may be read in and around it */
  bool closed;                          /* none of which may be written */
} lab_place;

/* Plain data: a child may fill it in shared memory, and what it says is worth
 * something even if the child died on the way. */
typedef struct lab_parity {
  lab_word word;
  char detail[256];  /* one line; empty for a pass */
  lab_difference buffers[STK_TENSORS_MAX]; /* of the run that the word is about; outputs */
  bool kept[STK_TENSORS_MAX];              /* base left this one as it was */
  int32_t n_buffers;
  lab_place places[STK_TENSORS_MAX];
  int32_t n_places;
  int32_t n_parts; /* of the running or last run */
} lab_parity;

/* UNSUPPORTED for a shape that the op refuses; NOMEM; whatever a runner says. */
strata_status lab_parity_check(const lab_trial *trial, lab_parity *out, strata_error *err);

/* One plain run of lab_parity_check, and nothing about why it fails. */
strata_status lab_parity_once(const lab_trial *trial, lab_parity *out, strata_error *err);

/* Turns a crash at an address (NULL: unknown) into a word and a line. */
void lab_parity_crashed(lab_parity *parity, const char *signal_name, const void *address);

#endif
