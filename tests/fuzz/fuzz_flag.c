/* The persisted flag, from any bytes. */
#include "patcher/flag.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sp_flag flag;

    (void)sp_flag_parse(&flag, (const char *)data, size);
    return 0;
}
