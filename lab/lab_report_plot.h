/* The plots of report.html, each a figure with its caption. report is checked. */
#ifndef LAB_REPORT_PLOT_H
#define LAB_REPORT_PLOT_H

#include "lab/lab_report.h"
#include "lab/lab_text.h"

/* A row a size: ratio, interval, null band, and the rule's least gain. */
void lab_plot_ratios(lab_text *t, const json_t *report, const json_t *timings, const char *name);
/* One size: every sample in time order, disturbed ones marked. */
void lab_plot_samples(lab_text *t, const json_t *timing, lab_unit unit);
/* Operations a byte against operations a second: ceilings, floor, both arms. Draws
 * nothing without ceilings, or where no timing counts both. */
void lab_plot_roofline(lab_text *t, const json_t *report, const json_t *timings, const char *name);
bool lab_plot_has_roofline(const json_t *report, const json_t *timings);

#endif
