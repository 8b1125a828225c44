#include "verify/machine/redact.h"
#include "base/err.h"
#include "base/file.h"
#include "verify/machine/redact_nccl.h"

#include <ctype.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { WORD_LEAST = 2, UUID_LEN = 40 }; /* "GPU-" and 36 characters */

/* ---- what is to be replaced ---- */

/* Names that say nothing about anybody. */
static bool is_common(const char *word)
{
    static const char *const common[] = {"root", "user",   "localhost", "ubuntu", "debian", "host",
                                         "gpu",  "nvidia", "/dev/shm",  "/usr",   "/tmp"};

    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (strcasecmp(word, common[i]) == 0)
            return true;
    return strlen(word) < WORD_LEAST;
}

static int add_word(struct sp_redact_words *words, const char *word)
{
    char **items;

    if (!word || is_common(word))
        return SP_OK;
    items = realloc(words->item, (words->count + 1) * sizeof *items);
    if (!items)
        return sp_err(SP_ECANNOT, "out of memory");
    words->item = items;
    items[words->count] = strdup(word);
    return items[words->count] ? (words->count++, SP_OK) : sp_err(SP_ECANNOT, "out of memory");
}

/* "node7.lab.example" is also known as "node7". */
static int add_host(struct sp_redaction *redaction)
{
    char host[256] = "";
    int rc;

    (void)gethostname(host, sizeof host - 1);
    rc = add_word(&redaction->names, host);
    host[strcspn(host, ".")] = '\0';
    return rc < 0 ? rc : add_word(&redaction->names, host);
}

/* The folder itself, as what is in it is written behind a slash of its own. */
static int add_folder(struct sp_redact_words *words, const char *path)
{
    char folder[PATH_MAX];
    size_t len = strlen(path);

    while (len > 0 && path[len - 1] == '/')
        len--;
    return snprintf(folder, sizeof folder, "%.*s", (int)len, path) < PATH_MAX ? add_word(words, folder) : SP_OK;
}

int sp_redaction_add_path(struct sp_redaction *redaction, const char *path)
{
    char here[PATH_MAX], whole[2 * PATH_MAX], real[PATH_MAX];
    int rc = path && *path ? add_folder(&redaction->paths, path) : SP_OK;

    if (!path || !*path)
        return rc;
    if (rc == SP_OK && path[0] != '/' && getcwd(here, sizeof here)) {
        (void)snprintf(whole, sizeof whole, "%s/%s", here, path);
        rc = add_folder(&redaction->paths, whole);
    }
    if (rc == SP_OK && realpath(path, real) && strcmp(real, path) != 0)
        rc = add_folder(&redaction->paths, real);
    return rc;
}

/* The person's, and with sudo those of whom he is by himself. */
static int add_person(struct sp_redaction *redaction, const struct passwd *person)
{
    int rc = person ? add_word(&redaction->names, person->pw_name) : SP_OK;

    return rc == SP_OK && person ? sp_redaction_add_path(redaction, person->pw_dir) : rc;
}

static int add_people(struct sp_redaction *redaction)
{
    static const char *const names[] = {"USER", "LOGNAME", "SUDO_USER", "HOSTNAME"};
    const char *sudo = getenv("SUDO_USER");
    int rc = add_person(redaction, getpwuid(getuid()));

    for (size_t i = 0; i < sizeof names / sizeof *names && rc == SP_OK; i++)
        rc = add_word(&redaction->names, getenv(names[i]));
    return rc == SP_OK && sudo ? add_person(redaction, getpwnam(sudo)) : rc;
}

/* Of an environment whose interpreter may be asked: the folder above its bin/. Without blanks it is seen in any text.
 */
static int add_search_path(struct sp_redaction *redaction)
{
    char *search = getenv("PATH") ? strdup(getenv("PATH")) : NULL, *rest = NULL;
    int rc = SP_OK;

    for (char *at = search ? strtok_r(search, ":", &rest) : NULL; at && rc == SP_OK; at = strtok_r(NULL, ":", &rest)) {
        const size_t len = strlen(at);

        if (len > 4 && strcmp(at + len - 4, "/bin") == 0)
            at[len - 4] = '\0';
        if (at[0] == '/' && strchr(at, ' '))
            rc = sp_redaction_add_path(redaction, at);
    }
    free(search);
    return rc;
}

int sp_redaction_init(struct sp_redaction *out)
{
    static const char *const paths[] = {
        "HOME",       "SGL_PCIE_STATE", "VIRTUAL_ENV",         "CONDA_PREFIX", "CUDA_HOME",      "CUDA_PATH",
        "NVCC_CCBIN", "SGL_PCIE_NVCC",  "PYTHONPYCACHEPREFIX", "UV_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR",
    };
    int rc;

    memset(out, 0, sizeof *out);
    rc = add_host(out);
    if (rc == SP_OK)
        rc = add_people(out);
    for (size_t i = 0; i < sizeof paths / sizeof *paths && rc == SP_OK; i++)
        rc = sp_redaction_add_path(out, getenv(paths[i]));
    return rc == SP_OK ? add_search_path(out) : rc;
}

static void free_words(struct sp_redact_words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->item[i]);
    free(words->item);
}

void sp_redaction_free(struct sp_redaction *redaction)
{
    free_words(&redaction->names);
    free_words(&redaction->paths);
    for (size_t i = 0; i < redaction->uuids; i++)
        free(redaction->uuid[i]);
    memset(redaction, 0, sizeof *redaction);
}

/* ---- text ---- */

static bool ends_word(char c)
{
    return !isalnum((unsigned char)c) && c != '_';
}

static bool is_quote(char c)
{
    return c == '\'' || c == '"';
}

static size_t match_name(const struct sp_redaction *redaction, const char *text)
{
    size_t longest = 0;

    for (size_t i = 0; i < redaction->names.count; i++) {
        const size_t len = strlen(redaction->names.item[i]);

        if (len > longest && strncmp(text, redaction->names.item[i], len) == 0 && ends_word(text[len]))
            longest = len;
    }
    if (longest > 0 && text[longest] == '/')
        longest += strcspn(text + longest, " '\"\n\t;,)");
    return longest;
}

/* Up to the quote that ends what stands in quotes, as a shell has it: '\'' within is one of the text, and so is the
 * apostrophe of a name. What was cut has no end. */
static size_t quoted_len(const char *text, char quote)
{
    size_t len = 0;

    while (text[len] && text[len] != '\n' && (text[len] != quote || !ends_word(text[len + 1]) || text[len + 1] == '\\'))
        len += strncmp(text + len, "'\\''", 4) == 0 ? 4 : 1;
    return len;
}

/* What is left of a path; before: what stands in front of the path's beginning. */
static size_t path_len(const char *text, char before)
{
    size_t len;

    if (is_quote(before))
        return quoted_len(text, before);
    len = strcspn(text, " '\"\n\t;,)");
    while (len > 0 && text[len - 1] == ':')
        len--;
    return len;
}

/* Does a path that is known end here, or one of its folders? */
static bool ends_folder(const char *text)
{
    return ends_word(text[0]) && text[0] != '-' && (text[0] != '.' || ends_word(text[1]));
}

/* A path that is known, and what is in it. A relative one of a single word is one in quotes alone. */
static size_t match_known(const struct sp_redaction *redaction, const char *text, char before)
{
    size_t longest = 0;

    for (size_t i = 0; i < redaction->paths.count; i++) {
        const char *path = redaction->paths.item[i];
        const size_t len = strlen(path);
        const bool word = !strchr(path, '/');

        if (len > longest && strncmp(text, path, len) == 0 && ends_folder(text + len) &&
            (!word || (is_quote(before) && text[len] == before)))
            longest = len;
    }
    if (longest > 0 && (text[longest] == '/' || is_quote(before)))
        longest += path_len(text + longest, before);
    return longest;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* One of the kernel's or the distribution's, where nobody names anything. */
static bool is_public(const char *text)
{
    static const char *const folders[] = {"/dev", "/proc", "/sys", "/etc", "/boot", "/run"};
    static const char *const private_folders[] = {"/run/media/", "/run/user/"};
    bool is = false;

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        is = is || (begins(text, folders[i]) && ends_folder(text + strlen(folders[i])));
    for (size_t i = 0; i < sizeof private_folders / sizeof *private_folders; i++)
        is = is && !begins(text, private_folders[i]);
    return is;
}

/* May a name begin so? Whatever the alphabet. */
static bool begins_name(char c)
{
    return isalnum((unsigned char)c) || (unsigned char)c >= 0x80 || (c && strchr("._~@+$#", c));
}

/* Any other path from the root. An address of the web is none: what is behind its colon. */
static size_t match_path(const char *text, char before)
{
    if (begins(text, "file:/"))
        return path_len(text, before);
    if (text[0] != '/' || before == '/' || before == '>' || is_public(text))
        return 0;
    if (text[1] == '/' && before != ':')
        return begins_name(text[2]) ? path_len(text, before) : 0;
    return begins_name(text[1]) ? path_len(text, before) : 0;
}

static size_t match_uuid(const char *text)
{
    size_t len = 4;

    if (strncmp(text, "GPU-", 4) != 0)
        return 0;
    while (len < UUID_LEN && (isxdigit((unsigned char)text[len]) || text[len] == '-'))
        len++;
    return len >= 12 ? len : 0;
}

static int put_uuid(struct sp_buf *out, struct sp_redaction *redaction, const char *text, size_t len)
{
    const size_t most = sizeof redaction->uuid / sizeof *redaction->uuid;
    size_t number = 0;

    while (number < redaction->uuids &&
           (strlen(redaction->uuid[number]) != len || strncmp(redaction->uuid[number], text, len) != 0))
        number++;
    if (number == redaction->uuids && number < most) {
        redaction->uuid[number] = strndup(text, len);
        if (!redaction->uuid[number])
            return sp_err(SP_ECANNOT, "out of memory");
        redaction->uuids++;
    }
    return sp_buf_printf(out, "GPU-00000000-0000-0000-0000-%012zu", number);
}

/* What the text begins with, if it may not leave, is replaced; *len bytes are done then, else one. */
static int put_next(struct sp_buf *out, struct sp_redaction *redaction, const char *text, char before, size_t *len)
{
    const char *name = "<path>";

    *len = match_uuid(text);
    if (*len > 0)
        return put_uuid(out, redaction, text, *len);
    if (ends_word(before)) {
        *len = match_known(redaction, text, before);
        if (*len == 0 && (*len = match_name(redaction, text)) > 0)
            name = "<name>";
        if (*len == 0)
            *len = match_path(text, before);
    }
    if (*len > 0)
        return sp_buf_append(out, name, strlen(name));
    *len = 1;
    return sp_buf_append(out, text, 1);
}

int sp_redact_text(char **out, struct sp_redaction *redaction, const char *text)
{
    struct sp_buf buf = SP_BUF_INIT;
    char before = ' ';
    int rc = sp_buf_append(&buf, "", 0);

    *out = NULL;
    while (*text && rc == SP_OK) {
        size_t len;

        rc = put_next(&buf, redaction, text, before, &len);
        before = text[len - 1];
        text += len;
    }
    if (rc == SP_OK) {
        *out = strdup(buf.data ? buf.data : "");
        rc = *out ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
    }
    sp_buf_free(&buf);
    return rc;
}

/* ---- JSON ---- */

/* A word of ours, that a host or a user may happen to be called by. What others wrote there may be more than a word. */
static bool is_structure(const char *key, const char *text)
{
    static const char *const keys[] = {
        "algorithm", "atomics",   "backend",        "bdf",    "chosen", "code",   "fastest", "host",   "id",
        "label",     "layout",    "level",          "module", "nvlink", "parent", "read",    "result", "peer-pull",
        "runtime",   "peer-push", "schema",         "set",    "source", "state",  "status",  "stock",  "type",
        "unit",      "write",     "virtualization",
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return !strpbrk(text, "/ ");
    return false;
}

/* A path and nothing else: no blank in it is its end. */
static bool is_path(const char *key, const char *text)
{
    return strcmp(key, "path") == 0 && text[0] == '/';
}

static int set_text(json_t *value, const char *text)
{
    return json_string_set(value, text) == 0 ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
}

static int redact_string(json_t *value, struct sp_redaction *redaction, const char *key)
{
    const char *is = json_string_value(value);
    char *text = NULL;
    int rc;

    if (is_path(key, is))
        return set_text(value, "<path>");
    rc = sp_redact_nccl(&text, key, is);
    if (rc == SP_OK && !text)
        rc = sp_redact_text(&text, redaction, is);
    if (rc == SP_OK)
        rc = set_text(value, text);
    free(text);
    return rc;
}

/* key: of the field that the value is of, or an item of; "" at the top. */
static int redact_value(json_t *value, struct sp_redaction *redaction, const char *key)
{
    const char *name;
    json_t *item;
    size_t i;
    int rc = SP_OK;

    if (json_is_string(value))
        rc = is_structure(key, json_string_value(value)) ? SP_OK : redact_string(value, redaction, key);
    else if (json_is_array(value))
        json_array_foreach(value, i, item) rc = rc == SP_OK ? redact_value(item, redaction, "") : rc;
    else if (json_is_object(value))
        json_object_foreach(value, name, item) rc = rc == SP_OK ? redact_value(item, redaction, name) : rc;
    return rc;
}

int sp_redact_json(json_t *value, struct sp_redaction *redaction)
{
    return redact_value(value, redaction, "");
}
