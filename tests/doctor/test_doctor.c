/* What the doctor says of patients that no machine at hand could be: every branch that finds something, and its
 * neighbour that does not. */
#include "base/err.h"
#include "verify/doctor/doctor.h"
#include "verify/ladder/ladder.h"
#include "verify/machine/nvml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS = 16 };

struct patient {
    struct sp_survey survey;
    struct sp_around around;
    struct sp_server server;
    char *env[WORDS], *argv[WORDS], *server_env[WORDS];
    struct sp_rec_gpu gpus[2];
};

/* A healthy one. */
static void make(struct patient *p)
{
    memset(p, 0, sizeof *p);
    sp_recording_init(&p->survey.recording);
    p->survey.recording.gpus = p->gpus;
    p->survey.recording.gpu_count = 2;
    p->survey.recording.driver.cuda = 13000;
    p->survey.choice = (struct sp_choice){.number = {1, 0}, .count = 2};
    p->gpus[0].persistence = p->gpus[1].persistence = 1;
    p->around = (struct sp_around){.shm_bytes = INT64_C(1) << 34,
                                   .memlock = SP_UNLIMITED,
                                   .devices = true,
                                   .may_open = true,
                                   .env = p->env,
                                   .nvcc_major = 13,
                                   .nvcc = (char *)(uintptr_t) "13.0.88"};
    p->server = (struct sp_server){.pid = 42, .argv = p->argv, .env = p->server_env};
    p->around.server = &p->server;
    p->around.server_count = 1;
}

static void words(char *out[WORDS], const char *const *from)
{
    memset(out, 0, WORDS * sizeof *out);
    for (size_t i = 0; from[i]; i++)
        out[i] = (char *)(uintptr_t)from[i];
}

/* ids: "a b c", or "" for none; in this order. worst: of them. */
static void expect(struct patient *p, const char *exam, const char *ids, enum sp_level_of worst, const char *text)
{
    const struct sp_patient patient = {.survey = &p->survey, .around = &p->around};
    struct sp_findings findings = {NULL, 0};
    char found[512] = "";
    bool said = text == NULL;

    assert_int_equal(sp_exam_find(exam)->run(&findings, &patient), SP_OK);
    for (size_t i = 0; i < findings.count; i++) {
        (void)snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s", i ? " " : "", findings.item[i].id);
        said = said || strstr(findings.item[i].text, text) ||
               (findings.item[i].remedy && strstr(findings.item[i].remedy, text));
        assert_true(findings.item[i].level <= sp_exam_find(exam)->level);
    }
    assert_string_equal(found, ids);
    assert_int_equal(sp_findings_worst(&findings, 0), worst);
    if (!said)
        fail_msg("%s does not say '%s': %s", exam, text, findings.count ? findings.item[0].text : "");
    sp_findings_free(&findings);
}

#define ENV(p, ...)        words((p)->env, (const char *const[]){__VA_ARGS__, NULL})
#define ARGV(p, ...)       words((p)->argv, (const char *const[]){"python", "-m", "sglang.launch_server", __VA_ARGS__, NULL})
#define SERVER_ENV(p, ...) words((p)->server_env, (const char *const[]){__VA_ARGS__, NULL})

static void test_healthy(void **state)
{
    static const char *const machine[] = {"driver",      "toolchain", "devices",  "limits",
                                          "persistence", "visible",   "settings", "servers"};
    struct patient p;

    (void)state;
    make(&p);
    for (size_t i = 0; i < sizeof machine / sizeof *machine; i++)
        expect(&p, machine[i], "", SP_INFO, NULL);
}

static void test_driver(void **state)
{
    struct patient p;

    (void)state;
    make(&p);
    p.survey.recording.driver.nvml_error = (char *)(uintptr_t) "no NVIDIA driver";
    expect(&p, "driver", "driver.none", SP_WARN, "although GPUs are on the bus");
    p.survey.recording.gpu_count = 0;
    expect(&p, "driver", "driver.none", SP_WARN, "boot again");
    p.around.devices = false;
    expect(&p, "driver", "driver.none", SP_WARN, "--gpus all");
    p.survey.recording.driver.nvml_error = (char *)(uintptr_t)SP_NVML_HANGS;
    expect(&p, "driver", "driver.hangs", SP_BAD, "dmesg");
    p.survey.recording.driver.nvml_error = NULL;
    expect(&p, "driver", "driver.no-gpu", SP_WARN, NULL);
}

static void test_toolchain(void **state)
{
    struct patient p;

    (void)state;
    make(&p);
    p.survey.recording.driver.cuda = 12080;
    expect(&p, "toolchain", "toolchain.too-new", SP_BAD, "up to 12.8");
    p.around.nvcc_major = 12;
    expect(&p, "toolchain", "", SP_INFO, NULL);
    p.survey.recording.driver.cuda = SP_ABSENT; /* no driver: any nvcc will do */
    p.around.nvcc_major = 99;
    expect(&p, "toolchain", "", SP_INFO, NULL);
    p.around.nvcc = NULL;
    expect(&p, "toolchain", "toolchain.none", SP_WARN, "SGL_PCIE_NVCC");
    p.around.get_nvcc = (char *)(uintptr_t) "pip install it";
    expect(&p, "toolchain", "toolchain.none", SP_WARN, "pip install it");
}

/* What `build` would say, remedy and all, on one line. */
static void test_toolchain_that_cannot_be_used(void **state)
{
    struct sp_around around = {0};

    (void)state;
    assert_int_equal(setenv("SGL_PCIE_NVCC", "/nonexistent/nvcc", 1), 0);
    assert_int_equal(sp_around_toolchain(&around, NULL), SP_OK);
    assert_null(around.nvcc);
    assert_non_null(strstr(around.no_nvcc, "/nonexistent/nvcc"));
    assert_non_null(strstr(around.get_nvcc, "unset it"));
    assert_null(strchr(around.no_nvcc, '\n'));
    sp_around_free(&around);
    assert_int_equal(unsetenv("SGL_PCIE_NVCC"), 0);
}

static void test_devices_and_limits(void **state)
{
    struct patient p;

    (void)state;
    make(&p);
    p.around.may_open = false;
    expect(&p, "devices", "devices.denied", SP_BAD, "usermod");
    p.around.container = (char *)(uintptr_t) "docker";
    expect(&p, "devices", "devices.denied", SP_BAD, "--gpus all");
    p.around.shm_bytes = 64 << 20;
    expect(&p, "limits", "limits.shm", SP_WARN, "--ipc=host");
    p.around.container = NULL;
    expect(&p, "limits", "limits.shm", SP_WARN, "remount");
    p.around.shm_bytes = SP_ABSENT;
    expect(&p, "limits", "limits.shm", SP_WARN, "0 MiB");
    p.around.shm_bytes = INT64_C(1) << 30;
    p.around.memlock = 8 << 20;
    expect(&p, "limits", "limits.memlock", SP_INFO, "8192 KiB");
    p.around.container = (char *)(uintptr_t) "podman";
    expect(&p, "limits", "limits.memlock", SP_INFO, "--ulimit memlock=-1");
    p.gpus[1].persistence = 0;
    expect(&p, "persistence", "persistence.off", SP_WARN, "GPU 1");
    p.gpus[1].persistence = SP_ABSENT;
    expect(&p, "persistence", "", SP_INFO, NULL);
}

static void test_visible(void **state)
{
    static const char *const unread[] = {"CUDA_VISIBLE_DEVICES=abc",  "CUDA_VISIBLE_DEVICES=0,1,",
                                         "CUDA_VISIBLE_DEVICES=0,,1", "CUDA_VISIBLE_DEVICES=0 1",
                                         "CUDA_VISIBLE_DEVICES=0-1",  "CUDA_VISIBLE_DEVICES= "};
    struct patient p;

    (void)state;
    make(&p);
    ENV(&p, "CUDA_VISIBLE_DEVICES=1,0");
    expect(&p, "visible", "", SP_INFO, NULL);
    ENV(&p, "CUDA_VISIBLE_DEVICES=GPU-b,GPU-a");
    expect(&p, "visible", "visible.uuid", SP_BAD, "CUDA_VISIBLE_DEVICES=1,0");
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++) {
        ENV(&p, unread[i]);
        expect(&p, "visible", "visible.numbers", SP_BAD, "CUDA_VISIBLE_DEVICES=1,0");
    }
    ENV(&p, "CUDA_VISIBLE_DEVICES= 0 ,+1");
    expect(&p, "visible", "", SP_INFO, NULL);
    ENV(&p, "CUDA_VISIBLE_DEVICES=-1");
    expect(&p, "visible", "", SP_INFO, NULL);
    ENV(&p, "CUDA_VISIBLE_DEVICES=");
    expect(&p, "visible", "", SP_INFO, NULL);
    ENV(&p, "CUDA_VISIBLE_DEVICES=MIG-1");
    expect(&p, "visible", "visible.mig", SP_BAD, "whole GPUs");
    ENV(&p, "CUDA_VISIBLE_DEVICES=0,1");
    p.survey.choice.reordered = true;
    expect(&p, "visible", "visible.order", SP_WARN, "CUDA_DEVICE_ORDER");
}

static void test_settings(void **state)
{
    struct patient p;

    (void)state;
    make(&p);
    ENV(&p, "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1", "SGLANG_FORCE_CUSTOM_AR_PCIE=1");
    expect(&p, "settings", "bypass.pcie-ipc", SP_INFO, "unset SGLANG_ENABLE_PCIE_IPC_ALLREDUCE");
    ENV(&p, "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=0", "SGLANG_ENABLE_PCIE_IPC_ALLREDUCEX=1");
    expect(&p, "settings", "", SP_INFO, NULL);
    ENV(&p, "SGLANG_FORCE_CUSTOM_AR_PCIE=yes");
    expect(&p, "settings", "settings.flag", SP_WARN, "'yes'");
    ENV(&p, "SGLANG_FORCE_CUSTOM_AR_PCIE=0");
    expect(&p, "settings", "settings.stock", SP_INFO, NULL);
    ENV(&p, "SGLANG_FORCE_CUSTOM_AR_PCIE=unsafe");
    expect(&p, "settings", "settings.unsafe", SP_WARN, "without proof");
    ENV(&p, "SGLANG_HOST_STAGED_ALLREDUCE=true", "NCCL_P2P_DISABLE=1", "CUDA_LAUNCH_BLOCKING=1");
    expect(&p, "settings", "bypass.host-staged settings.nccl-p2p settings.launch-blocking", SP_WARN, NULL);
    ENV(&p, "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2=1", "SGLANG_USE_JIT_ALL_REDUCE=False");
    expect(&p, "settings", "bypass.v2", SP_INFO, NULL);
}

/* What patched SGLang refuses: python/sgl_pcie/flag.py, communicator.py, state.py and scripts/patch-kernel.py. */
static void test_own_variables(void **state)
{
    static const char *const seconds[] = {"abc", "", "0", "-1", "nan", "inf", "0x10", "1e6", "5s", "1,5"};
    static const char *const limits[] = {"", "1", "1,", ",2", "1,2,", "1,2,3", "1, 2", "-1,2", "0x1,2", "1K,2", "1,2 "};
    struct patient p;
    char text[64];

    (void)state;
    make(&p);
    ENV(&p, "SGLANG_PCIE_AR_BACKEND=foo");
    expect(&p, "settings", "settings.backend", SP_WARN, "'foo', none of auto, peer, host, upstream: SGLang behaves");
    ENV(&p, "SGLANG_PCIE_AR_BACKEND=");
    expect(&p, "settings", "settings.backend", SP_WARN, "unset SGLANG_PCIE_AR_BACKEND");
    ENV(&p, "SGLANG_PCIE_AR_BACKEND=upstream", "SGLANG_PCIE_AR_TIMEOUT_S=0.5");
    expect(&p, "settings", "", SP_INFO, NULL);
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        (void)snprintf(text, sizeof text, "SGLANG_PCIE_AR_TIMEOUT_S=%s", seconds[i]);
        ENV(&p, text);
        expect(&p, "settings", "settings.timeout", SP_WARN, "no number of seconds above 0");
    }
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        (void)snprintf(text, sizeof text, "SGLANG_PCIE_UPSTREAM_LIMITS=%s", limits[i]);
        ENV(&p, text);
        expect(&p, "settings", "settings.limits", SP_WARN, "not two numbers of bytes as ONE,TWO");
    }
    ENV(&p, "SGLANG_PCIE_UPSTREAM_LIMITS=0,99999999999999999999", "SGL_PCIE_STATE=/s");
    expect(&p, "settings", "", SP_INFO, NULL);
    ENV(&p, "SGL_PCIE_STATE=");
    expect(&p, "settings", "", SP_INFO, NULL);
    ENV(&p, "SGL_PCIE_STATE=state");
    expect(&p, "settings", "settings.state", SP_WARN, "no path from the root: SGLang behaves as stock");
    ENV(&p, "A=b");
    SERVER_ENV(&p, "SGLANG_FORCE_CUSTOM_AR_PCIE=yes", "SGLANG_PCIE_AR_BACKEND=foo");
    expect(&p, "settings", "", SP_INFO, NULL);
    expect(&p, "servers", "settings.flag settings.backend", SP_WARN, "in pid 42 SGLANG_PCIE_AR_BACKEND is 'foo'");
}

static void test_servers(void **state)
{
    static const struct {
        const char *option, *id;
        enum sp_level_of level;
    } options[] = {
        {"--disable-custom-all-reduce", "bypass.disabled", SP_WARN},
        {"--enable-symm-mem", "bypass.symm-mem", SP_WARN},
        {"--enable-torch-symm-mem", "bypass.torch-symm-mem", SP_INFO},
        {"--flashinfer-allreduce-fusion-backend=auto", "bypass.flashinfer", SP_WARN},
        {"--enable-flashinfer-allreduce-fusion", "bypass.flashinfer", SP_WARN},
        {"--enable-mscclpp", "bypass.mscclpp", SP_WARN},
        {"--enable-deterministic-inference", "bypass.deterministic", SP_WARN},
    };
    struct patient p;

    (void)state;
    make(&p);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        ARGV(&p, "--tp", "4", options[i].option);
        expect(&p, "servers", options[i].id, options[i].level, "pid 42");
    }
    ARGV(&p, "--tp", "4");
    SERVER_ENV(&p, "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1");
    expect(&p, "servers", "bypass.pcie-ipc", SP_INFO, "pid 42 has SGLANG_ENABLE");
    p.server.env = NULL; /* another user's */
    expect(&p, "servers", "", SP_INFO, NULL);
}

static void test_graphs(void **state)
{
    struct patient p;

    (void)state;
    make(&p);
    ARGV(&p, "--cuda-graph-max-bs", "512", "--max-running-requests", "32");
    expect(&p, "servers", "servers.graphs", SP_WARN, "--cuda-graph-max-bs 32");
    ARGV(&p, "--cuda-graph-max-bs-decode", "512", "--max-running-requests", "16");
    expect(&p, "servers", "servers.graphs", SP_WARN, "--cuda-graph-max-bs-decode 16");
    ARGV(&p, "--cuda-graph-max-bs=64", "--max-running-requests=32");
    expect(&p, "servers", "", SP_INFO, NULL);
    ARGV(&p, "--cuda-graph-max-bs=512");
    expect(&p, "servers", "servers.graphs", SP_INFO, "#running-req");
    ARGV(&p, "--cuda-graph-max-bs=128");
    expect(&p, "servers", "", SP_INFO, NULL);
    ARGV(&p, "--cuda-graph-max-bs", "--max-running-requests", "x");
    expect(&p, "servers", "", SP_INFO, NULL);
}

static void test_command_lines(void **state)
{
    char *serve[] = {(char *)(uintptr_t) "/v/bin/python", (char *)(uintptr_t) "/v/bin/sglang",
                     (char *)(uintptr_t) "serve", NULL};
    char *worker[] = {(char *)(uintptr_t) "sglang::scheduler", NULL};
    char *together[] = {(char *)(uintptr_t) "python3", (char *)(uintptr_t) "-msglang.launch_server", NULL};
    char *other[] = {(char *)(uintptr_t) "vim", (char *)(uintptr_t) "sglang", NULL};
    char *launch[] = {
        (char *)(uintptr_t) "python3", (char *)(uintptr_t) "-m",      (char *)(uintptr_t) "sglang.launch_server",
        (char *)(uintptr_t) "--tp",    (char *)(uintptr_t) "--quiet", NULL};

    (void)state;
    assert_true(sp_argv_is_server(serve));
    assert_true(sp_argv_is_server(launch));
    assert_true(sp_argv_is_server(together));
    assert_false(sp_argv_is_server(worker));
    assert_false(sp_argv_is_server(other));
    assert_string_equal(sp_argv_value(launch, "--tp"), "");
    assert_string_equal(sp_argv_value(launch, "--quiet"), "");
    assert_null(sp_argv_value(launch, "--t"));
}

static void test_filters(void **state)
{
    struct patient p;
    struct sp_patient patient = {.survey = &p.survey, .around = &p.around, .no_install = "several were found"};

    (void)state;
    make(&p);
    p.around.server_count = 0;
    assert_string_equal(sp_exam_find("servers")->filter(&patient), "no server runs");
    assert_string_equal(sp_exam_find("bytecode")->filter(&patient), "several were found");
    assert_string_equal(sp_exam_find("acs")->filter(&patient), "fewer than two GPUs");
    assert_null(sp_exam_find("persistence")->filter(&patient));
    p.survey.recording.driver.nvml_error = (char *)(uintptr_t) "none";
    assert_string_equal(sp_exam_find("persistence")->filter(&patient), "no driver");
}

/* ---- the ladder's result ---- */

static int result(const enum sp_check_status *status, const int *codes, size_t count)
{
    struct sp_checks checks = {NULL, 0};
    struct sp_check *check;
    int code;

    for (size_t i = 0; i < count; i++) {
        assert_int_equal(sp_check_new(&check, &checks, 1, "c.%zu", i), SP_OK);
        assert_int_equal(check->status, SP_CHECK_INCONCLUSIVE); /* what nobody ended never passes */
        check->status = status[i];
        check->code = codes[i];
    }
    code = sp_checks_code(&checks);
    sp_checks_free(&checks);
    return code;
}

static void test_ladder_precedence(void **state)
{
    static const int codes[] = {SP_EDATA, SP_EHANG, SP_EFAIL, SP_EINCONCLUSIVE};

    (void)state;
    for (unsigned present = 0; present < 16; present++) {
        enum sp_check_status status[6] = {SP_CHECK_PASS, SP_CHECK_WARN};
        int code[6] = {SP_EDATA, SP_EHANG}, wanted = SP_OK;
        size_t count = 2;

        for (unsigned i = 4; i-- > 0;)
            if (present & 1u << i) {
                status[count] = i == 3 ? SP_CHECK_INCONCLUSIVE : SP_CHECK_FAIL;
                code[count++] = codes[i];
                wanted = codes[i]; /* the last one seen is the first of the order */
            }
        assert_int_equal(result(status, code, count), wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_healthy),
        cmocka_unit_test(test_driver),
        cmocka_unit_test(test_toolchain),
        cmocka_unit_test(test_toolchain_that_cannot_be_used),
        cmocka_unit_test(test_devices_and_limits),
        cmocka_unit_test(test_visible),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_own_variables),
        cmocka_unit_test(test_servers),
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_command_lines),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_ladder_precedence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
