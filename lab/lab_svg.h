/* Small plots as SVG inside a report: a frame, axes with round ticks, marks.
 *
 * A plot is LAB_SVG_WIDTH units wide, about a phone's width in CSS pixels, so that
 * its text is as large as the page's there and a little larger in a wide column.
 * Colours come from the page's style sheet by class. Foreign numbers may be
 * anything: coordinates are kept inside the frame. */
#ifndef LAB_SVG_H
#define LAB_SVG_H

#include "lab/lab_text.h"

#define LAB_SVG_WIDTH 360.0

/* Values lo .. hi lie at from .. to. */
typedef struct lab_axis {
  double lo, hi, from, to;
  bool logarithmic;
} lab_axis;

/* An axis that holds lo .. hi with a margin (a share of its length) on both ends;
 * any lo and hi, also equal or swapped ones, give a usable axis. */
lab_axis lab_axis_linear(double lo, double hi, double margin, double from, double to);
/* Whole decades around lo .. hi, at most 24 of them from 1e-9 on. */
lab_axis lab_axis_decades(double lo, double hi, double from, double to);
/* Where value lies; values outside lie at the nearer end. */
double lab_axis_at(const lab_axis *axis, double value);
bool lab_axis_holds(const lab_axis *axis, double value);

enum { LAB_TICKS_MAX = 12 };
/* fills ticks with round values, about wanted of them; the digits behind the point
 * that tell them apart in *digits. */
int lab_axis_ticks(const lab_axis *axis, int wanted, double ticks[LAB_TICKS_MAX], int *digits);

/* label is read aloud in the picture's place. */
void lab_svg_open(lab_text *t, double height, const char *label);
void lab_svg_close(lab_text *t);
void lab_svg_line(lab_text *t, const char *style, double x1, double y1, double x2, double y2);
void lab_svg_rect(lab_text *t, const char *style, double x, double y, double width, double height);
/* anchor: "start", "middle" or "end". text is foreign; what goes beyond
 * LAB_SVG_CHARACTERS of it is left out. */
enum { LAB_SVG_CHARACTERS = 34 };
void lab_svg_text(lab_text *t, const char *style, double x, double y, const char *anchor,
                  const char *text);
/* As above for a number. */
void lab_svg_real(lab_text *t, const char *style, double x, double y, const char *anchor,
                  double value, int digits, const char *unit);
/* The mark of an arm ("base", "cand", "null", "off"), small where there are many;
 * the caller writes its title between open and close. */
void lab_svg_mark_open(lab_text *t, const char *mark, bool small, double x, double y);
void lab_svg_mark_close(lab_text *t);

/* The marks' shapes, once in a document before the first plot; then the same shape
 * as a line of a legend. */
void lab_svg_shapes(lab_text *t);
void lab_svg_legend(lab_text *t, const char *mark, const char *meaning);

#endif
