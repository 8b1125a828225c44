/* options.c: what is asked for, and what it takes. */
#include "create.h"

#include <string.h>

#include "error.h"

enum { PAGE = 4096, INBOX_GRAIN = 2 << 20 };

static uint64_t round_up(uint64_t bytes, uint64_t grain)
{
    return (bytes + grain - 1) / grain * grain;
}

int par_options_read(par_options *out, const par_options *options)
{
    const par_options defaults = PAR_OPTIONS_INIT;
    *out = defaults;
    if (options) {
        if (options->size < offsetof(par_options, sentinel_bytes))
            return par_error(PAR_ERR_ARGUMENT, "options.size %zu is too small", options->size);
        memcpy(out, options, options->size < sizeof *out ? options->size : sizeof *out);
        out->size = sizeof *out;
    }
    if (out->with == 0 || (out->with & ~(uint32_t)PAR_WITH_ALL))
        return par_error(PAR_ERR_ARGUMENT, "options.with %#x names no transport or an unknown one", out->with);
    if (out->mode > PAR_MODE_STATUS)
        return par_error(PAR_ERR_ARGUMENT, "options.mode %u is unknown", out->mode);
    if (out->sentinel_bytes > 64u << 20)
        return par_error(PAR_ERR_ARGUMENT, "options.sentinel_bytes is above 64 MiB");
    if (!(out->timeout_s >= 0 && out->timeout_s < 1e6 && out->late_s >= 0 && out->late_s < 1e6))
        return par_error(PAR_ERR_ARGUMENT, "options.timeout_s or late_s is out of range");
    if (out->timeout_s == 0)
        out->timeout_s = 240;
    if (out->late_s == 0)
        out->late_s = 30;
    return PAR_OK;
}

int par_world_check(int world)
{
    if (world < 2 || world > PAR_MAX_WORLD)
        return par_error(PAR_ERR_ARGUMENT, "world size %d is not in 2..%d", world, PAR_MAX_WORLD);
    return PAR_OK;
}

int par_served(const par_options *options, int algorithm)
{
    uint32_t bit = par_algorithm_transport(algorithm) == PAR_HOST ? PAR_WITH_HOST : PAR_WITH_PEER;
    return (options->with & bit) != 0;
}

void par_measure(par_geometry *geometry, int world, uint32_t lanes, const par_options *options, uint64_t *host,
                    uint64_t *inbox)
{
    *host = *inbox = 0;
    for (int a = 1; a < PAR_ALGORITHMS; a++) {
        uint64_t *sum = par_algorithm_transport(a) == PAR_HOST ? host : inbox;
        par_geometry_init(&geometry[a], a, world, lanes, options->sentinel_bytes, 0);
        if (par_served(options, a))
            *sum += geometry[a].box_bytes + geometry[a].flag_bytes;
    }
    *host = round_up(*host, PAGE);
    *inbox = round_up(*inbox, INBOX_GRAIN);
}

uint64_t par_own_memory_bytes(void)
{
    return PAR_ALGORITHMS * PAR_LANES * sizeof(par_lane) + (PAR_LANES + PAR_CLAIM_WORDS) * sizeof(uint32_t);
}

int par_memory_bound(int world, const par_options *options, uint64_t *device_bytes, uint64_t *host_bytes)
{
    par_geometry geometry[PAR_ALGORITHMS];
    par_options read;
    uint64_t host = 0, inbox = 0, most_host = 0, most_inbox = 0;
    int error = par_world_check(world);
    if (!error)
        error = par_options_read(&read, options);
    for (uint32_t lanes = 1; !error && lanes <= PAR_LANES; lanes++) { /* rounding differs with the GPU's lanes */
        par_measure(geometry, world, lanes, &read, &host, &inbox);
        most_host = host > most_host ? host : most_host;
        most_inbox = inbox > most_inbox ? inbox : most_inbox;
    }
    if (!error && device_bytes)
        *device_bytes = most_inbox + round_up(par_own_memory_bytes(), INBOX_GRAIN);
    if (!error && host_bytes)
        *host_bytes = most_host + PAGE;
    return error;
}
