/* profile.c: which algorithm serves which size. */
#include <string.h>

#include "comm.h"
#include "error.h"

static void add(struct par_comm *comm, size_t max_bytes, int algorithm)
{
    const size_t most = par_max_bytes(comm, (par_algorithm)algorithm);
    const par_choice choice = {max_bytes < most ? max_bytes : most, algorithm, 0, 0};
    if (comm->choices == 0 || comm->choice[comm->choices - 1].max_bytes < choice.max_bytes)
        comm->choice[comm->choices++] = choice;
}

/* Start values; a measured profile replaces them. */
void par_profile_defaults(struct par_comm *comm)
{
    const int pair = comm->world == 2;
    comm->choices = 0;
    if (comm->options.with & PAR_WITH_PEER) {
        add(comm, pair ? 4u << 20 : 192u << 10, PAR_PUSH_ONE_SHOT);
        add(comm, 4u << 20, PAR_PUSH_TWO_SHOT);
        add(comm, SIZE_MAX, PAR_PUSH_TWO_SHOT_CHUNKED);
    } else {
        add(comm, pair ? 128u << 10 : 64u << 10, PAR_HOST_ONE_SHOT);
        if (pair)
            add(comm, 384u << 10, PAR_HOST_ONE_SHOT_TAGGED);
        else
            add(comm, 128u << 10, PAR_HOST_TWO_SHOT);
        add(comm, 1u << 20, PAR_HOST_TWO_SHOT_TAGGED);
        add(comm, SIZE_MAX, PAR_HOST_TWO_SHOT_CHUNKED);
    }
}

static int check_choice(const struct par_comm *comm, const par_choice *c, size_t i)
{
    if (c->algorithm <= PAR_AUTO || c->algorithm >= PAR_ALGORITHMS)
        return par_error(PAR_ERR_ARGUMENT, "profile entry %zu: no algorithm %d", i, c->algorithm);
    if (par_max_bytes(comm, (par_algorithm)c->algorithm) == 0)
        return par_error(PAR_ERR_UNSUPPORTED, "profile entry %zu: %s is not set up", i,
                         par_algorithm_name(c->algorithm));
    if (c->max_bytes > par_max_bytes(comm, (par_algorithm)c->algorithm))
        return par_error(PAR_ERR_UNSUPPORTED, "profile entry %zu: %s serves at most %zu bytes, not %zu", i,
                         par_algorithm_name(c->algorithm), par_max_bytes(comm, (par_algorithm)c->algorithm),
                         c->max_bytes);
    if (i > 0 && c[-1].max_bytes >= c->max_bytes)
        return par_error(PAR_ERR_ARGUMENT, "profile entry %zu: max_bytes does not rise", i);
    if (c->lanes < 0 || c->threads < 0 || c->threads > PAR_MAX_WORKERS || c->threads % 32)
        return par_error(PAR_ERR_ARGUMENT, "profile entry %zu: lanes %d or threads %d is out of range", i, c->lanes,
                         c->threads);
    return PAR_OK;
}

int par_set_profile(par_comm *comm, const par_choice *choices, size_t n)
{
    int error = PAR_OK;
    if (!comm || (!choices && n) || n > PAR_MAX_CHOICES)
        return par_error(PAR_ERR_ARGUMENT, "comm or choices is null, or more than %d choices", PAR_MAX_CHOICES);
    for (size_t i = 0; i < n && !error; i++)
        error = check_choice(comm, &choices[i], i);
    if (!error) {
        if (n)
            memcpy(comm->choice, choices, n * sizeof *choices);
        comm->choices = n;
    }
    return error;
}

par_algorithm par_choose(const par_comm *comm, size_t bytes)
{
    int algorithm = PAR_AUTO;
    for (size_t i = comm ? comm->choices : 0; i > 0; i--)
        if (bytes <= comm->choice[i - 1].max_bytes)
            algorithm = comm->choice[i - 1].algorithm;
    return (par_algorithm)algorithm;
}

size_t par_max_bytes(const par_comm *comm, par_algorithm algorithm)
{
    size_t most = 0;
    int transport = par_algorithm_transport((int)algorithm);
    if (comm && algorithm == PAR_AUTO)
        most = comm->choices ? comm->choice[comm->choices - 1].max_bytes : 0;
    else if (comm && transport >= 0 &&
             (comm->options.with & (transport == PAR_HOST ? PAR_WITH_HOST : PAR_WITH_PEER)))
        most = comm->geometry[algorithm].max_bytes > SIZE_MAX ? SIZE_MAX : (size_t)comm->geometry[algorithm].max_bytes;
    return most;
}
