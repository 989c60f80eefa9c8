/* The report of a comparison: what is in it, and the forms it is kept in.
 *
 * report.json  everything, every raw sample, and seals (lab_seal.h)
 * report.md    the tables of an audit
 * report.html  the same with plots; one file, no script, no network
 * candidate.patch  what the candidate changes, for patch -p1 in this folder
 *
 * A report is a JSON object, version 1. Times are seconds of a batch, ratios are
 * candidate over base, so less than 1 is faster. A timing's flops, bytes and
 * floor_seconds are those of a batch too. "?" marks what may be null.
 *
 *   format "strata lab report", version 1, kind ab|aa|pipeline
 *   verdict, headline, reason, command [..], started, seconds
 *   machine   cpu id cpus threads level l1_bytes l2_bytes l3_bytes system strata
 *             sources_sha256
 *   rule      file sha256 text min_gain confidence min_rounds max_rounds narrow disturbed
 *             max_disturbed (lab_rule.h)
 *   ceilings? flops_per_s, bytes_per_s {l1 l2 l3 dram}
 *   stages    [ op contract class bound? contract_text
 *               base, cand  given variant file sha256 module level class compiler
 *                           flags fp_mode
 *               controls    [name expected got detail ok]
 *               oracle      base, cand {passed n word detail}
 *               parity      [size seed result detail buffers [name result word n
 *                           first count max_abs? rel_l2?]]
 *               diff, timings ]
 *   total     timings of all stages of a pipeline together
 *   limits    [..]
 *
 *   timing    size, params {..}, calls, buffer_sets, buffer_bytes, flops, bytes,
 *             floor_seconds, bound operations|bytes, rounds, verdict, reason,
 *             base_seconds, cand_seconds, null_seconds, ratio, interval [2],
 *             null_ratio, null_interval [2], disturbed,
 *             samples [round pair order arm at seconds disturbed] in time order
 *
 * A null run (aa) has only null pairs; ratio and interval are those of the null. */
#ifndef LAB_REPORT_H
#define LAB_REPORT_H

#include <jansson.h>

#include "lab/lab_stats.h"

/* FORMAT, naming the place and what belongs there, for anything else than the
 * above. Every limit that rendering and verifying rely on is checked here. */
strata_status lab_report_check(const json_t *report, strata_error *err);

/* Each checks the report and gives *text (st_free). The same report gives the same
 * bytes. */
strata_status lab_report_markdown(const json_t *report, char **text, size_t *n_bytes,
                                  strata_error *err);
strata_status lab_report_html(const json_t *report, char **text, size_t *n_bytes,
                              strata_error *err);
/* The stages' differences as one patch; empty if there is none. */
strata_status lab_report_patch(const json_t *report, char **text, size_t *n_bytes,
                               strata_error *err);

/* Writes report.json (sealed), report.md, report.html and candidate.patch into the directory dir,
 * which exists. Each appears only once it is complete; report.json comes last, so
 * a directory that has one is whole. */
strata_status lab_report_write(const json_t *report, const char *dir, strata_error *err);

/* ---- the verdict over all ---------------------------------------------------- */

/* From a report whose timings have their verdicts: none if a control misbehaved or
 * the base fails its own oracle, else wrong if a case or the candidate's oracle
 * failed, else what lab_stats_overall says of the timings that decide. */
lab_verdict lab_report_overall(const json_t *report);
/* The timings that decide: the total of a pipeline, else those of the one stage. */
const json_t *lab_report_deciding(const json_t *report);
/* LAB_NO_VERDICT for any other word. */
lab_verdict lab_verdict_by_name(const char *name);

/* gives the line that says the verdict (st_free): the producer stores it and the
 * verifier compares it. */
strata_status lab_report_headline(const json_t *report, char **text, size_t *n_bytes,
                                  strata_error *err);

/* Reasons of a size that was not measured to its end: it has no verdict, whatever its
 * samples say. */
#define LAB_REASON_DEADLINE "the deadline came"
#define LAB_REASON_CRASHED "a kernel crashed while it was timed"
/* Of one whose candidate was wrong only then; it has no samples. */
#define LAB_REASON_CHANGED "a timed batch left other bytes than base's, or another floating-point mode"

/* ---- what both renderers and the verifier ask -------------------------------- */

/* Timings of a stage, or (index = number of stages) of the total. NULL past the
 * end, and for the total of a report that has none. */
const json_t *lab_report_timings(const json_t *report, size_t index, const char **name);

/* How far the noise of two equal arms reaches: ratios between 1/band and band say
 * nothing. 0 if there is no null interval. */
double lab_report_null_band(const json_t *timing);

/* Whether all of a case's buffers, or all of an arm's oracle cases, are right. */
bool lab_report_case_passed(const json_t *parity);
bool lab_report_oracle_passed(const json_t *oracle_arm);

/* A unit for a column of times in which the shortest is at least 1, if it can be. */
typedef struct lab_unit {
  const char *name; /* "ms" */
  double per_second;
} lab_unit;
lab_unit lab_report_unit(const json_t *timings);

/* "A batch is 36 calls ..." in a sentence or two; "" if nothing was timed. */
void lab_report_batch_note(const json_t *report, char *text, size_t n_bytes);

/* What the report's verdict means, a sentence or two. */
const char *lab_report_verdict_meaning(const json_t *report);

/* The names of all buffers of a stage's cases, in the order in which they appear. */
enum { LAB_REPORT_BUFFERS_MAX = 64 };
size_t lab_report_buffer_names(const json_t *stage, const char *names[LAB_REPORT_BUFFERS_MAX]);
const json_t *lab_report_buffer(const json_t *parity, const char *name);

#endif
