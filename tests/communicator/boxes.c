/* boxes.c: lines of "ALGORITHM WORLD LANES SENTINEL_BYTES" to the largest message that libpar.so would then take. */
#include "kernels/call.h"

#include <stdio.h>

int main(void)
{
    char name[64];
    int world;
    unsigned lanes;
    unsigned long long sentinel_bytes;
    while (scanf("%63s %d %u %llu", name, &world, &lanes, &sentinel_bytes) == 4) {
        par_geometry geometry;
        par_geometry_init(&geometry, par_algorithm_by_name(name), world, lanes, sentinel_bytes, 0);
        printf("%llu\n", (unsigned long long)geometry.max_bytes);
    }
    return 0;
}
