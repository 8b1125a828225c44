/* What of a text leaves the machine: no path, whatever blanks are in it, and no host out of NCCL's settings. */
#include "base/err.h"
#include "verify/machine/redact.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct example {
    const char *text, *told;
};

static int setup(void **state)
{
    static struct sp_redaction redaction;
    int rc = 0;

    rc |= setenv("HOME", "/srv/homes/alice b", 1) | setenv("USER", "alice", 1) | setenv("HOSTNAME", "node7", 1);
    rc |= setenv("SGL_PCIE_STATE", "/tmp/Acme Secret Project/Zeta State", 1);
    rc |= setenv("PATH", "/usr/bin:/opt/Zeta Tools/bin:relative one/bin", 1);
    rc |= sp_redaction_init(&redaction);
    rc |= sp_redaction_add_path(&redaction, "/tmp/Acme's site/env/");
    rc |= sp_redaction_add_path(&redaction, "near by/env");
    rc |= sp_redaction_add_path(&redaction, "word");
    *state = &redaction;
    return rc;
}

static int teardown(void **state)
{
    sp_redaction_free(*state);
    return 0;
}

static void check(struct sp_redaction *redaction, const struct example *examples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *told;

        assert_int_equal(sp_redact_text(&told, redaction, examples[i].text), SP_OK);
        assert_string_equal(told, examples[i].told);
        free(told);
    }
}
#define CHECK(state, examples) check(*(state), examples, sizeof(examples) / sizeof *(examples))

static void a_blank_does_not_end_a_path_that_is_known(void **state)
{
    static const struct example examples[] = {
        {"/tmp/Acme Secret Project/Zeta State/0123/verdict.json: not JSON", "<path>: not JSON"},
        {"no verdict that counts: /tmp/Acme Secret Project/Zeta State/k/v.json: x",
         "no verdict that counts: <path>: x"},
        {"in /srv/homes/alice b, and /srv/homes/alice b/x by alice", "in <path>, and <path> by <name>"},
        {"TMP=/tmp/Acme Secret Project/Zeta State;/tmp/Acme's site/env", "TMP=<path>;<path>"},
        {"--python /opt/Zeta Tools/bin/python3   sglang 1 in /opt/Zeta Tools/lib/x",
         "--python <path>   sglang 1 in <path>"},
        {"near by/env is nothing", "<path> is nothing"},
        {"--site 'word' is a word", "--site '<path>' is a word"},
    };

    CHECK(state, examples);
}

static void a_path_in_quotes_goes_on_to_the_last_of_them(void **state)
{
    static const struct example examples[] = {
        {"--site '/opt/Other Secret/nope' is not a directory", "--site '<path>' is not a directory"},
        {"'/opt/Other Secret/it's here/x' and '/y z' and 'w'", "'<path>' and '<path>' and 'w'"},
        {"cd '/opt/O'\\''Brien & Co/x' && ls", "cd '<path>' && ls"},
        {"cannot ask '/opt/Other Secret/cut", "cannot ask '<path>"},
        {"open \"/opt/Other Secret/x\": no", "open \"<path>\": no"},
        {"'/tmp/Acme's site/env/lib/x y' is old", "'<path>' is old"},
    };

    CHECK(state, examples);
}

static void a_path_of_one_folder_is_one(void **state)
{
    static const struct example examples[] = {
        {"no SGLang in --site '/nope': x", "no SGLang in --site '<path>': x"},
        {"see /nope and /a/b: c", "see <path> and <path>: c"},
        {"from file:///home/bob/x.whl", "from <path>"},
        {"in /\xc3\xa9t\xc3\xa9/x and //home/bob/y", "in <path> and <path>"},
    };

    CHECK(state, examples);
}

static void what_is_no_path_of_anybody_stays(void **state)
{
    static const struct example examples[] = {
        {"x16, to 32.0 GT/s PCIe, 12 GB/s and/or SHM/direct/direct",
         "x16, to 32.0 GT/s PCIe, 12 GB/s and/or SHM/direct/direct"},
        {"pci0000:00/0000:00:06.0", "pci0000:00/0000:00:06.0"},
        {"/dev/shm, /proc/cpuinfo, /sys/class/iommu, /etc/os-release, '/dev'",
         "/dev/shm, /proc/cpuinfo, /sys/class/iommu, /etc/os-release, '/dev'"},
        {"+/-5 %, a/b", "+/-5 %, a/b"},
        {"https://github.com/NVIDIA/nccl", "https://github.com/NVIDIA/nccl"},
        {"sglang/srt/distributed/parallel_state.py 4 / 5", "sglang/srt/distributed/parallel_state.py 4 / 5"},
        {"<path> of <name>", "<path> of <name>"},
    };

    CHECK(state, examples);
}

static void told(struct sp_redaction *redaction, const char *key, const char *text, const char *expected)
{
    json_t *object = json_pack("{s:s}", key, text);

    assert_int_equal(sp_redact_json(object, redaction), SP_OK);
    assert_string_equal(json_string_value(json_object_get(object, key)), expected);
    assert_int_equal(sp_redact_json(object, redaction), SP_OK); /* a bundle is redacted again where it is read */
    assert_string_equal(json_string_value(json_object_get(object, key)), expected);
    json_decref(object);
}

static void settings_of_nccl_name_no_host(void **state)
{
    told(*state, "settings", "NCCL_P2P_DISABLE=1 NCCL_HOSTID=myhost.corp", "NCCL_P2P_DISABLE=1 NCCL_HOSTID=<name>");
    told(*state, "settings", "NCCL_HOSTID=17 NCCL_COMM_ID=10.0.0.1:4000", "NCCL_HOSTID=<name> NCCL_COMM_ID=<name>");
    told(*state, "settings", "NCCL_SOCKET_IFNAME==enp5s0,ib0 NCCL_IB_HCA=^mlx5_0:1",
         "NCCL_SOCKET_IFNAME=<name> NCCL_IB_HCA=<name>");
    told(*state, "settings", "NCCL_TOPO_FILE=/srv/Acme Secret/topo.xml NCCL_NET_PLUGIN=acme",
         "NCCL_TOPO_FILE=<path> NCCL_NET_PLUGIN=<name>");
    told(*state, "settings",
         "NCCL_ALGO=^Tree,Ring NCCL_PROTO=LL128 NCCL_P2P_LEVEL=PHB NCCL_BUFFSIZE=4M NCCL_VERSION=2.28.3-1",
         "NCCL_ALGO=^Tree,Ring NCCL_PROTO=LL128 NCCL_P2P_LEVEL=PHB NCCL_BUFFSIZE=4M NCCL_VERSION=2.28.3-1");
    told(*state, "settings", "myhost.corp NCCL_CTA=<name>", "<name> NCCL_CTA=<name>");
    told(*state, "settings", "", "");
    told(*state, "via", "SHM/direct/direct", "SHM/direct/direct");
    told(*state, "via", "NET/Socket/0", "NET/Socket/0");
    told(*state, "via", "NET/Acme7/0(3)/GDRDMA", "NET/<name>/0(3)/GDRDMA");
    told(*state, "path", "/opt/Other Secret/lib/libnccl.so.2", "<path>");
}

static void words_of_ours_stay(void **state)
{
    struct sp_redaction *redaction = *state;
    static const char *const keys[] = {"backend", "algorithm", "set", "layout", "source", "status"};
    const struct sp_redact_words before = redaction->names;
    char *called[] = {(char *)(uintptr_t) "push"};

    redaction->names = (struct sp_redact_words){called, 1};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        told(redaction, keys[i], "push", "push");
    told(redaction, "text", "push was here", "<name> was here");
    told(redaction, "source", "the box of push", "the box of <name>");
    redaction->names = before;
}

static void uuids_are_numbered(void **state)
{
    static const struct example examples[] = {
        {"GPU-11112222-3333-4444-5555-666677778888 and GPU-aaaa2222-3333-4444-5555-666677778888",
         "GPU-00000000-0000-0000-0000-000000000000 and GPU-00000000-0000-0000-0000-000000000001"},
        {"GPU-aaaa2222-3333-4444-5555-666677778888", "GPU-00000000-0000-0000-0000-000000000001"},
    };

    CHECK(state, examples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_blank_does_not_end_a_path_that_is_known),
        cmocka_unit_test(a_path_in_quotes_goes_on_to_the_last_of_them),
        cmocka_unit_test(a_path_of_one_folder_is_one),
        cmocka_unit_test(what_is_no_path_of_anybody_stays),
        cmocka_unit_test(settings_of_nccl_name_no_host),
        cmocka_unit_test(words_of_ours_stay),
        cmocka_unit_test(uuids_are_numbered),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
