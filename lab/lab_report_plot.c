/* Ratio plot, samples over time, roofline. */
#include "lab/lab_report.h"
#include "lab/lab_report_plot.h"

#include <math.h>
#include <string.h>

#include "lab/lab_svg.h"

static void open_figure(lab_text *t, const char *title, const char *name) {
  lab_text_puts(t, "<figure><figcaption>");
  lab_text_puts(t, title);
  lab_text_puts(t, "<b>");
  lab_text_html_puts(t, name);
  lab_text_puts(t, "</b></figcaption>\n");
}

static void close_figure(lab_text *t) { lab_text_puts(t, "</figure>\n"); }

static bool is_null_run(const json_t *report) {
  return strcmp(lab_json_text(report, "kind"), "aa") == 0;
}

/* ---- ratios ---------------------------------------------------------------------- */

enum { RATIO_TOP = 6, RATIO_ROW = 44, RATIO_LEFT = 6, RATIO_RIGHT = 354 };

static void widen(double *lo, double *hi, double value) {
  if (!(value > 0)) return;
  *lo = fmin(*lo, value);
  *hi = fmax(*hi, value);
}

/* An outlier of a null band or interval must not press all else together. */
static lab_axis ratio_axis(const json_t *timings, double min_gain) {
  double lo = 1 - min_gain, hi = 1 / (1 - min_gain);
  size_t i;
  json_t *timing;
  json_array_foreach(timings, i, timing) {
    double band = lab_report_null_band(timing);
    widen(&lo, &hi, lab_json_end(timing, "interval", 0));
    widen(&lo, &hi, lab_json_end(timing, "interval", 1));
    widen(&lo, &hi, lab_json_real(timing, "ratio"));
    if (band > 0) widen(&lo, &hi, band), widen(&lo, &hi, 1 / band);
  }
  return lab_axis_linear(fmax(lo, 0.1), fmin(hi, 10), 0.06, RATIO_LEFT, RATIO_RIGHT);
}

static void ratio_grid(lab_text *t, const lab_axis *x, double min_gain, double bottom,
                       bool null_run) {
  double ticks[LAB_TICKS_MAX];
  int digits, n = lab_axis_ticks(x, 5, ticks, &digits);
  for (int i = 0; i < n; ++i) {
    double at = lab_axis_at(x, ticks[i]);
    lab_svg_line(t, "grid", at, RATIO_TOP, at, bottom);
    if (at > RATIO_LEFT + 12 && at < RATIO_RIGHT - 12)
      lab_svg_real(t, "tick", at, bottom + 14, "middle", ticks[i], digits, "");
  }
  double win = lab_axis_at(x, 1 - min_gain), loss = lab_axis_at(x, 1 / (1 - min_gain)),
         one = lab_axis_at(x, 1);
  lab_svg_line(t, "rule", win, RATIO_TOP, win, bottom);
  lab_svg_line(t, "rule", loss, RATIO_TOP, loss, bottom);
  lab_svg_line(t, "axis", one, RATIO_TOP, one, bottom);
  lab_svg_text(t, "tick", RATIO_LEFT, bottom + 30, "start",
               null_run ? "← second copy faster" : "← candidate faster");
  lab_svg_text(t, "tick", RATIO_RIGHT, bottom + 30, "end",
               null_run ? "slower →" : "candidate slower →");
}

static void ratio_row(lab_text *t, const lab_axis *x, const json_t *timing, double top,
                      const char *mark) {
  double ratio = lab_json_real(timing, "ratio"), band = lab_report_null_band(timing), y = top + 31;
  double low = lab_axis_at(x, lab_json_end(timing, "interval", 0));
  double high = lab_axis_at(x, lab_json_end(timing, "interval", 1));
  if (band > 0) {
    double from = lab_axis_at(x, 1 / band), to = lab_axis_at(x, band);
    lab_svg_rect(t, "band", from, top + 21, fmax(to - from, 1), 20);
  }
  lab_svg_text(t, "label", RATIO_LEFT, top + 14, "start", lab_json_text(timing, "size"));
  if (!(ratio > 0)) {
    lab_svg_text(t, "label", RATIO_RIGHT, top + 14, "end", "no ratio");
    return;
  }
  lab_svg_real(t, "label", RATIO_RIGHT, top + 14, "end", ratio, 4, "");
  lab_text_printf(t,
                  "<path class=\"whisker %s\" d=\"M%.1f %.1fH%.1fM%.1f %.1fv10M%.1f %.1fv10\"/>\n",
                  mark, low, y, high, low, y - 5, high, y - 5);
  lab_svg_mark_open(t, mark, false, lab_axis_at(x, ratio), y);
  lab_text_html_puts(t, lab_json_text(timing, "size"));
  lab_text_puts(t, ": ");
  lab_text_real(t, ratio, 4);
  lab_text_puts(t, " [");
  lab_text_real(t, lab_json_end(timing, "interval", 0), 4);
  lab_text_puts(t, ", ");
  lab_text_real(t, lab_json_end(timing, "interval", 1), 4);
  lab_text_puts(t, "]");
  lab_svg_mark_close(t);
}

void lab_plot_ratios(lab_text *t, const json_t *report, const json_t *timings, const char *name) {
  double min_gain = lab_json_real(json_object_get(report, "rule"), "min_gain");
  double bottom = RATIO_TOP + RATIO_ROW * (double)json_array_size(timings) + 4;
  lab_axis x = ratio_axis(timings, min_gain);
  size_t i;
  json_t *timing;
  open_figure(t,
              is_null_run(report) ? "Time of the second copy over base: "
                                  : "Time of the candidate over base: ",
              name);
  lab_svg_open(t, bottom + 36, "Ratios with their intervals; the table has the same numbers");
  ratio_grid(t, &x, min_gain, bottom, is_null_run(report));
  json_array_foreach(timings, i, timing)
    ratio_row(t, &x, timing, RATIO_TOP + RATIO_ROW * (double)i,
              is_null_run(report) ? "null" : "cand");
  lab_svg_close(t);
  lab_text_puts(t, "<p class=\"legend\">");
  lab_svg_legend(t, is_null_run(report) ? "null" : "cand", "ratio and interval");
  lab_text_puts(t, "<span><i class=\"key band\"></i>null band</span>\n<span><i class=\"key "
                   "dash\"></i>least gain or loss</span></p>\n");
  close_figure(t);
}

/* ---- samples ----------------------------------------------------------------------- */

enum {
  SAMPLE_TOP = 22,
  SAMPLE_BOTTOM = 150,
  SAMPLE_LEFT = 54,
  SAMPLE_RIGHT = 354,
  SAMPLE_OFF = 11
};

/* More samples than this get smaller marks. */
enum { DENSE = 150 };

/* Disturbed samples lie on a line of their own above the others, else they would
 * press all others to the bottom. */
static void sample_axes(const json_t *samples, double per_second, lab_axis *x, lab_axis *y) {
  double lo = INFINITY, hi = -INFINITY, end = 0;
  size_t i;
  json_t *sample;
  json_array_foreach(samples, i, sample) {
    double seconds = lab_json_real(sample, "seconds") * per_second;
    end = fmax(end, lab_json_real(sample, "at"));
    if (lab_json_true(sample, "disturbed")) continue;
    lo = fmin(lo, seconds);
    hi = fmax(hi, seconds);
  }
  *x = lab_axis_linear(0, end, 0.015, SAMPLE_LEFT, SAMPLE_RIGHT);
  *y = lab_axis_linear(lo, hi, 0.06, SAMPLE_BOTTOM, SAMPLE_TOP);
}

static void sample_grid(lab_text *t, const lab_axis *x, const lab_axis *y, lab_unit unit) {
  double ticks[LAB_TICKS_MAX];
  int digits, n = lab_axis_ticks(y, 4, ticks, &digits);
  for (int i = 0; i < n; ++i) {
    double at = lab_axis_at(y, ticks[i]);
    lab_svg_line(t, "grid", SAMPLE_LEFT, at, SAMPLE_RIGHT, at);
    lab_svg_real(t, "tick", SAMPLE_LEFT - 6, at + 4, "end", ticks[i], digits, "");
  }
  n = lab_axis_ticks(x, 4, ticks, &digits);
  for (int i = 0; i < n; ++i) {
    double at = lab_axis_at(x, ticks[i]);
    lab_svg_line(t, "axis", at, SAMPLE_BOTTOM, at, SAMPLE_BOTTOM + 4);
    if (at < SAMPLE_RIGHT - 14)
      lab_svg_real(t, "tick", at, SAMPLE_BOTTOM + 17, "middle", ticks[i], digits, "");
  }
  lab_svg_line(t, "axis", SAMPLE_LEFT, SAMPLE_BOTTOM, SAMPLE_RIGHT, SAMPLE_BOTTOM);
  lab_svg_text(t, "tick", SAMPLE_RIGHT, SAMPLE_BOTTOM + 17, "end", "s");
  lab_svg_text(t, "tick", 2, SAMPLE_TOP + 4, "start", unit.name);
}

static void sample_mark(lab_text *t, const json_t *sample, const lab_axis *x, const lab_axis *y,
                        lab_unit unit, bool is_dense) {
  bool disturbed = lab_json_true(sample, "disturbed");
  double seconds = lab_json_real(sample, "seconds") * unit.per_second;
  double at_x = lab_axis_at(x, lab_json_real(sample, "at")),
         at_y = disturbed ? SAMPLE_OFF : lab_axis_at(y, seconds);
  const char *arm = lab_json_text(sample, "arm");
  if (disturbed) lab_text_printf(t, "<use href=\"#m-off\" x=\"%.1f\" y=\"%.1f\"/>", at_x, at_y);
  lab_svg_mark_open(t, arm, is_dense, at_x, at_y);
  lab_text_printf(t, "round %lld, %s: ", (long long)lab_json_int(sample, "round"), arm);
  lab_text_real(t, seconds, 3);
  lab_text_printf(t, " %s%s", unit.name, disturbed ? ", disturbed" : "");
  lab_svg_mark_close(t);
}

void lab_plot_samples(lab_text *t, const json_t *timing, lab_unit unit) {
  const json_t *samples = json_object_get(timing, "samples");
  bool is_dense = json_array_size(samples) > DENSE;
  lab_axis x, y;
  size_t i;
  json_t *sample;
  open_figure(t, "", lab_json_text(timing, "size"));
  lab_svg_open(t, SAMPLE_BOTTOM + 24, "Time of each batch in the order of measuring");
  if (json_array_size(samples)) {
    sample_axes(samples, unit.per_second, &x, &y);
    sample_grid(t, &x, &y, unit);
  } else {
    lab_svg_text(t, "label", LAB_SVG_WIDTH / 2, SAMPLE_BOTTOM / 2, "middle", "no samples");
  }
  if (lab_json_int(timing, "disturbed"))
    lab_svg_line(t, "rule", SAMPLE_LEFT, SAMPLE_OFF, SAMPLE_RIGHT, SAMPLE_OFF);
  json_array_foreach(samples, i, sample) sample_mark(t, sample, &x, &y, unit, is_dense);
  lab_svg_close(t);
  close_figure(t);
}

/* ---- roofline ----------------------------------------------------------------------- */

enum { ROOF_TOP = 22, ROOF_BOTTOM = 222, ROOF_LEFT = 46, ROOF_RIGHT = 352 };

static double intensity(const json_t *timing) {
  double bytes = lab_json_real(timing, "bytes");
  return bytes > 0 ? lab_json_real(timing, "flops") / bytes : 0;
}

/* Operations a second if the batch took what key says; 0 if that is not known. */
static double rate(const json_t *timing, const char *key) {
  double seconds = lab_json_real(timing, key);
  return seconds > 0 ? lab_json_real(timing, "flops") / seconds : 0;
}

static bool is_placed(const json_t *timing) {
  return intensity(timing) > 0 && rate(timing, "base_seconds") > 0;
}

static const json_t *memory_levels(const json_t *report) {
  return json_object_get(json_object_get(report, "ceilings"), "bytes_per_s");
}

bool lab_plot_has_roofline(const json_t *report, const json_t *timings) {
  size_t i;
  json_t *timing;
  if (lab_json_real(json_object_get(report, "ceilings"), "flops_per_s") <= 0) return false;
  json_array_foreach(timings, i, timing)
    if (is_placed(timing)) return true;
  return false;
}

static void roof_axes(const json_t *report, const json_t *timings, lab_axis *x, lab_axis *y) {
  double peak = lab_json_real(json_object_get(report, "ceilings"), "flops_per_s");
  double dram = lab_json_real(memory_levels(report), "dram");
  double ridge = dram > 0 ? peak / dram : 1, lo = ridge, hi = ridge, low = peak;
  size_t i;
  json_t *timing;
  json_array_foreach(timings, i, timing) {
    if (!is_placed(timing)) continue;
    lo = fmin(lo, intensity(timing));
    hi = fmax(hi, intensity(timing));
    low = fmin(low, rate(timing, "base_seconds"));
    if (rate(timing, "cand_seconds") > 0) low = fmin(low, rate(timing, "cand_seconds"));
  }
  *x = lab_axis_decades(lo / 3, hi * 3, ROOF_LEFT, ROOF_RIGHT);
  *y = lab_axis_decades(low / 2, peak * 1.2, ROOF_BOTTOM, ROOF_TOP);
}

static void put_power(lab_text *t, double x, double y, const char *anchor, double value) {
  static const char *const names[] = {"n", "µ", "m", "", "k", "M", "G", "T", "P", "E"};
  int exponent = (int)lround(log10(value)), group = (int)floor(exponent / 3.0);
  if (group < -3 || group > 6) lab_svg_real(t, "tick", x, y, anchor, value, 0, "");
  else lab_svg_real(t, "tick", x, y, anchor, pow(10, exponent - 3 * group), 0, names[group + 3]);
}

static void roof_grid(lab_text *t, const lab_axis *x, const lab_axis *y) {
  double ticks[LAB_TICKS_MAX];
  int digits, n = lab_axis_ticks(x, 6, ticks, &digits);
  for (int i = 0; i < n; ++i) {
    double at = lab_axis_at(x, ticks[i]);
    lab_svg_line(t, "grid", at, ROOF_TOP, at, ROOF_BOTTOM);
    put_power(t, at, ROOF_BOTTOM + 16, i + 1 < n ? "middle" : "end", ticks[i]);
  }
  n = lab_axis_ticks(y, 6, ticks, &digits);
  for (int i = 0; i < n; ++i) {
    double at = lab_axis_at(y, ticks[i]);
    lab_svg_line(t, "grid", ROOF_LEFT, at, ROOF_RIGHT, at);
    put_power(t, ROOF_LEFT - 6, at + 4, "end", ticks[i]);
  }
  lab_svg_text(t, "tick", (ROOF_LEFT + ROOF_RIGHT) / 2.0, ROOF_BOTTOM + 34, "middle",
               "operations a byte");
  lab_svg_text(t, "tick", ROOF_LEFT - 6, 11, "end", "op/s");
}

/* The part of a memory level's diagonal that lies in the frame and below the peak. */
static void roof_level(lab_text *t, const lab_axis *x, const lab_axis *y, double peak,
                       double bytes_per_s, const char *name, bool is_floor) {
  if (!(bytes_per_s > 0)) return;
  double from = fmax(x->lo, y->lo / bytes_per_s), to = fmin(x->hi, peak / bytes_per_s);
  if (!(from < to)) return;
  double x1 = lab_axis_at(x, from), y1 = lab_axis_at(y, from * bytes_per_s);
  double x2 = lab_axis_at(x, to), y2 = lab_axis_at(y, to * bytes_per_s);
  lab_svg_line(t, is_floor ? "roof" : "level", x1, y1, x2, y2);
  lab_text_printf(
      t, "<text class=\"tick\" transform=\"translate(%.1f %.1f) rotate(%.1f)\" dy=\"-5\">", x1 + 6,
      y1 - 6 * (y1 - y2) / fmax(x2 - x1, 1), -atan2(y1 - y2, x2 - x1) * 57.29578);
  lab_text_puts(t, name);
  lab_text_puts(t, "</text>\n");
}

static void roof_ceilings(lab_text *t, const json_t *report, const lab_axis *x, const lab_axis *y) {
  static const char *const levels[][2] = {
      {"l1", "L1"}, {"l2", "L2"}, {"l3", "L3"}, {"dram", "memory"}};
  double peak = lab_json_real(json_object_get(report, "ceilings"), "flops_per_s");
  double dram = lab_json_real(memory_levels(report), "dram"), top = lab_axis_at(y, peak);
  for (size_t i = 0; i < 4; ++i)
    roof_level(t, x, y, peak, lab_json_real(memory_levels(report), levels[i][0]), levels[i][1],
               i == 3);
  lab_svg_line(t, "roof", dram > 0 ? lab_axis_at(x, peak / dram) : ROOF_LEFT, top, ROOF_RIGHT, top);
  lab_svg_text(t, "tick", ROOF_RIGHT, top - 4, "end", "arithmetic");
}

static void roof_mark(lab_text *t, const json_t *timing, const char *mark, const char *key,
                      const lab_axis *x, const lab_axis *y) {
  double value = rate(timing, key);
  if (!(value > 0)) return;
  lab_svg_mark_open(t, mark, false, lab_axis_at(x, intensity(timing)), lab_axis_at(y, value));
  lab_text_html_puts(t, lab_json_text(timing, "size"));
  lab_text_printf(t, ", %s: %.4g GFLOP/s", mark, value / 1e9);
  lab_svg_mark_close(t);
}

static void roof_timing(lab_text *t, const json_t *timing, const lab_axis *x, const lab_axis *y) {
  double at = lab_axis_at(x, intensity(timing)), floor_rate = rate(timing, "floor_seconds");
  if (!is_placed(timing)) return;
  if (floor_rate > 0) {
    double top = lab_axis_at(y, floor_rate);
    lab_svg_line(t, "rule", at, top, at, lab_axis_at(y, rate(timing, "base_seconds")));
    lab_svg_line(t, "floor", at - 7, top, at + 7, top);
  }
  roof_mark(t, timing, "base", "base_seconds", x, y);
  roof_mark(t, timing, "cand", "cand_seconds", x, y);
}

void lab_plot_roofline(lab_text *t, const json_t *report, const json_t *timings, const char *name) {
  lab_axis x, y;
  size_t i;
  json_t *timing;
  if (!lab_plot_has_roofline(report, timings)) return;
  roof_axes(report, timings, &x, &y);
  open_figure(t, "Roofline: ", name);
  lab_svg_open(t, ROOF_BOTTOM + 40, "Operations a byte against operations a second");
  roof_grid(t, &x, &y);
  roof_ceilings(t, report, &x, &y);
  json_array_foreach(timings, i, timing) roof_timing(t, timing, &x, &y);
  lab_svg_close(t);
  lab_text_puts(t, "<p class=\"legend\">");
  lab_svg_legend(t, "base", "base");
  if (!is_null_run(report)) lab_svg_legend(t, "cand", "candidate");
  lab_text_puts(t, "<span><i class=\"key floorkey\"></i>floor</span></p>\n");
  close_figure(t);
}
