/*
 * The machine as a picture: sockets at the left, switches, GPUs at the right, each with the link that leads to it. A
 * bridge is drawn where ways part; what leads to a single GPU is that GPU's link.
 */
#include "verify/machine/picture.h"
#include "verify/page/page_parts.h"
#include "verify/verdict/algorithm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NODES = 3 * SP_REC_GPUS_MAX, CHAIN = 16 };
enum {
    PLACE_WIDE = 150,
    SWITCH_WIDE = 150,
    GPU_WIDE = 250,
    GPU_WIDEST = 520,
    GAP_WIDE = 128,
    ROW = 60,
    BOX = 46,
    EDGE = 2,
    BRACKET = 92
};

enum node_kind { PLACE, SWITCH, GPU };

struct node {
    enum node_kind kind;
    int parent; /* -1: a place */
    int pci;    /* of a switch */
    size_t gpu;
    int64_t socket, numa; /* of a place */
    int column;
    double y; /* of its middle */
};

struct tree {
    struct sp_page *page;
    struct node node[NODES];
    size_t count;
    int columns; /* of switches */
    double gpu_wide;
    size_t rows;
};

/* ---- the tree ---- */

static int add(struct tree *tree, struct node node)
{
    for (size_t i = 0; i < tree->count; i++) {
        const struct node *is = &tree->node[i];

        if (is->kind == node.kind && is->parent == node.parent && is->pci == node.pci && is->gpu == node.gpu &&
            is->socket == node.socket && is->numa == node.numa)
            return (int)i;
    }
    if (tree->count == NODES) /* a machine that no board holds: what is left goes below the last */
        return NODES - 1;
    node.column = node.parent < 0 ? 0 : tree->node[node.parent].column + 1;
    tree->node[tree->count] = node;
    return (int)tree->count++;
}

/* Does the way to several GPUs come down here and part? The upper port of a switch, that is. */
static bool is_drawn(const struct sp_topology *topology, int pci)
{
    const struct sp_topo_pci *is = &topology->pci[pci];

    return is->depth > 0 && is->gpus > 1 &&
           (topology->pci[is->parent].depth == 0 || topology->pci[is->parent].gpus > is->gpus);
}

static void add_gpu(struct tree *tree, size_t number)
{
    const struct sp_topology *topology = &tree->page->topology;
    const struct sp_topo_gpu *gpu = &topology->gpu[number];
    int chain[CHAIN], length = 0, at;

    for (int pci = gpu->parent; pci >= 0 && length < CHAIN; pci = topology->pci[pci].parent)
        if (is_drawn(topology, pci))
            chain[length++] = pci;
    at = add(tree, (struct node){.kind = PLACE, .parent = -1, .pci = -1, .socket = gpu->socket, .numa = gpu->numa});
    while (length > 0)
        at = add(tree, (struct node){.kind = SWITCH, .parent = at, .pci = chain[--length]});
    if (tree->node[at].column > tree->columns)
        tree->columns = tree->node[at].column;
    (void)add(tree, (struct node){.kind = GPU, .parent = at, .pci = -1, .gpu = number});
}

static double lay_out(struct tree *tree, int at)
{
    struct node *node = &tree->node[at];
    double first = -1, last = -1;

    if (node->kind == GPU) {
        node->y = EDGE + BOX / 2.0 + ROW * (double)tree->rows++;
        return node->y;
    }
    for (size_t i = 0; i < tree->count; i++)
        if (tree->node[i].parent == at) {
            last = lay_out(tree, (int)i);
            first = first < 0 ? last : first;
        }
    node->y = (first + last) / 2;
    return node->y;
}

/* ---- places on the picture ---- */

static double left_of(const struct tree *tree, const struct node *node)
{
    const int column = node->kind == GPU ? tree->columns + 1 : node->column;

    return column == 0 ? EDGE : EDGE + PLACE_WIDE + GAP_WIDE + (column - 1) * (SWITCH_WIDE + GAP_WIDE);
}

static double wide(const struct tree *tree, const struct node *node)
{
    return node->kind == GPU ? tree->gpu_wide : node->kind == SWITCH ? SWITCH_WIDE : PLACE_WIDE;
}

/* By the longest name: a browser does not say how wide a text is, so by its characters. */
static double gpu_width(const struct sp_topology *topology)
{
    size_t longest = 0;

    for (size_t i = 0; i < topology->gpu_count; i++) {
        const char *name = topology->gpu[i].is->name ? topology->gpu[i].is->name : "";

        longest = strlen(name) > longest ? strlen(name) : longest;
    }
    return fmin(fmax(GPU_WIDE, 72 + 7.8 * (double)longest), GPU_WIDEST);
}

/* ---- texts ---- */

static int generation(double speed)
{
    static const double speeds[] = {2.5, 5, 8, 16, 32, 64};

    for (int i = 0; i < 6; i++)
        if (speed > speeds[i] * 0.95 && speed < speeds[i] * 1.05)
            return i + 1;
    return 0;
}

/* "Gen5 ×16", what of it is known. */
static void put_link(struct sp_out *out, double speed, int64_t width)
{
    if (generation(speed) > 0)
        sp_put(out, "Gen%d", generation(speed));
    if (width > 0)
        sp_put(out, "%s×%lld", generation(speed) > 0 ? " " : "", (long long)width);
}

static bool is_narrow(const struct sp_topo_link *link)
{
    return link->width > 0 && link->gpu_width > 0 && link->width < link->gpu_width;
}

/* ---- boxes ---- */

static void put_box(const struct tree *tree, const struct node *node, const char *class)
{
    sp_put(tree->page->out, "<rect class=\"box %s\" x=\"%.1f\" y=\"%.1f\" width=\"%.0f\" height=\"%d\" rx=\"6\"/>",
           class, left_of(tree, node) + 0.5, node->y - BOX / 2.0 + 0.5, wide(tree, node), BOX); /* on whole pixels */
}

static void begin_text(const struct tree *tree, const struct node *node, const char *class, double down)
{
    sp_put(tree->page->out, "<text class=\"%s\" x=\"%.0f\" y=\"%.1f\">", class, left_of(tree, node) + 10,
           node->y + down);
}

static void put_place(const struct tree *tree, const struct node *node)
{
    struct sp_out *out = tree->page->out;

    put_box(tree, node, "place");
    begin_text(tree, node, "first", -3);
    if (node->socket != SP_ABSENT)
        sp_put(out, "CPU socket %lld", (long long)node->socket);
    else
        sp_put(out, "CPU");
    sp_put(out, "</text>");
    begin_text(tree, node, "second", 15);
    if (node->numa >= 0)
        sp_put(out, "memory node %lld", (long long)node->numa);
    else
        sp_put(out, "host memory");
    sp_put(out, "</text>\n");
}

static void put_switch(const struct tree *tree, const struct node *node)
{
    const struct sp_topo_pci *pci = &tree->page->topology.pci[node->pci];
    struct sp_out *out = tree->page->out;

    put_box(tree, node, "switch");
    begin_text(tree, node, "first", -3);
    sp_put(out, "%s for %zu GPUs</text>", pci->chipset ? "Chipset" : "Switch", pci->gpus);
    begin_text(tree, node, "second", 15);
    sp_put_html(out, pci->is->bdf);
    sp_put(out, "</text>\n");
}

/* With how many others NVLink joins this one. */
static size_t nvlinks(const struct sp_topology *topology, size_t gpu)
{
    size_t count = 0;

    for (size_t i = 0; i < topology->gpu_count; i++)
        count += i != gpu && sp_topology_nvlink(topology, gpu, i);
    return count;
}

static bool all_nvlinked(const struct sp_topology *topology)
{
    for (size_t i = 0; i < topology->gpu_count; i++)
        if (nvlinks(topology, i) + 1 < topology->gpu_count)
            return false;
    return topology->gpu_count > 1;
}

static void put_gpu(const struct tree *tree, const struct node *node)
{
    const struct sp_topology *topology = &tree->page->topology;
    const struct sp_topo_gpu *gpu = &topology->gpu[node->gpu];
    const size_t joined = nvlinks(topology, node->gpu);
    struct sp_out *out = tree->page->out;

    put_box(tree, node, "gpu");
    begin_text(tree, node, "first", -3);
    sp_put(out, "GPU %zu <tspan class=\"light\">", gpu->number);
    sp_put_html(out, gpu->is->name ? gpu->is->name : "");
    sp_put(out, "</tspan></text>");
    begin_text(tree, node, "second", 15);
    sp_put_html(out, gpu->is->bdf);
    if (gpu->pci >= 0 && topology->pci[gpu->pci].chipset)
        sp_put(out, ", chipset");
    if (joined > 0 && !all_nvlinked(topology))
        sp_put(out, ", NVLink to %zu", joined);
    sp_put(out, "</text>\n");
}

/* ---- edges ---- */

/* The line is as thick as the link is wide and fast. */
static void put_edge(const struct tree *tree, const struct node *node)
{
    const struct node *parent = &tree->node[node->parent];
    const struct sp_topology *topology = &tree->page->topology;
    const struct sp_topo_link *link = node->kind == GPU ? &topology->gpu[node->gpu].link : NULL;
    const double speed = !link                      ? topology->pci[node->pci].is->max_speed
                         : link->possible_speed > 0 ? link->possible_speed
                                                    : link->speed;
    const int64_t width = link ? link->width : topology->pci[node->pci].is->max_width;
    const double from = left_of(tree, parent) + wide(tree, parent), to = left_of(tree, node);
    const double gbs = speed > 0 && width > 0 ? speed * (double)width / 8 : 0;
    struct sp_out *out = tree->page->out;

    sp_put(out, "<path class=\"edge%s\" stroke-width=\"%.1f\" d=\"M%.0f %.1fH%.0fV%.1fH%.0f\"/>",
           link && is_narrow(link) ? " narrow" : "", 1 + fmin(gbs, 128) / 32, from, parent->y, from + 16, node->y, to);
    sp_put(out, "<text class=\"link%s\" text-anchor=\"end\" x=\"%.0f\" y=\"%.1f\">",
           link && is_narrow(link) ? " narrow" : "", to - 6, node->y - 6);
    put_link(out, speed, width);
    if (link && is_narrow(link))
        sp_put(out, " of ×%lld", (long long)link->gpu_width);
    sp_put(out, "</text>\n");
}

static void put_bracket(const struct tree *tree, double x)
{
    const double last = EDGE + BOX / 2.0 + ROW * (double)(tree->rows - 1), middle = (EDGE + BOX / 2.0 + last) / 2;

    sp_put(tree->page->out,
           "<path class=\"edge nvlink\" stroke-width=\"3\" d=\"M%.0f %.1fh14V%.1fh-14\"/><text class=\"link nvlink\" "
           "x=\"%.0f\" y=\"%.1f\">NVLink</text>\n",
           x, EDGE + BOX / 2.0, last, x + 22, middle + 4);
}

/* ---- the picture ---- */

static void put_picture(struct tree *tree)
{
    struct sp_out *out = tree->page->out;
    const struct sp_topology *topology = &tree->page->topology;
    const struct node last = {.kind = GPU};
    const double right = left_of(tree, &last) + tree->gpu_wide;
    const bool nvlink = all_nvlinked(topology);

    sp_put(
        out,
        "<div class=\"scroll\" role=\"region\" aria-labelledby=\"machine-title\" tabindex=\"0\">\n"
        "<svg class=\"machine\" viewBox=\"0 0 %.0f %zu\" width=\"%.0f\" height=\"%zu\" role=\"img\" "
        "aria-labelledby=\"machine-title machine-desc\">\n<title id=\"machine-title\">How the GPUs are linked</title>\n"
        "<desc id=\"machine-desc\">%zu GPUs, each with its PCIe link, up to the switches and CPU sockets that they "
        "share. The tables below say the same in words.</desc>\n",
        right + (nvlink ? BRACKET : EDGE), EDGE * 2 + ROW * tree->rows, right + (nvlink ? BRACKET : EDGE),
        EDGE * 2 + ROW * tree->rows, topology->gpu_count);
    for (size_t i = 0; i < tree->count; i++)
        if (tree->node[i].parent >= 0)
            put_edge(tree, &tree->node[i]);
    for (size_t i = 0; i < tree->count; i++)
        if (tree->node[i].kind == GPU)
            put_gpu(tree, &tree->node[i]);
        else if (tree->node[i].kind == SWITCH)
            put_switch(tree, &tree->node[i]);
        else
            put_place(tree, &tree->node[i]);
    if (nvlink)
        put_bracket(tree, right + 6);
    sp_put(out, "</svg>\n</div>\n");
}

/* ---- tables ---- */

static void put_size(struct sp_out *out, int64_t bytes)
{
    if (bytes > 0)
        sp_put(out, "<td class=\"n\">%.4g GiB</td>", (double)bytes / (1 << 30));
    else
        sp_put(out, "<td class=\"n none\">–</td>");
}

static void put_gpu_row(struct sp_out *out, const struct sp_topo_gpu *gpu)
{
    sp_put(out, "<tr><th scope=\"row\">GPU %zu</th><td>", gpu->number);
    sp_put_html(out, gpu->is->name ? gpu->is->name : "");
    sp_put(out, "</td><td><code>");
    sp_put_html(out, gpu->is->bdf);
    sp_put(out, "</code></td><td>");
    put_link(out, gpu->link.speed, gpu->link.width);
    sp_put(out, "</td><td>");
    put_link(out, gpu->link.possible_speed, gpu->link.possible_width);
    sp_put(out, "</td>");
    put_size(out, gpu->memory);
    put_size(out, gpu->bar1);
    if (gpu->numa >= 0)
        sp_put(out, "<td class=\"n\">%lld</td></tr>\n", (long long)gpu->numa);
    else
        sp_put(out, "<td class=\"n none\">–</td></tr>\n");
}

static void put_gpus(struct sp_page *page)
{
    sp_put(page->out,
           "<div class=\"scroll\" role=\"region\" aria-labelledby=\"gpus\" tabindex=\"0\">\n<table>\n<caption "
           "id=\"gpus\">GPUs and their links; an idle link runs slower than it can</caption>\n<thead><tr>"
           "<th scope=\"col\">GPU</th><th scope=\"col\">Model</th><th scope=\"col\">Address</th>"
           "<th scope=\"col\">Link now</th><th scope=\"col\">possible</th><th scope=\"col\" class=\"n\">Memory"
           "</th><th scope=\"col\" class=\"n\">BAR1</th><th scope=\"col\" class=\"n\">Node</th></tr></thead>\n"
           "<tbody>\n");
    for (size_t i = 0; i < page->topology.gpu_count; i++)
        put_gpu_row(page->out, &page->topology.gpu[i]);
    sp_put(page->out, "</tbody>\n</table>\n</div>\n");
}

static const char *grant_class(enum sp_grant grant)
{
    return grant == SP_GRANT_YES ? "yes" : grant == SP_GRANT_NO ? "no" : "none";
}

static void put_pairs(struct sp_page *page)
{
    const struct sp_topology *topology = &page->topology;
    char text[SP_PICTURE_PAIR];

    sp_put(page->out,
           "<div class=\"scroll\" role=\"region\" aria-labelledby=\"pairs\" tabindex=\"0\">\n<table>\n<caption "
           "id=\"pairs\">Peer access, as the driver grants it</caption>\n<thead><tr><th scope=\"col\">From</th>");
    for (size_t to = 0; to < topology->gpu_count; to++)
        sp_put(page->out, "<th scope=\"col\">to GPU %zu</th>", topology->gpu[to].number);
    sp_put(page->out, "</tr></thead>\n<tbody>\n");
    for (size_t from = 0; from < topology->gpu_count; from++) {
        sp_put(page->out, "<tr><th scope=\"row\">GPU %zu</th>", topology->gpu[from].number);
        for (size_t to = 0; to < topology->gpu_count; to++) {
            sp_picture_pair(text, topology, from, to);
            sp_put(page->out, "<td class=\"%s\">",
                   from == to ? "none" : grant_class(sp_topology_write(topology, from, to)));
            sp_put_html(page->out, text);
            sp_put(page->out, "</td>");
        }
        sp_put(page->out, "</tr>\n");
    }
    sp_put(page->out, "</tbody>\n</table>\n</div>\n");
}

/* What the verdict says of a backend on any GPUs: the best of it. */
static const char *proved(const json_t *bundle, const char *backend)
{
    const json_t *results = SP_ITEM(bundle, "verdict", "results"), *result;
    const char *best = "";
    size_t i;

    json_array_foreach(results, i, result)
    {
        const char *is = SP_TEXT(result, "result");

        if (strcmp(SP_TEXT(result, "backend"), backend) == 0 && strcmp(best, "PASS") != 0)
            best = is;
    }
    return best;
}

static bool in_use(const json_t *bundle, const char *backend)
{
    const json_t *table = json_array_get(SP_ITEM(bundle, "profile", "content", "tables"), 0), *entry;
    size_t i;

    json_array_foreach(SP_ITEM(table, "entries"), i, entry)
    {
        if (strcmp(sp_algorithm_transport(SP_TEXT(entry, "algorithm")), backend) == 0)
            return true;
    }
    return false;
}

/* What was proved counts for more than what the topology promises. */
static void put_backend(struct sp_page *page, const char *key, const char *backend, const char *name)
{
    static const struct {
        const char *word, *kind, *text;
    } said[] = {{"PASS", "good", "proved"},    {"FAIL", "bad", "failed"},   {"INCONCLUSIVE", "warn", "inconclusive"},
                {"cand", "plain", "may work"}, {"susp", "warn", "suspect"}, {"no", "bad", "refused"},
                {NULL, "plain", "not known"}};
    const char *verdict = proved(page->bundle, backend);
    const char *word = verdict[0] ? verdict : SP_TEXT(page->bundle, "backends", key);
    size_t at = 0;

    while (said[at].word && strcmp(said[at].word, word) != 0)
        at++;
    sp_put(page->out, "<li class=\"%s\"><strong>%s</strong> %s%s</li>\n", said[at].kind, name, said[at].text,
           in_use(page->bundle, backend) ? ", in the profile" : "");
}

static void put_backends(struct sp_page *page)
{
    sp_put(page->out, "<ul class=\"kinds\">\n");
    put_backend(page, "peer-push", "push", "stores to a peer");
    put_backend(page, "peer-pull", "pull", "loads from a peer");
    put_backend(page, "host", "host", "through host memory");
    sp_put(page->out, "</ul>\n");
}

void sp_page_topology(struct sp_page *page)
{
    struct tree tree = {.page = page, .gpu_wide = gpu_width(&page->topology)};

    sp_put(page->out, "<section aria-labelledby=\"machine\">\n<h2 id=\"machine\">Machine</h2>\n");
    if (page->topology.gpu_count == 0) {
        sp_put(page->out, "<p class=\"empty\">No GPU was seen. Next: <code>sgl-pcie doctor driver</code></p>\n");
        sp_put(page->out, "</section>\n");
        return;
    }
    for (size_t i = 0; i < page->topology.gpu_count; i++)
        add_gpu(&tree, i);
    for (size_t i = 0; i < tree.count; i++)
        if (tree.node[i].parent < 0)
            (void)lay_out(&tree, (int)i);
    put_picture(&tree);
    put_backends(page);
    sp_put(page->out, "<div class=\"columns\">\n");
    put_gpus(page);
    put_pairs(page);
    sp_put(page->out, "</div>\n");
    sp_put(page->out, "</section>\n");
}
