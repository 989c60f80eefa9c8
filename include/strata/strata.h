/* strata.h -- the public interface of the strata engine.
 *
 * One engine holds the machine's resources (threads, the kernels chosen for
 * its CPU), a model holds mapped weights, a session holds one sequence.
 *
 *   engine -> model -> session        tokenizer, chat template, sampler
 *
 * Rules that hold for every function here:
 *   - A function that can fail returns a strata_status and fills *err (which
 *     may be NULL). Outputs are NULL or 0 after a failure.
 *   - new/open gives an object that the caller frees with the matching
 *     free/close, which takes the address, accepts NULL and sets it to NULL.
 *   - Strings are UTF-8. A pointer that is returned without "gives" is a view
 *     that lives as long as its parent.
 *   - No function prints, exits or reads the environment, except
 *     strata_engine_new, which reads STRATA_ISA once.
 *   - Objects are not locked: one thread at a time uses an engine and all that
 *     hangs on it. */
#ifndef STRATA_STRATA_H
#define STRATA_STRATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STRATA_VERSION "0.1.0"
#define STRATA_API __attribute__((visibility("default")))
#define STRATA_CHECKED __attribute__((warn_unused_result))

/* ---- status and errors ---------------------------------------------------- */

/* name, value, exit code of the program, text */
#define STRATA_STATUS_TABLE(X)                                   \
  X(OK, 0, 0, "no error")                                        \
  X(ARG, -1, 2, "bad argument")                                  \
  X(NOMEM, -2, 1, "out of memory")                               \
  X(IO, -3, 1, "input or output failed")                         \
  X(FORMAT, -4, 1, "malformed data")                             \
  X(UNSUPPORTED, -5, 2, "not supported")                         \
  X(NUMERICS, -6, 1, "not a finite number")                      \
  X(LIMIT, -7, 1, "a limit was reached")                         \
  X(STATE, -8, 1, "wrong state")                                 \
  X(CANCELLED, -9, 130, "cancelled")                             \
  X(INTERNAL, -10, 1, "internal error")                          \
  X(NO_VERDICT, -11, 3, "no verdict")                            \
  X(DEVICE, -12, 1, "a device failed")

typedef enum strata_status {
#define STRATA_STATUS_ENUM(name, value, exit_code, text) STRATA_##name = value,
  STRATA_STATUS_TABLE(STRATA_STATUS_ENUM)
#undef STRATA_STATUS_ENUM
} strata_status;

/* The message is one line, "WHAT: WHICH VALUE: WHAT WAS EXPECTED", without a
 * newline; control characters of foreign data are shown as \xNN. */
typedef struct strata_error {
  strata_status status;
  char message[512];
} strata_error;

STRATA_API const char *strata_status_text(strata_status status);
STRATA_API int strata_status_exit_code(strata_status status);

/* Frees memory that a function of this header "gives" as a plain pointer. */
STRATA_API void strata_free(void *p);

/* ---- engine --------------------------------------------------------------- */

typedef struct strata_engine strata_engine;

typedef struct strata_engine_options {
  int32_t n_threads; /* 0: one per available CPU; at most 256 */
  const char *isa;   /* NULL: STRATA_ISA from the environment, else the best
                      * level this CPU has. "scalar", "avx2", "avx512", "neon" */
} strata_engine_options;

/* ARG if the ISA level is unknown, UNSUPPORTED if this CPU lacks it. */
STRATA_API STRATA_CHECKED strata_status strata_engine_new(const strata_engine_options *options,
                                                          strata_engine **out, strata_error *err);
STRATA_API void strata_engine_free(strata_engine **engine);
STRATA_API const char *strata_engine_isa(const strata_engine *engine);
STRATA_API int32_t strata_engine_threads(const strata_engine *engine);

/* fills text with one line about the GPUs for kernels: what was found, or why there
 * is none. */
STRATA_API void strata_gpu_describe(char *text, size_t n_bytes);

/* ---- model ---------------------------------------------------------------- */

typedef struct strata_model strata_model;

typedef struct strata_model_info {
  const char *architecture; /* "qwen4_exp" */
  int32_t n_layers, hidden_size, vocab_size, max_positions;
  int32_t n_gdn_layers, n_qsa_layers;
  int32_t n_experts, n_experts_used;
  int64_t n_parameters;   /* elements of all bound tensors */
  int64_t weight_bytes;   /* bytes of all bound tensors in the files */
  int32_t n_tensors;      /* bound tensors */
  int32_t n_ignored;      /* tensors of the files that the model does not use */
  const char *dtypes;     /* for example "bf16 35.8 MB, f32 0.1 MB" */
  const int32_t *eos_ids; /* generation stops on these; borrowed from the model */
  int32_t n_eos_ids;
} strata_model_info;

/* path: a Hugging Face directory (config.json, one or more *.safetensors).
 * The weights are mapped, not read. keeps no reference to path. */
STRATA_API STRATA_CHECKED strata_status strata_model_open(strata_engine *engine, const char *path,
                                                          strata_model **out, strata_error *err);
STRATA_API void strata_model_close(strata_model **model);
STRATA_API void strata_model_get_info(const strata_model *model, strata_model_info *info);
/* A line of text for each dimension of the architecture, for people; index from
 * 0 until it returns false. The strings are views into the model. */
STRATA_API bool strata_model_describe(const strata_model *model, int32_t index, const char **name,
                                      const char **value);
/* Names of tensors that are in the files but not used; NULL past the end. */
STRATA_API const char *strata_model_ignored_tensor(const strata_model *model, int32_t index);

/* ---- session: one sequence ------------------------------------------------ */

typedef struct strata_session strata_session;

/* How keys and values are held: as f32 (the arithmetic of the reference), as fp16,
 * or as int8 with an fp16 scale for 64 values. Part of what a sequence is: states
 * of different kinds are not interchangeable. */
typedef enum strata_kv { STRATA_KV_F32, STRATA_KV_F16, STRATA_KV_Q8 } strata_kv;

typedef struct strata_session_options {
  int32_t capacity; /* most tokens the sequence may hold; 0: max_positions */
  int32_t window;   /* most tokens run at once; 0: 512 */
  strata_kv kv;     /* 0: f32 */
} strata_session_options;

/* The bytes a session and its model will take, by component. */
typedef struct strata_memory_row {
  const char *component; /* "weights", "gdn state", "kv cache", ... */
  int64_t bytes;
} strata_memory_row;

enum { STRATA_MEMORY_ROWS_MAX = 16 };

typedef struct strata_memory_plan {
  strata_memory_row rows[STRATA_MEMORY_ROWS_MAX];
  int32_t n_rows;
  int64_t total_bytes;
} strata_memory_plan;

/* The plan for a session whose sequence reaches n_tokens <= capacity. */
STRATA_API STRATA_CHECKED strata_status strata_model_plan(const strata_model *model,
                                                          const strata_session_options *options,
                                                          int32_t n_tokens, strata_memory_plan *plan,
                                                          strata_error *err);

/* keeps a view of the model until freed. */
STRATA_API STRATA_CHECKED strata_status strata_session_new(strata_model *model,
                                                           const strata_session_options *options,
                                                           strata_session **out, strata_error *err);
STRATA_API void strata_session_free(strata_session **session);
/* Back to an empty sequence; keeps the memory. */
STRATA_API void strata_session_reset(strata_session *session);
/* Makes dst the same sequence as src (same model; dst's capacity must hold it:
 * LIMIT otherwise; of the same strata_kv: STATE otherwise; dst unchanged then). dst
 * has no checkpoint afterwards. */
STRATA_API STRATA_CHECKED strata_status strata_session_copy(strata_session *dst,
                                                            const strata_session *src,
                                                            strata_error *err);
/* Writes the state to a temporary name beside path and renames it. */
STRATA_API STRATA_CHECKED strata_status strata_session_save(const strata_session *session,
                                                            const char *path, strata_error *err);
/* Replaces the state by the file's. FORMAT if the file is damaged, STATE if it
 * was made by other weights or with another strata_kv, LIMIT if it does not fit;
 * the session is then unchanged. It has no checkpoint afterwards. */
STRATA_API STRATA_CHECKED strata_status strata_session_restore(strata_session *session,
                                                               const char *path, strata_error *err);
/* Remembers the sequence as it is, so that what is fed afterwards can be taken back:
 * drafted tokens, say. It copies what does not grow with the sequence (the gated
 * delta net's states above all), never the caches; one checkpoint is kept, the last
 * one, until a reset, copy or restore. */
STRATA_API STRATA_CHECKED strata_status strata_session_checkpoint(strata_session *session,
                                                                  strata_error *err);
/* Forgets the last n_tokens that were fed since the checkpoint (ARG if there are
 * fewer, STATE without a checkpoint). State and logits are then, bit for bit, those
 * of a session that never saw them. Those kept since the checkpoint are run again.
 * A session whose last feed failed is whole again afterwards. */
STRATA_API STRATA_CHECKED strata_status strata_session_rollback(strata_session *session,
                                                                int32_t n_tokens, strata_error *err);
/* Tokens seen so far. */
STRATA_API int32_t strata_session_position(const strata_session *session);

/* What a feed shows while it runs. Every member may be NULL/0. */
typedef struct strata_feed_options {
  /* Lengths of the windows to use, in order, the last one repeated; NULL: the
   * session's window. Each is in 1 .. the session's window. */
  const int32_t *windows;
  int32_t n_windows;
  bool all_logits; /* compute the logits of every position, not just the last */
  /* Called after each window, or with all_logits after each run of positions in
   * it, with the logits of positions pos .. pos + n - 1,
   * [n][vocab_size] f32 (all_logits), else with n = 0, logits NULL and pos the
   * number of tokens seen. A return of false stops after this window with
   * CANCELLED (also after the last one); the session then holds the windows
   * done so far. borrows logits until it returns. */
  bool (*on_window)(void *user, int32_t pos, int32_t n, const float *logits);
  void *user;
} strata_feed_options;

/* Runs n >= 1 tokens. ARG for an id outside the vocabulary (nothing is run),
 * LIMIT if the sequence would pass its capacity (nothing is run), NUMERICS for
 * a NaN, naming the layer's kind and the position. options may be NULL. */
STRATA_API STRATA_CHECKED strata_status strata_session_feed(strata_session *session,
                                                            const int32_t *ids, int32_t n,
                                                            const strata_feed_options *options,
                                                            strata_error *err);
/* Logits of the last token fed, [vocab_size]; NULL before the first feed. A
 * view until the next feed, reset, copy or restore (restore brings them back). */
STRATA_API const float *strata_session_logits(const strata_session *session);
/* SHA-256 of the state's canonical bytes (those that save writes), as 64 hex
 * digits and a NUL. */
STRATA_API void strata_session_state_sha256(const strata_session *session, char hex[65]);

/* ---- profile -------------------------------------------------------------- */

typedef struct strata_profile_row {
  const char *op;      /* "linear", "gdn_scan", ... */
  const char *variant; /* "avx2" */
  int64_t calls;
  double seconds; /* wall time, barrier included */
  double flops;   /* multiply and add counted apart, from the op's contract */
  double bytes;   /* weights and state touched, from the op's contract */
} strata_profile_row;

enum { STRATA_PROFILE_ROWS_MAX = 64 };

typedef struct strata_profile {
  strata_profile_row rows[STRATA_PROFILE_ROWS_MAX];
  int32_t n_rows;
} strata_profile;

/* Starts counting (from zero) or stops. Counting costs about 1 %. */
STRATA_API void strata_session_profile(strata_session *session, bool on);
STRATA_API void strata_session_get_profile(const strata_session *session, strata_profile *out);

/* ---- captures --------------------------------------------------------------- */

typedef struct strata_capture_options {
  const char *op;        /* as profiles name it: "gdn_scan" */
  int32_t layer;         /* -1: all layers, and what is outside of them */
  int32_t calls;         /* at least 1; see below */
  const char *directory; /* made if need be */
} strata_capture_options;

/* From now on writes what calls of one op read and wrote, for the laboratory to repeat
 * (strata lab replay): a file DIRECTORY/OP-LAYER-CALL.trace each. Of each layer the
 * first calls with several tokens are taken and the first with one. options NULL: no
 * more. ARG for an op or a layer that there is not. A capture that fails (IO, NOMEM;
 * LIMIT: a call of more than 4 GiB; UNSUPPORTED: one whose weights are of several types;
 * ARG: a file is there already) fails the feed that it happens in. */
STRATA_API STRATA_CHECKED strata_status strata_session_capture(strata_session *session,
                                                               const strata_capture_options *options,
                                                               strata_error *err);
/* Files written by the capture. */
STRATA_API int32_t strata_session_captured(const strata_session *session);

/* The machine's ceilings, measured now with the engine's threads and ISA level
 * (about 0.5 s): the floor beside a speed. working_set is the size in bytes for
 * which read_bytes_per_s is wanted, at most 1 GiB. */
typedef struct strata_roof {
  double flops_per_s;      /* f32 fused multiply-adds, each counted as two */
  double read_bytes_per_s; /* reading working_set bytes again and again */
} strata_roof;
STRATA_API STRATA_CHECKED strata_status strata_engine_roof(strata_engine *engine,
                                                           int64_t working_set, strata_roof *out,
                                                           strata_error *err);

/* ---- tokenizer ------------------------------------------------------------ */

typedef struct strata_tokenizer strata_tokenizer;

/* A byte range [begin, end) of a text. */
typedef struct strata_span {
  size_t begin, end;
} strata_span;

/* path: a Hugging Face directory, or its tokenizer.json. */
STRATA_API STRATA_CHECKED strata_status strata_tokenizer_open(const char *path,
                                                              strata_tokenizer **out,
                                                              strata_error *err);
STRATA_API void strata_tokenizer_close(strata_tokenizer **tokenizer);

/* Where added tokens such as <|im_end|> are matched in the text. */
typedef enum strata_match_added {
  STRATA_MATCH_ADDED_NEVER,      /* a user's words: they cannot forge a turn */
  STRATA_MATCH_ADDED_EVERYWHERE, /* as the reference tokenizer does */
  STRATA_MATCH_ADDED_IN_SPANS,   /* only wholly inside one of the given spans */
} strata_match_added;

/* gives *ids (strata_free), *n_ids >= 0. text need not end in NUL and may hold
 * NUL bytes; FORMAT, with the byte offset, if it is not valid UTF-8. spans are
 * ascending and disjoint, and only read for IN_SPANS. */
STRATA_API STRATA_CHECKED strata_status strata_tokenizer_encode(
    const strata_tokenizer *tokenizer, const char *text, size_t n_bytes, strata_match_added match,
    const strata_span *spans, size_t n_spans, int32_t **ids, size_t *n_ids, strata_error *err);

/* gives *text (strata_free; a NUL follows its *n_bytes bytes). Bytes that do
 * not form UTF-8 become U+FFFD as the reference does. skip_special leaves out
 * special added tokens. ARG for an id that the tokenizer does not know. */
STRATA_API STRATA_CHECKED strata_status strata_tokenizer_decode(const strata_tokenizer *tokenizer,
                                                                const int32_t *ids, size_t n_ids,
                                                                bool skip_special, char **text,
                                                                size_t *n_bytes, strata_error *err);
/* Ids are 0 .. id_limit - 1; some between may be unknown. */
STRATA_API int32_t strata_tokenizer_id_limit(const strata_tokenizer *tokenizer);
STRATA_API bool strata_tokenizer_knows(const strata_tokenizer *tokenizer, int32_t id);
STRATA_API bool strata_tokenizer_is_special(const strata_tokenizer *tokenizer, int32_t id);
/* The id of an added token by its exact content, or -1. */
STRATA_API int32_t strata_tokenizer_added_id(const strata_tokenizer *tokenizer, const char *content);

/* Incremental decoding: text comes out as soon as its characters are whole,
 * never half a character. keeps a view of the tokenizer. */
typedef struct strata_decoder strata_decoder;
STRATA_API STRATA_CHECKED strata_status strata_decoder_new(const strata_tokenizer *tokenizer,
                                                           bool skip_special, strata_decoder **out,
                                                           strata_error *err);
STRATA_API void strata_decoder_free(strata_decoder **decoder);
/* *text is a view until the next call on this decoder; *n_bytes may be 0. */
STRATA_API STRATA_CHECKED strata_status strata_decoder_push(strata_decoder *decoder, int32_t id,
                                                            const char **text, size_t *n_bytes,
                                                            strata_error *err);
/* The rest: an unfinished character comes out as U+FFFD. Ready for a new text. */
STRATA_API STRATA_CHECKED strata_status strata_decoder_finish(strata_decoder *decoder,
                                                              const char **text, size_t *n_bytes,
                                                              strata_error *err);

/* ---- chat template -------------------------------------------------------- */

typedef struct strata_chat_template strata_chat_template;

typedef struct strata_tool_call {
  const char *name;
  const char *arguments_json; /* a JSON object */
} strata_tool_call;

typedef struct strata_message {
  const char *role; /* "system", "user", "assistant", "tool" */
  const char *content;
  const char *reasoning; /* assistant only; may be NULL */
  const strata_tool_call *tool_calls;
  size_t n_tool_calls;
} strata_message;

typedef struct strata_chat_options {
  bool disable_thinking;       /* enable_thinking is on by default */
  const char *reasoning_effort; /* NULL or "xhigh", "medium", "low" */
  bool drop_thinking;          /* preserve_thinking is on by default */
  bool no_generation_prompt;   /* add_generation_prompt is on by default */
  const char *const *tools_json; /* each a JSON object; may be NULL */
  size_t n_tools;
} strata_chat_options;

/* path: a Hugging Face directory with chat_template.jinja (or the template in
 * tokenizer_config.json). Known are the released qwen4_exp template and the
 * plain one; UNSUPPORTED for any other, IO if there is none. */
STRATA_API STRATA_CHECKED strata_status strata_chat_template_open(const char *path,
                                                                  strata_chat_template **out,
                                                                  strata_error *err);
STRATA_API void strata_chat_template_close(strata_chat_template **chat_template);
STRATA_API const char *strata_chat_template_name(const strata_chat_template *chat_template);

/* gives *text (strata_free) and *template_spans (strata_free): the ranges that
 * the template itself wrote. Encode with STRATA_MATCH_ADDED_IN_SPANS and these,
 * and no message can forge a turn. options may be NULL. */
STRATA_API STRATA_CHECKED strata_status strata_chat_render(const strata_chat_template *chat_template,
                                                           const strata_message *messages,
                                                           size_t n_messages,
                                                           const strata_chat_options *options,
                                                           char **text, size_t *n_bytes,
                                                           strata_span **template_spans,
                                                           size_t *n_spans, strata_error *err);

/* ---- sampler -------------------------------------------------------------- */

typedef struct strata_sampler strata_sampler;

typedef struct strata_sampler_options {
  float temperature; /* 0: greedy (then the rest is not used) */
  int32_t top_k;     /* 0: off */
  float top_p;       /* 1: off; in (0, 1] */
  float min_p;       /* 0: off; in [0, 1] */
  uint64_t seed;
} strata_sampler_options;

STRATA_API void strata_sampler_options_default(strata_sampler_options *options); /* greedy */
/* Ids that the tokenizer does not know are never picked; tokenizer may be NULL
 * (then all ids count). Copies what it needs. ARG names a bad option. */
STRATA_API STRATA_CHECKED strata_status strata_sampler_new(const strata_sampler_options *options,
                                                           const strata_tokenizer *tokenizer,
                                                           strata_sampler **out, strata_error *err);
STRATA_API void strata_sampler_free(strata_sampler **sampler);
/* Picks an id from logits [n]. Ties go to the lower id. NUMERICS for a NaN,
 * naming its id. The order is: temperature, top-k, top-p, min-p, draw. */
STRATA_API STRATA_CHECKED strata_status strata_sampler_pick(strata_sampler *sampler,
                                                            const float *logits, int32_t n,
                                                            int32_t *id, strata_error *err);

/* ---- hashes --------------------------------------------------------------- */

typedef struct strata_sha256 strata_sha256;
STRATA_API STRATA_CHECKED strata_status strata_sha256_new(strata_sha256 **out, strata_error *err);
STRATA_API void strata_sha256_update(strata_sha256 *hash, const void *data, size_t n_bytes);
/* 64 hex digits and a NUL; frees the hash and sets it to NULL. */
STRATA_API void strata_sha256_finish(strata_sha256 **hash, char hex[65]);

#ifdef __cplusplus
}
#endif
#endif
