/* A second, independent implementation of the model: double precision, whole
 * sequences, one loop nest for each formula of the model's description, nothing
 * shared with the engine but the reader of safetensors files.
 *
 * It reads config.json by itself and takes weights in the plainest layout:
 * prefix "model.", experts one by one, the n-gram table in shards. Two things
 * are rounded to f32 because the description says so: rotary frequencies and
 * their products with positions. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include <stdint.h>

typedef struct reference reference;

/* directory: a model. Fails the running cmocka test if it cannot be used. */
reference *reference_open(const char *directory);
void reference_close(reference **r);
int32_t reference_vocabulary(const reference *r);
/* Query-layer pairs of the last run that attended to a selection. */
int32_t reference_sparse_queries(const reference *r);
/* fills logits [n][vocabulary] for the sequence ids [n]. */
void reference_run(reference *r, const int32_t *ids, int32_t n, double *logits);

#endif
