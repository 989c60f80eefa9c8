/* SVG elements as text. */
#include "lab/lab_svg.h"

#include <math.h>
#include <string.h>

/* ---- axes ----------------------------------------------------------------------- */

lab_axis lab_axis_linear(double lo, double hi, double margin, double from, double to) {
  if (!(lo <= hi)) lo = hi = isfinite(hi) ? hi : 0;
  double length = hi - lo, least = fmax(fabs(hi) * 1e-6, 1e-12);
  if (length < least) length = least;
  return (lab_axis){
      .lo = lo - margin * length, .hi = lo + (1 + margin) * length, .from = from, .to = to};
}

lab_axis lab_axis_decades(double lo, double hi, double from, double to) {
  double low = floor(log10(fmin(fmax(lo, 1e-9), 1e23))),
         high = ceil(log10(fmin(fmax(hi, 1e-9), 1e24)));
  if (!(low < high)) high = low + 1;
  if (high - low > 24) low = high - 24;
  return (lab_axis){
      .lo = pow(10, low), .hi = pow(10, high), .from = from, .to = to, .logarithmic = true};
}

bool lab_axis_holds(const lab_axis *a, double value) { return value >= a->lo && value <= a->hi; }

double lab_axis_at(const lab_axis *a, double value) {
  double v = value >= a->lo ? fmin(value, a->hi) : a->lo;
  double share = a->logarithmic ? log(v / a->lo) / log(a->hi / a->lo)
                                : (v - a->lo) / (a->hi - a->lo);
  return a->from + share * (a->to - a->from);
}

/* The smallest of 1, 2, 5 times a power of ten that is at least x. */
static double round_step(double x, double *power) {
  *power = floor(log10(x));
  double unit = pow(10, *power);
  for (int i = 0; i < 3; ++i) {
    static const double steps[] = {1, 2, 5};
    if (steps[i] * unit >= x * (1 - 1e-9)) return steps[i] * unit;
  }
  ++*power;
  return 10 * unit;
}

static int decade_ticks(const lab_axis *a, double ticks[LAB_TICKS_MAX]) {
  int low = (int)lround(log10(a->lo)), high = (int)lround(log10(a->hi)), n = 0;
  int step = (high - low) / LAB_TICKS_MAX + 1;
  for (int e = low; e <= high && n < LAB_TICKS_MAX; e += step) ticks[n++] = pow(10, e);
  return n;
}

int lab_axis_ticks(const lab_axis *a, int wanted, double ticks[LAB_TICKS_MAX], int *digits) {
  int n = 0;
  double power;
  *digits = 0;
  if (a->logarithmic) return decade_ticks(a, ticks);
  double step = round_step((a->hi - a->lo) / wanted, &power), first = ceil(a->lo / step);
  *digits = power < 0 ? (int)fmin(-power, 9) : 0;
  for (int i = 0; i < LAB_TICKS_MAX && (first + i) * step <= a->hi; ++i)
    ticks[n++] = (first + i) * step;
  return n;
}

/* ---- elements -------------------------------------------------------------------- */

void lab_svg_open(lab_text *t, double height, const char *label) {
  lab_text_printf(t, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", LAB_SVG_WIDTH,
                  height);
  lab_text_html_puts(t, label);
  lab_text_puts(t, "\">\n");
}

void lab_svg_close(lab_text *t) { lab_text_puts(t, "</svg>\n"); }

void lab_svg_line(lab_text *t, const char *style, double x1, double y1, double x2, double y2) {
  lab_text_printf(t, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", style, x1, y1, x2, y2);
}

void lab_svg_rect(lab_text *t, const char *style, double x, double y, double width, double height) {
  lab_text_printf(t, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                  style, x, y, fmax(width, 0), fmax(height, 0));
}

static void open_text(lab_text *t, const char *style, double x, double y, const char *anchor) {
  lab_text_printf(t, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", style, x, y,
                  anchor);
}

void lab_svg_text(lab_text *t, const char *style, double x, double y, const char *anchor,
                  const char *text) {
  size_t n_bytes = strlen(text), n = 0, n_characters = 0;
  while (n < n_bytes && n_characters < LAB_SVG_CHARACTERS)
    n_characters += (text[++n] & 0xc0) != 0x80; /* a byte that begins a character, or the end */
  open_text(t, style, x, y, anchor);
  lab_text_html(t, text, n);
  lab_text_puts(t, n < n_bytes ? "…</text>\n" : "</text>\n");
}

void lab_svg_real(lab_text *t, const char *style, double x, double y, const char *anchor,
                  double value, int digits, const char *unit) {
  open_text(t, style, x, y, anchor);
  lab_text_real(t, value, digits);
  lab_text_puts(t, unit);
  lab_text_puts(t, "</text>\n");
}

void lab_svg_mark_open(lab_text *t, const char *mark, bool small, double x, double y) {
  lab_text_printf(t, "<use href=\"#%c-%s\" x=\"%.1f\" y=\"%.1f\"><title>", small ? 's' : 'm', mark,
                  x, y);
}

void lab_svg_mark_close(lab_text *t) { lab_text_puts(t, "</title></use>\n"); }

void lab_svg_shapes(lab_text *t) {
  lab_text_puts(t, "<svg class=\"shapes\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>\n"
                   "<circle id=\"m-base\" class=\"m-base\" r=\"3.2\"/>\n"
                   "<path id=\"m-cand\" class=\"m-cand\" d=\"M0-4.4 4.4 0 0 4.4-4.4 0Z\"/>\n"
                   "<path id=\"m-null\" class=\"m-null\" d=\"M0-3.8 3.8 3-3.8 3Z\"/>\n"
                   "<path id=\"m-off\" class=\"m-off\" d=\"M-5-5 5 5M-5 5 5-5\"/>\n"
                   "<g id=\"s-base\"><use href=\"#m-base\" transform=\"scale(.62)\"/></g>\n"
                   "<g id=\"s-cand\"><use href=\"#m-cand\" transform=\"scale(.62)\"/></g>\n"
                   "<g id=\"s-null\"><use href=\"#m-null\" transform=\"scale(.62)\"/></g>\n"
                   "</defs></svg>\n");
}

void lab_svg_legend(lab_text *t, const char *mark, const char *meaning) {
  lab_text_printf(t,
                  "<span><svg class=\"key\" viewBox=\"-7 -7 14 14\" aria-hidden=\"true\">"
                  "<use href=\"#m-%s\"/></svg>%s</span>\n",
                  mark, meaning);
}
