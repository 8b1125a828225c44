/*
 * What is around the GPUs: limits, the container, variables, running servers. Read here, judged by doctor.h.
 */
#ifndef SP_DOCTOR_AROUND_H
#define SP_DOCTOR_AROUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SP_UNLIMITED = -1 }; /* of a limit */

struct sp_server {
    int64_t pid;
    char **argv; /* NULL-terminated */
    char **env;  /* NULL-terminated; NULL: not ours to read */
};

struct sp_around {
    int64_t shm_bytes;        /* size of /dev/shm; SP_ABSENT: there is none */
    int64_t memlock;          /* soft limit in bytes, or SP_UNLIMITED */
    char *container;          /* "docker", "podman", …; NULL: none seen */
    bool devices;             /* there are /dev/nvidia* */
    bool may_open;            /* and we may open them */
    char **env;               /* NULL-terminated */
    struct sp_server *server; /* processes that serve with SGLang */
    size_t server_count;
    unsigned nvcc_major; /* 0: no nvcc */
    char *nvcc;          /* its version; NULL: none */
    char *no_nvcc;       /* why there is none */
    char *get_nvcc;      /* what to do then; NULL: that is not known */
};

/* Of this machine and this process; without nvcc. SP_ECANNOT without memory. To be freed in any case. */
int sp_around_read(struct sp_around *out);
void sp_around_free(struct sp_around *around);

/* The value of a variable in a NULL-terminated list of NAME=value, or NULL. */
const char *sp_env_value(char *const *env, const char *name);

/* The value of an option on a command line, "" for one without, NULL when it is not there. "--x=1" and "--x 1". */
const char *sp_argv_value(char *const *argv, const char *option);

/* Is this the command line of a server, or of a launcher of one? */
bool sp_argv_is_server(char *const *argv);

#endif
