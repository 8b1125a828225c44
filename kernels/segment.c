/* segment.c: the shared host memory of a communicator; see segment.h. */
#include "segment.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "error.h"
#include "pcie_allreduce.h"

static int system_error(const char *what)
{
    int error = errno == ENOMEM ? PAR_ERR_MEMORY : PAR_ERR_SYSTEM;
    return par_error(error, "%s: %s", what, strerror(errno));
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static socklen_t abstract_address(struct sockaddr_un *address, const char *name)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

/* Wait until fd is readable or the time is up. */
static int wait_readable(int fd, double until, const char *whom)
{
    struct pollfd p = {.fd = fd, .events = POLLIN, .revents = 0};
    int ready = 0;
    do {
        double left = until - now_s();
        ready = poll(&p, 1, left > 0 ? (int)(left * 1e3) + 1 : 0);
    } while (ready < 0 && errno == EINTR);
    if (ready < 0)
        return system_error("poll");
    if (ready == 0)
        return par_error(PAR_ERR_BOOTSTRAP, "%s did not come for the shared memory in time", whom);
    return PAR_OK;
}

int par_segment_create(par_segment *s, size_t bytes)
{
    int error = PAR_OK;
    s->fd = memfd_create("sgl-pcie", MFD_CLOEXEC);
    if (s->fd < 0)
        error = system_error("memfd_create");
    else if (ftruncate(s->fd, (off_t)bytes) != 0)
        error = system_error("cannot size the shared memory");
    s->bytes = bytes;
    return error;
}

int par_segment_offer(par_segment *s, size_t bytes, char name[PAR_SOCKET_NAME])
{
    struct sockaddr_un address;
    uint64_t nonce[2] = {0, 0};
    socklen_t length;
    int error = par_segment_create(s, bytes);
    if (error)
        return error;
    if (getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        return system_error("getrandom");
    snprintf(name, PAR_SOCKET_NAME, "sgl-pcie-%016llx%016llx", (unsigned long long)nonce[0],
             (unsigned long long)nonce[1]);
    length = abstract_address(&address, name);
    s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->listener < 0 || bind(s->listener, (struct sockaddr *)&address, length) != 0 ||
        listen(s->listener, PAR_MAX_WORLD) != 0)
        error = system_error("cannot offer the shared memory on a socket");
    return error;
}

/* Abstract names are seen by every user of the network namespace, so a stranger may come. */
static int is_ours(int taker)
{
    struct ucred peer = {0, 0, 0};
    socklen_t length = sizeof peer;
    return getsockopt(taker, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static int hand_over(int taker, int fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof(int))];
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header;

    memset(control, 0, sizeof control);
    header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(int));
    if (sendmsg(taker, &message, MSG_NOSIGNAL) != 1)
        return system_error("cannot pass the shared memory");
    return PAR_OK;
}

int par_segment_serve(par_segment *s, int takers, double timeout_s)
{
    double until = now_s() + timeout_s;
    int served = 0, error = PAR_OK;
    while (served < takers && !error) {
        error = wait_readable(s->listener, until, "a peer");
        if (!error) {
            int taker = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
            if (taker < 0) {
                error = system_error("accept");
            } else if (is_ours(taker)) {
                error = hand_over(taker, s->fd);
                served++;
            }
            if (taker >= 0)
                close(taker);
        }
    }
    close(s->listener);
    s->listener = -1;
    return error;
}

/* Take one descriptor off a connected socket. */
static int take(int from, double until, int *fd)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header;
    int error = wait_readable(from, until, "rank 0");
    if (error)
        return error;
    if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != 1)
        return par_error(PAR_ERR_BOOTSTRAP, "rank 0 closed the socket instead of passing the shared memory");
    header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int)))
        return par_error(PAR_ERR_BOOTSTRAP, "rank 0 passed no shared memory");
    memcpy(fd, CMSG_DATA(header), sizeof(int));
    return PAR_OK;
}

int par_segment_fetch(par_segment *s, const char *name, double timeout_s)
{
    struct sockaddr_un address;
    socklen_t length = abstract_address(&address, name);
    int from = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), error;
    if (from < 0)
        return system_error("socket");
    if (connect(from, (struct sockaddr *)&address, length) != 0)
        error = system_error("cannot reach rank 0's socket (ranks must share a network namespace)");
    else
        error = take(from, now_s() + timeout_s, &s->fd);
    close(from);
    return error;
}

int par_segment_map(par_segment *s, size_t bytes)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (base == MAP_FAILED)
        return system_error("cannot map the shared memory");
    s->base = base;
    s->bytes = bytes;
    close(s->fd);
    s->fd = -1;
    return PAR_OK;
}

int par_segment_place(void *part, size_t bytes, int node)
{
    enum { PREFERRED = 1, BITS = 8 * sizeof(unsigned long), WORDS = 16 };
    unsigned long mask[WORDS] = {0};
    int error = 0;
    if (node >= 0 && node < (int)(BITS * WORDS)) {
        mask[node / BITS] |= 1ul << (node % BITS);
        if (syscall(SYS_mbind, part, bytes, PREFERRED, mask, (unsigned long)(BITS * WORDS), 0) != 0)
            error = errno;
    }
    return error;
}

void par_segment_free(par_segment *s)
{
    if (s->base)
        munmap(s->base, s->bytes);
    if (s->fd >= 0)
        close(s->fd);
    if (s->listener >= 0)
        close(s->listener);
    s->base = NULL;
    s->fd = s->listener = -1;
}
