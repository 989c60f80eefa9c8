/* What the files that write report.html share. */
#ifndef LAB_REPORT_HTML_H
#define LAB_REPORT_HTML_H

#include "lab/lab_text.h"

extern const char *const lab_report_style;

/* A section: its heading carries the id that the list of contents links to. */
void lab_html_section(lab_text *t, const char *id, const char *title);
/* A subheading with a foreign name. */
void lab_html_name(lab_text *t, const char *name);
/* A table that scrolls by itself; style may be "". The caller writes the rows. */
void lab_html_table_open(lab_text *t, const char *style);
void lab_html_table_close(lab_text *t);
/* <tag class="style">text</tag> for foreign text. */
void lab_html_element(lab_text *t, const char *tag, const char *style, const char *text);
/* A right-aligned cell with a number. */
void lab_html_real(lab_text *t, double value, int digits);
/* A verdict's word with its sign, coloured. */
void lab_html_verdict(lab_text *t, const char *tag, const char *style, const char *verdict);

/* Sources with their hashes and their difference, and the contract. */
void lab_html_sources(lab_text *t, const json_t *stages);
void lab_html_contracts(lab_text *t, const json_t *stages);
/* Oracle, matrix by case and buffer, what failed; and the controls. */
void lab_html_correctness(lab_text *t, const json_t *stages);
void lab_html_controls(lab_text *t, const json_t *stages);

#endif
