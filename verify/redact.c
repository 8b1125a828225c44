#include "verify/redact.h"
#include "base/err.h"
#include "base/file.h"

#include <ctype.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORD_LEAST = 2, UUID_LEN = 40 }; /* "GPU-" and 36 characters */

/* ---- what is to be replaced ---- */

/* Names that say nothing about anybody. */
static bool is_common(const char *word)
{
    static const char *const common[] = {"root", "user", "localhost", "ubuntu", "debian", "host", "gpu", "nvidia", "/"};

    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (strcasecmp(word, common[i]) == 0)
            return true;
    return strlen(word) < WORD_LEAST;
}

static int add_word(struct sp_redaction *redaction, const char *word)
{
    if (!word || is_common(word) || redaction->words == sizeof redaction->word / sizeof *redaction->word)
        return SP_OK;
    redaction->word[redaction->words] = strdup(word);
    return redaction->word[redaction->words++] ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
}

/* "node7.lab.example" is also known as "node7". */
static int add_host(struct sp_redaction *redaction)
{
    char host[256] = "";
    int rc;

    (void)gethostname(host, sizeof host - 1);
    rc = add_word(redaction, host);
    host[strcspn(host, ".")] = '\0';
    return rc < 0 ? rc : add_word(redaction, host);
}

int sp_redaction_init(struct sp_redaction *out, const char *extra)
{
    static const char *const variables[] = {"HOME", "USER", "LOGNAME", "SUDO_USER", "HOSTNAME"};
    const struct passwd *person = getpwuid(getuid());
    int rc;

    memset(out, 0, sizeof *out);
    rc = add_host(out);
    for (size_t i = 0; i < sizeof variables / sizeof *variables && rc == SP_OK; i++)
        rc = add_word(out, getenv(variables[i]));
    if (rc == SP_OK && person)
        rc = add_word(out, person->pw_name);
    if (rc == SP_OK && person)
        rc = add_word(out, person->pw_dir);
    return rc < 0 ? rc : add_word(out, extra);
}

void sp_redaction_free(struct sp_redaction *redaction)
{
    for (size_t i = 0; i < redaction->words; i++)
        free(redaction->word[i]);
    for (size_t i = 0; i < redaction->uuids; i++)
        free(redaction->uuid[i]);
    memset(redaction, 0, sizeof *redaction);
}

/* ---- text ---- */

static size_t match_word(const struct sp_redaction *redaction, const char *text)
{
    size_t longest = 0;

    for (size_t i = 0; i < redaction->words; i++) {
        const size_t len = strlen(redaction->word[i]);

        if (len > longest && strncmp(text, redaction->word[i], len) == 0)
            longest = len;
    }
    return longest;
}

static bool ends_word(char c)
{
    return !isalnum((unsigned char)c) && c != '_';
}

/* A path from the root that is not one of the kernel's or the distribution's. */
static size_t match_path(const char *text)
{
    static const char *const public_paths[] = {"/dev/", "/proc/", "/sys/", "/etc/", "/boot/", "/run/"};
    size_t len;

    if (text[0] != '/' || (!isalnum((unsigned char)text[1]) && text[1] != '.' && text[1] != '_'))
        return 0;
    for (size_t i = 0; i < sizeof public_paths / sizeof *public_paths; i++)
        if (strncmp(text, public_paths[i], strlen(public_paths[i])) == 0)
            return 0;
    len = strcspn(text, " '\"\n\t;,)");
    return strchr(text + 1, '/') && strchr(text + 1, '/') < text + len ? len : 0;
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
    const bool at_word = ends_word(before), at_path = at_word && before != '/'; /* or an address of the web is one */

    *len = match_uuid(text);
    if (*len > 0)
        return put_uuid(out, redaction, text, *len);
    *len = at_word ? match_word(redaction, text) : 0;
    if (*len > 0 && (text[*len] == '/' || text[0] == '/')) /* a home folder, and what is in it */
        *len += strcspn(text + *len, " '\"\n\t;,)");
    if (*len > 0 && (text[0] == '/' || ends_word(text[*len])))
        return sp_buf_printf(out, text[0] == '/' ? "<path>" : "<name>");
    *len = at_path ? match_path(text) : 0;
    if (*len > 0)
        return sp_buf_printf(out, "<path>");
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

/* Words of ours, that a host may happen to be called by. */
static bool is_structure(const char *key)
{
    static const char *const keys[] = {"bdf",    "code", "id",     "label",  "level", "module", "nvlink",
                                       "parent", "read", "result", "schema", "state", "status", "write"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static int redact_string(json_t *value, struct sp_redaction *redaction)
{
    char *text;
    int rc = sp_redact_text(&text, redaction, json_string_value(value));

    if (rc == SP_OK && json_string_set(value, text) != 0)
        rc = sp_err(SP_ECANNOT, "out of memory");
    free(text);
    return rc;
}

int sp_redact_json(json_t *value, struct sp_redaction *redaction)
{
    const char *key;
    json_t *item;
    size_t i;
    int rc = SP_OK;

    if (json_is_string(value))
        rc = redact_string(value, redaction);
    else if (json_is_array(value))
        json_array_foreach(value, i, item) rc = rc == SP_OK ? sp_redact_json(item, redaction) : rc;
    else if (json_is_object(value))
        json_object_foreach(value, key, item) if (rc == SP_OK && !(json_is_string(item) && is_structure(key))) rc =
            sp_redact_json(item, redaction);
    return rc;
}
