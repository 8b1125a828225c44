#include "verify/page/bundle_shape.h"
#include "base/err.h"
#include "base/json.h"
#include "base/shape.h"
#include "verify/bench/bench.h"
#include "verify/machine/record.h"
#include "verify/verdict/profile.h"
#include "verify/verdict/sound.h"
#include "verify/verdict/verdict.h"

enum {
    TEXT = SP_IS_TEXT,
    TEXT_OR_NULL = SP_IS_TEXT | SP_IS_NULL,
    NUMBER_OR_NULL = SP_IS_NUMBER | SP_IS_NULL,
    GROWING = SP_IS_OBJECT | SP_MAY_GROW,
    GROWING_OR_NULL = GROWING | SP_IS_NULL,
    LIST_OR_NULL = SP_IS_LIST | SP_IS_NULL,
};

#define LEVELS     "info warn fail"
#define CANDIDATES "unknown cand susp no"
#define SOME       SP_NOT_EMPTY
#define COUNT      SP_NOT_LESS
#define BLOB       "^[0-9a-f]{40}$"
#define SHA256     "^[0-9a-f]{64}$"
#define ID         "^[a-z0-9-]+(\\.[a-z0-9-]+)+$" /* "p2p.refused" */
#define WORLD      "2..8"

/* ---- the machine, as doctor and topology see it ---- */

static const struct sp_shape finding[] = {
    {"id", TEXT, ID, NULL},     {"level", TEXT, LEVELS, NULL},        {"code", TEXT_OR_NULL, "CNS GNS TNS DR NS", NULL},
    {"text", TEXT, SOME, NULL}, {"remedy", TEXT_OR_NULL, SOME, NULL}, {.key = NULL},
};

static const struct sp_shape examined[] = {
    {"id", TEXT, "^[a-z0-9-]+$", NULL},   {"what", TEXT, SOME, NULL},
    {"level", TEXT, LEVELS, NULL},        {"status", TEXT_OR_NULL, "clean found skipped", NULL},
    {"reason", TEXT_OR_NULL, SOME, NULL}, {.key = NULL},
};

static const struct sp_shape backends[] = {
    {"peer-push", TEXT, CANDIDATES, NULL},
    {"peer-pull", TEXT, CANDIDATES, NULL},
    {"host", TEXT, CANDIDATES, NULL},
    {.key = NULL},
};

/* ---- the install ---- */

static const struct sp_shape file[] = {
    {"path", TEXT, SOME, NULL},
    {"set", TEXT, SOME, NULL},
    {"state", TEXT, "pristine applied applied-old drifted missing unknown", NULL},
    {"oid", TEXT_OR_NULL, BLOB, NULL},
    {"expected_oid", TEXT_OR_NULL, BLOB, NULL},
    {.key = NULL},
};

static const struct sp_shape install[] = {
    {"sglang", TEXT_OR_NULL, SOME, NULL},
    {"kernel", TEXT_OR_NULL, SOME, NULL},
    {"layout", TEXT, "wheel editable source", NULL},
    {"runtime", TEXT_OR_NULL, "absent present differs", NULL},
    {"files", LIST_OR_NULL, NULL, SP_EACH(GROWING, .of = file)},
    {.key = NULL},
};

static const struct sp_shape flag[] = {
    {"value", TEXT_OR_NULL, SOME, NULL},
    {"source", TEXT, "environment install unset", NULL},
    {.key = NULL},
};

static const struct sp_shape extension[] = {
    {"present", SP_IS_BOOL, NULL, NULL},
    {"sha256", TEXT_OR_NULL, SHA256, NULL},
    {.key = NULL},
};

static const struct sp_shape standing[] = {
    {"present", SP_IS_BOOL, NULL, NULL},
    {"fresh", SP_IS_BOOL, NULL, NULL},
    {"result", TEXT_OR_NULL, SOME, NULL},
    {"reasons", SP_IS_LIST, NULL, SP_EACH(TEXT)},
    {.key = NULL},
};

static const struct sp_shape status[] = {
    {"install", GROWING, NULL, install},     {"pending", SP_IS_BOOL, NULL, NULL},  {"flag", GROWING, NULL, flag},
    {"extension", GROWING, NULL, extension}, {"verdict", GROWING, NULL, standing}, {.key = NULL},
};

/* ---- what was proved: what a page shows beside what counts (sound.h) ---- */

static const struct sp_shape result[] = {
    {"reason", TEXT | SP_MAY_MISS, NULL, NULL},
    {"library", TEXT | SP_MAY_MISS, SHA256, NULL},
    {.key = NULL},
};

static const struct sp_shape check[] = {
    {"id", TEXT, ID, NULL},
    {"level", SP_IS_INTEGER, "1..4", NULL},
    {"status", TEXT, "PASS FAIL WARN SKIP INCONCLUSIVE", NULL},
    {"expected", TEXT_OR_NULL | SP_IS_NUMBER, NULL, NULL},
    {"actual", TEXT_OR_NULL | SP_IS_NUMBER, NULL, NULL},
    {"unit", TEXT_OR_NULL, SOME, NULL},
    {"duration_ms", SP_IS_NUMBER, COUNT, NULL},
    {"remedy", TEXT_OR_NULL, SOME, NULL},
    {.key = NULL},
};

static const struct sp_shape verdict[] = {
    {"level", SP_IS_INTEGER, "1..4", NULL},
    {"tool", TEXT | SP_MAY_MISS, NULL, NULL},
    {"created", TEXT | SP_MAY_MISS, NULL, NULL},
    {"results", SP_IS_LIST, NULL, SP_EACH(GROWING, .of = result)},
    {"checks", SP_IS_LIST | SP_MAY_MISS, NULL, SP_EACH(SP_IS_OBJECT, .of = check)},
    {.key = NULL},
};

static const struct sp_shape entry[] = {
    {"max_bytes", SP_IS_INTEGER, COUNT, NULL},
    {"algorithm", TEXT, NULL, NULL},
    {"lanes", SP_IS_INTEGER | SP_MAY_MISS, "0..1024", NULL},
    {"threads", SP_IS_INTEGER | SP_MAY_MISS, "0..1024/32", NULL},
    {"us", SP_IS_NUMBER | SP_MAY_MISS, NULL, NULL},
    {"stock_us", SP_IS_NUMBER | SP_MAY_MISS, NULL, NULL},
    {.key = NULL},
};

static const struct sp_shape table[] = {
    {"world", SP_IS_INTEGER, WORLD, NULL},
    {"gpus", SP_IS_LIST, NULL, SP_EACH(TEXT)},
    {"entries", SP_IS_LIST, "1..60", SP_EACH(GROWING, .of = entry)},
    {.key = NULL},
};

static const struct sp_shape content[] = {
    {"tool", TEXT | SP_MAY_MISS, NULL, NULL},
    {"created", TEXT | SP_MAY_MISS, NULL, NULL},
    {"tables", SP_IS_LIST, NULL, SP_EACH(GROWING, .of = table)},
    {.key = NULL},
};

/* ---- what was measured ---- */

static const struct sp_shape part[] = {
    {"times", SP_IS_INTEGER, NULL, NULL},
    {"bytes", SP_IS_INTEGER, NULL, NULL},
    {.key = NULL},
};

static const struct sp_shape step[] = {
    {"step", TEXT, NULL, NULL},
    {"world", SP_IS_INTEGER, NULL, NULL},
    {"type", TEXT, NULL, NULL},
    {"parts", SP_IS_LIST, NULL, SP_EACH(GROWING, .of = part)},
    {"backends", TEXT, NULL, NULL},
    {"measured", SP_IS_BOOL, NULL, NULL},
    {"served", SP_IS_BOOL, NULL, NULL},
    {"stock_ms", NUMBER_OR_NULL, NULL, NULL},
    {"ours_ms", NUMBER_OR_NULL, NULL, NULL},
    {"saved_ms", NUMBER_OR_NULL, NULL, NULL},
    {"sentence", TEXT, NULL, NULL},
    {.key = NULL},
};

static const struct sp_shape rates[] = {
    {"node_us", SP_IS_NUMBER, COUNT, NULL},
    {"host_us", SP_IS_NUMBER, COUNT, NULL},
    {"peer_us", SP_IS_NUMBER, COUNT, NULL},
    {"host_read_gbs", SP_IS_NUMBER, COUNT, NULL},
    {"host_write_gbs", SP_IS_NUMBER, COUNT, NULL},
    {"host_both_gbs", SP_IS_NUMBER, COUNT, NULL},
    {"peer_read_gbs", SP_IS_NUMBER, COUNT, NULL},
    {"peer_write_gbs", SP_IS_NUMBER, COUNT, NULL},
    {"link_gbs", SP_IS_NUMBER, COUNT, NULL},
    {"link_most_gbs", SP_IS_NUMBER, COUNT, NULL},
    {.key = NULL},
};

static const struct sp_shape ours[] = {
    {"algorithm", TEXT, NULL, NULL},
    {"lanes", SP_IS_INTEGER, COUNT, NULL},
    {"threads", SP_IS_INTEGER, COUNT, NULL},
    {"model_us", SP_IS_NUMBER, COUNT, NULL},
    {"wrong", SP_IS_INTEGER, COUNT, NULL},
    {"graph_us", SP_IS_NUMBER, COUNT, NULL},
    {"in_place_us", SP_IS_NUMBER, COUNT, NULL},
    {"step_us", SP_IS_NUMBER, COUNT, NULL},
    {"eager_us", SP_IS_NUMBER, COUNT, NULL},
    {"spread_us", SP_IS_NUMBER, COUNT, NULL},
    {.key = NULL},
};

static const struct sp_shape theirs[] = {
    {"name", TEXT, NULL, NULL},
    {"wrong", SP_IS_INTEGER, COUNT, NULL},
    {"graph_us", SP_IS_NUMBER, COUNT, NULL},
    {"in_place_us", SP_IS_NUMBER, COUNT, NULL},
    {"step_us", SP_IS_NUMBER, COUNT, NULL},
    {"eager_us", SP_IS_NUMBER, COUNT, NULL},
    {"spread_us", SP_IS_NUMBER, COUNT, NULL},
    {.key = NULL},
};

static const struct sp_shape row[] = {
    {"bytes", SP_IS_INTEGER, "1..", NULL},
    {"ours", SP_IS_LIST, "0..16", SP_EACH(GROWING, .of = ours)},
    {"rivals", SP_IS_LIST, "0..4", SP_EACH(GROWING, .of = theirs)},
    {"stock", TEXT_OR_NULL, NULL, NULL},
    {"fastest", TEXT_OR_NULL, NULL, NULL},
    {"chosen", TEXT, NULL, NULL},
    {.key = NULL},
};

static const struct sp_shape rival[] = {
    {"name", TEXT, NULL, NULL},
    {"stock", SP_IS_BOOL, NULL, NULL},
    {"version", TEXT_OR_NULL, SOME, NULL},
    {"path", TEXT_OR_NULL, SOME, NULL},
    {"settings", TEXT_OR_NULL, SOME, NULL},
    {"via", TEXT_OR_NULL, SOME, NULL},
    {"channels", SP_IS_INTEGER, COUNT, NULL},
    {"error", TEXT_OR_NULL, SOME, NULL},
    {.key = NULL},
};

static const struct sp_shape gpu[] = {
    {"number", SP_IS_INTEGER, COUNT, NULL},
    {"uuid", TEXT, NULL, NULL},
    {.key = NULL},
};

static const struct sp_shape group[] = {
    {"world", SP_IS_INTEGER, WORLD, NULL},
    {"type", TEXT, NULL, NULL},
    {"nvlink", SP_IS_BOOL | SP_MAY_MISS, NULL, NULL},
    {"gpus", SP_IS_LIST, NULL, SP_EACH(GROWING, .of = gpu)},
    {"rates", GROWING, NULL, rates},
    {"rivals", SP_IS_LIST, NULL, SP_EACH(GROWING, .of = rival)},
    {"rows", SP_IS_LIST, "0..64", SP_EACH(GROWING, .of = row)},
    {"tables", LIST_OR_NULL, NULL, SP_EACH(GROWING, .of = table)},
    {.key = NULL},
};

static const struct sp_shape bench[] = {
    {"tool", TEXT, NULL, NULL},
    {"created", TEXT_OR_NULL, SOME, NULL},
    {"gpu", TEXT_OR_NULL, SOME, NULL},
    {"driver", TEXT_OR_NULL, SOME, NULL},
    {"quick", SP_IS_BOOL, NULL, NULL},
    {"groups", SP_IS_LIST, NULL, SP_EACH(GROWING, .of = group)},
    {"troubles", LIST_OR_NULL, NULL, SP_EACH(TEXT)},
    {"steps", LIST_OR_NULL, NULL, SP_EACH(GROWING, .of = step)},
    {.key = NULL},
};

/* ---- the bundle ---- */

static const struct sp_shape versioned[] = {
    {"schema", TEXT, NULL, NULL},
    {.key = NULL},
};

static const struct sp_shape profile[] = {
    {"fresh", SP_IS_BOOL, NULL, NULL},     {"wins", SP_IS_BOOL, NULL, NULL},      {"reason", TEXT_OR_NULL, NULL, NULL},
    {"summary", TEXT_OR_NULL, NULL, NULL}, {"content", GROWING, NULL, versioned}, {.key = NULL},
};

static const struct sp_shape fields[] = {
    {"schema", TEXT, SP_BUNDLE_SCHEMA, NULL},
    {"version", TEXT, NULL, NULL},
    {"created", TEXT, NULL, NULL},
    {"recording", SP_IS_OBJECT, NULL, NULL},
    {"status", GROWING_OR_NULL, NULL, status},
    {"status_error", TEXT_OR_NULL, SOME, NULL},
    {"findings", LIST_OR_NULL, NULL, SP_EACH(SP_IS_OBJECT, .of = finding)},
    {"checks", LIST_OR_NULL, NULL, SP_EACH(SP_IS_OBJECT, .of = examined)},
    {"backends", SP_IS_OBJECT | SP_IS_NULL, NULL, backends},
    {"verdict", GROWING_OR_NULL, NULL, versioned},
    {"profile", SP_IS_OBJECT | SP_IS_NULL, NULL, profile},
    {"bench", GROWING_OR_NULL, NULL, versioned},
    {.key = NULL},
};

/* By its own schema; of another version nothing is known here. */
static int check_part(const char *name, const json_t *is, const char *schema, const struct sp_shape *of)
{
    const struct sp_shape shape = {NULL, GROWING, NULL, of};
    int rc;

    if (!sp_json_is(is, "schema", schema))
        return SP_OK;
    rc = sp_shape_check(is, &shape); /* names the field itself */
    if (rc == SP_OK)
        rc = sp_sound_check(is);
    return rc < 0 ? sp_err_wrap(rc, "%s", name) : rc;
}

int sp_bundle_check(const json_t *bundle)
{
    static const struct sp_shape whole = {NULL, SP_IS_OBJECT, NULL, fields};
    const json_t *of_profile = json_object_get(bundle, "profile");
    int rc = sp_shape_check(bundle, &whole);

    if (rc == SP_OK)
        rc = check_part("verdict", json_object_get(bundle, "verdict"), SP_VERDICT_SCHEMA, verdict);
    if (rc == SP_OK)
        rc = check_part("profile", json_object_get(of_profile, "content"), SP_PROFILE_SCHEMA, content);
    if (rc == SP_OK)
        rc = check_part("bench", json_object_get(bundle, "bench"), SP_BENCH_SCHEMA, bench);
    return rc;
}
