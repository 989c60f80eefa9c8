/* Capturing calls of a running model: the state before a call and the outputs after it,
 * written as a trace (st_trace.h) for the laboratory to repeat.
 *
 * Of each layer the first calls are taken, as many with several tokens (reading a text)
 * as with one (writing). A failure is kept until it is asked for, and ends the capture:
 * a plan runs without anything that can fail. */
#ifndef ST_CAPTURE_H
#define ST_CAPTURE_H

#include "device/cpu/st_pool.h"
#include "kreg/st_kreg.h"

typedef struct st_capture_request {
  st_op op;
  int32_t layer;         /* -1: all, and what is outside the layers */
  int32_t calls;         /* at most so many with several tokens, and with one, a layer */
  const char *directory; /* made if need be */
} st_capture_request;

typedef struct st_capture st_capture;

strata_status st_capture_new(const st_capture_request *request, st_capture **out, strata_error *err);
void st_capture_free(st_capture **capture);

bool st_capture_wants(const st_capture *capture, const st_call *call);
/* Around a call that is wanted, with nothing else running. after writes
 * DIRECTORY/OP-LAYER-CALL.trace, LAYER being "outside" for -1. */
void st_capture_before(st_capture *capture, const st_call *call);
void st_capture_after(st_capture *capture, const st_call *call);

/* The failure, if there was one: ARG if a file was there already, UNSUPPORTED for a call
 * that cannot be captured, LIMIT for one that is too large, IO, NOMEM. */
strata_status st_capture_failure(const st_capture *capture, strata_error *err);
int32_t st_capture_count(const st_capture *capture); /* files that were written */

#endif
