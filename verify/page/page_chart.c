/*
 * A group as a picture: time against size, both by factors, and below it how much faster than stock. Drawn here and
 * not by gnuplot (plot.h): a server has none, and the picture follows the page's colours, light and dark.
 */
#include "verify/page/page_parts.h"
#include "verify/page/plot_lines.h"

#include <math.h>

/* Of the picture's own coordinates, which a browser scales. */
enum { WIDTH = 640, LEFT = 46, RIGHT = 628, TOP = 26, BOTTOM = 400, TOP2 = 440, BOTTOM2 = 540, HEIGHT = 568 };

struct frame {
    struct sp_out *out;
    const struct sp_lines *lines;
    double x_from, x_to, y_from, y_to, ratio;
};

static const char *const classes[SP_LINES] = {
    [SP_LINE_MODEL] = "model", [SP_LINE_V1] = "v1",     [SP_LINE_NCCL_NO_P2P] = "nop2p",
    [SP_LINE_NCCL] = "nccl",   [SP_LINE_HOST] = "host", [SP_LINE_OURS] = "ours",
};

static double share(double value, double from, double to)
{
    return to > from ? (log(value) - log(from)) / (log(to) - log(from)) : 0.5;
}

static double x_of(const struct frame *frame, double bytes)
{
    return LEFT + share(bytes, frame->x_from, frame->x_to) * (RIGHT - LEFT);
}

static double y_of(const struct frame *frame, double us)
{
    return BOTTOM - share(us, frame->y_from, frame->y_to) * (BOTTOM - TOP);
}

static double y2_of(const struct frame *frame, double ratio)
{
    return BOTTOM2 - ratio / frame->ratio * (BOTTOM2 - TOP2);
}

/* ---- axes ---- */

static void put_sizes(const struct frame *frame)
{
    double tick[SP_TICKS];
    const size_t count = sp_ticks_sizes(tick, frame->x_from, frame->x_to, 8);
    char text[SP_SIZE_LABEL];

    for (size_t i = 0; i < count; i++) {
        const double x = x_of(frame, tick[i]);

        sp_put(frame->out, "<path class=\"grid\" d=\"M%.1f %dV%dM%.1f %dV%d\"/>", x, TOP, BOTTOM, x, TOP2, BOTTOM2);
        sp_put(frame->out, "<text class=\"tick\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%s</text>\n", x,
               BOTTOM2 + 18, sp_size_label(text, tick[i]));
    }
}

static void put_tick(const struct frame *frame, double y, double value)
{
    sp_put(frame->out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, y, RIGHT);
    sp_put(frame->out, "<text class=\"tick\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%g</text>\n", LEFT - 6, y + 4,
           value);
}

static void put_times(const struct frame *frame)
{
    double tick[SP_TICKS];
    const size_t count = sp_ticks_times(tick, frame->y_from, frame->y_to);

    for (size_t i = 0; i < count; i++)
        put_tick(frame, y_of(frame, tick[i]), tick[i]);
    sp_put(frame->out, "<text class=\"axis\" x=\"0\" y=\"%d\">µs per call, in a step</text>\n", TOP - 12);
}

static void put_ratio_ticks(const struct frame *frame)
{
    const double step = exp2(ceil(log2(frame->ratio / 4)));

    for (double value = 0; value <= frame->ratio; value += step)
        put_tick(frame, y2_of(frame, value), value);
    sp_put(frame->out, "<path class=\"one\" d=\"M%d %.1fH%d\"/>\n", LEFT, y2_of(frame, 1), RIGHT);
    sp_put(frame->out, "<text class=\"axis\" x=\"0\" y=\"%d\">times as fast as stock</text>\n", TOP2 - 12);
}

/* ---- lines ---- */

static void put_points(const struct frame *frame, enum sp_line line)
{
    char text[SP_SIZE_LABEL];

    for (size_t i = 0; i < frame->lines->count; i++) {
        const struct sp_lines_point *point = &frame->lines->point[i];

        if (point->us[line] <= 0)
            continue;
        sp_put(frame->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\"><title>", x_of(frame, point->bytes),
               y_of(frame, point->us[line]), line == SP_LINE_OURS ? 3.6 : 2.8);
        sp_put_html(frame->out, sp_lines_name(frame->lines, line));
        sp_put(frame->out, ", %s: %.4g µs</title></circle>", sp_size_label(text, point->bytes), point->us[line]);
    }
}

static void put_line(const struct frame *frame, enum sp_line line)
{
    char move = 'M';

    sp_put(frame->out, "<g class=\"line %s\"><path d=\"", classes[line]);
    for (size_t i = 0; i < frame->lines->count; i++) {
        const struct sp_lines_point *point = &frame->lines->point[i];

        if (point->us[line] <= 0)
            continue;
        sp_put(frame->out, "%c%.1f %.1f", move, x_of(frame, point->bytes), y_of(frame, point->us[line]));
        move = 'L';
    }
    sp_put(frame->out, "\"/>");
    if (line != SP_LINE_MODEL)
        put_points(frame, line);
    sp_put(frame->out, "</g>\n");
}

static double ratio_of(const struct sp_lines_point *point)
{
    return point->us[SP_LINE_OURS] > 0 ? point->stock / point->us[SP_LINE_OURS] : 0;
}

static void put_ratio(const struct frame *frame)
{
    char move = 'M', text[SP_SIZE_LABEL];

    sp_put(frame->out, "<g class=\"line ours\"><path d=\"");
    for (size_t i = 0; i < frame->lines->count; i++) {
        const struct sp_lines_point *point = &frame->lines->point[i];

        if (ratio_of(point) <= 0)
            continue;
        sp_put(frame->out, "%c%.1f %.1f", move, x_of(frame, point->bytes), y2_of(frame, ratio_of(point)));
        move = 'L';
    }
    sp_put(frame->out, "\"/>");
    for (size_t i = 0; i < frame->lines->count; i++) {
        const struct sp_lines_point *point = &frame->lines->point[i];

        if (ratio_of(point) <= 0)
            continue;
        sp_put(
            frame->out,
            "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\"><title>%s: %.2f times as fast, %s</title></circle>",
            point->served ? "served" : "left", x_of(frame, point->bytes), y2_of(frame, ratio_of(point)),
            sp_size_label(text, point->bytes), ratio_of(point), point->served ? "served by sgl-pcie" : "left to stock");
    }
    sp_put(frame->out, "</g>\n");
}

static void put_legend(const struct frame *frame)
{
    int y = TOP + 14;

    for (int line = SP_LINES - 1; line >= 0; line--) {
        if (!frame->lines->has[line])
            continue;
        sp_put(frame->out, "<g class=\"line %s\"><path d=\"M%d %dh28\"/></g><text class=\"key\" x=\"%d\" y=\"%d\">",
               classes[line], LEFT + 12, y - 4, LEFT + 48, y);
        sp_put_html(frame->out, sp_lines_name(frame->lines, (enum sp_line)line));
        sp_put(frame->out, "</text>\n");
        y += 21;
    }
}

/* ---- the picture ---- */

static void put_description(const struct frame *frame, const struct sp_bench_group *group, size_t number)
{
    char first[SP_SIZE_LABEL], last[SP_SIZE_LABEL];
    const struct sp_lines *lines = frame->lines;

    sp_put(frame->out, "<title id=\"chart-%zu-title\">Time of an all-reduce of %zu GPUs against its size, ", number,
           group->world);
    sp_put_html(frame->out, group->type);
    sp_put(frame->out,
           "</title>\n<desc id=\"chart-%zu-desc\">From %s to %s, sgl-pcie is at best %.2f times as fast as what "
           "SGLang would use. The table beside it has every figure.</desc>\n",
           number, sp_size_label(first, lines->point[0].bytes),
           sp_size_label(last, lines->point[lines->count - 1].bytes), lines->ratio);
}

void sp_page_chart(struct sp_page *page, const struct sp_bench_group *group, size_t number)
{
    struct sp_lines lines;
    struct frame frame = {.out = page->out, .lines = &lines};

    sp_lines_of(&lines, group);
    if (lines.count == 0 || lines.most <= 0)
        return;
    frame.x_from = lines.point[0].bytes / 1.3;
    frame.x_to = lines.point[lines.count - 1].bytes * 1.3;
    frame.y_from = lines.least / 1.4;
    frame.y_to = lines.most * 1.3;
    frame.ratio = fmax(lines.ratio, 1) * 1.3;
    sp_put(
        page->out,
        "<svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"chart-%zu-title chart-%zu-desc\">\n",
        WIDTH, HEIGHT, number, number);
    put_description(&frame, group, number);
    put_sizes(&frame);
    put_times(&frame);
    put_ratio_ticks(&frame);
    for (int line = 0; line < SP_LINES; line++)
        if (lines.has[line])
            put_line(&frame, (enum sp_line)line);
    put_ratio(&frame);
    put_legend(&frame);
    sp_put(page->out, "</svg>\n");
}
