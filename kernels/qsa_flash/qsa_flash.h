/* qsa_flash: qsa_attn for a prompt, the same steps and the same bytes.
 *
 * Args, shapes, order and class are those of qsa_attn (qsa_attn.h), with one
 * difference: a token that sees at most budget + ratio - 1 cells attends to all of
 * them, and neither its ids nor its n_ids are read. Such tokens need no scores and
 * no selection, and neighbours among them can share what is read of the cache.
 *
 * Threads   parts cut (tokens, heads of one kv head). */
#ifndef STK_QSA_FLASH_H
#define STK_QSA_FLASH_H

#include "qsa_attn/qsa_attn.h"

#define STK_QSA_FLASH_CONTRACT STK_QSA_ATTN_CONTRACT

typedef stk_qsa_attn_args stk_qsa_flash_args;

extern const stk_op stk_qsa_flash_op;

#endif
