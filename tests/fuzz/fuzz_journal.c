/*
 * The journal of a transaction, from any bytes: refused, or something that this tool could have written: safe paths,
 * and reading what it writes from it gives the same again.
 */
#include "base/journal.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_safe(const struct sp_journal *journal)
{
    for (size_t i = 0; i < journal->count; i++) {
        const struct sp_journal_change *change = &journal->changes[i];

        if (!sp_path_is_safe(change->path) || !sp_journal_may_change(change->path))
            abort();
        if (!change->pre.hex[0] && !change->post.hex[0])
            abort();
    }
    for (size_t i = 0; i < journal->made.count; i++)
        if (!sp_path_is_safe(journal->made.item[i]))
            abort();
    for (size_t i = 0; i < journal->pruned.count; i++)
        if (!sp_path_is_safe(journal->pruned.item[i]))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sp_journal journal, again;
    struct sp_buf text = SP_BUF_INIT, same = SP_BUF_INIT;

    if (sp_journal_parse(&journal, (const char *)data, size) < 0)
        return 0;
    check_safe(&journal);
    if (sp_journal_format(&text, &journal) < 0 || sp_journal_parse(&again, text.data, text.len) < 0 ||
        sp_journal_format(&same, &again) < 0 || strcmp(text.data, same.data) != 0)
        abort();
    sp_journal_free(&journal);
    sp_journal_free(&again);
    sp_buf_free(&text);
    sp_buf_free(&same);
    return 0;
}
