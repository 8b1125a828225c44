/* The patch sets' manifest, from any bytes: an error or a valid object, never a crash, never a leak. */
#include "patcher/patchset.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sp_patchsets *sets;

    if (sp_patchsets_parse(&sets, (const char *)data, size, "fuzz") == 0)
        sp_patchsets_free(sets);
    return 0;
}
