/* A line between two network namespaces: two TUN devices, and what passes is delayed, kept to a rate, lost, swapped.
 *     line FROM TO --mbit 10 --ms 40 [--loss 0.5] [--swap 0] [--queue BYTES] [--seed N]
 * FROM and TO are names of TUN devices that exist. --mbit is each direction's rate, --ms the delay of a round trip, --loss and
 * --swap are percent of packets, --queue bounds what waits for the line (drop tail). At its end (SIGTERM) it says on standard
 * error what passed: one line for each direction.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1 << 14, PACKET = 2048 };

struct packet { uint64_t due; int len; unsigned char bytes[PACKET]; };

/* One direction: packets by the time at which they are due. */
struct way {
    int from, to;
    struct packet *ring;
    unsigned head, count;
    uint64_t free_at, bytes, packets, lost, dropped;
};

static double mbit = 10, ms = 40, loss = 0, swap = 0;
static uint64_t queue_bytes = 0, state = 1;
static volatile sig_atomic_t ended;

static void end(int signal) { (void)signal; ended = 1; }

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static double draw(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (double)(state >> 11) / (double)(1ull << 53) * 100;
}

static int tun(const char *name) {
    struct ifreq request = {0};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) < 0) { perror(name); exit(1); }
    return fd;
}

/* Takes what came. A packet leaves when the line is free, and is there half a round trip later. */
static void take(struct way *w) {
    static unsigned char bytes[65536];
    for (;;) {
        ssize_t len = read(w->from, bytes, sizeof bytes);
        if (len <= 0) return;
        uint64_t at = now(), start = w->free_at > at ? w->free_at : at;
        double waiting = (double)(start - at) / 8e3 * mbit;
        if (len > PACKET || w->count == MOST || (queue_bytes && waiting > (double)queue_bytes)) { w->dropped++; continue; }
        if (draw() < loss) { w->lost++; continue; }
        w->free_at = start + (uint64_t)((double)len * 8e3 / mbit);
        struct packet *p = &w->ring[(w->head + w->count++) % MOST];
        p->due = w->free_at + (uint64_t)(ms * 5e5);
        p->len = (int)len;
        memcpy(p->bytes, bytes, (size_t)len);
        if (w->count > 1 && draw() < swap) {
            struct packet *q = &w->ring[(w->head + w->count - 2) % MOST], other = *p;
            uint64_t due = q->due;
            *p = *q; *q = other;
            p->due = q->due; q->due = due;
        }
        w->bytes += (uint64_t)len, w->packets++;
    }
}

static uint64_t give(struct way *w) {
    while (w->count) {
        struct packet *p = &w->ring[w->head];
        uint64_t at = now();
        if (p->due > at) return p->due - at;
        if (write(w->to, p->bytes, (size_t)p->len) < 0 && errno == EAGAIN) return 100000;
        w->head = (w->head + 1) % MOST, w->count--;
    }
    return UINT64_MAX;
}

int main(int argc, char **argv) {
    if (argc < 3) { fprintf(stderr, "line FROM TO [--mbit N] [--ms N] ...\n"); return 2; }
    for (int i = 3; i + 1 < argc; i += 2) {
        double value = atof(argv[i + 1]);
        if (!strcmp(argv[i], "--mbit")) mbit = value;
        else if (!strcmp(argv[i], "--ms")) ms = value;
        else if (!strcmp(argv[i], "--loss")) loss = value;
        else if (!strcmp(argv[i], "--swap")) swap = value;
        else if (!strcmp(argv[i], "--queue")) queue_bytes = (uint64_t)value;
        else if (!strcmp(argv[i], "--seed")) state = (uint64_t)value * 2 + 1;
        else { fprintf(stderr, "unknown %s\n", argv[i]); return 2; }
    }
    int a = tun(argv[1]), b = tun(argv[2]);
    struct way ways[2] = {{.from = a, .to = b}, {.from = b, .to = a}};
    for (int i = 0; i < 2; i++) ways[i].ring = malloc(sizeof(struct packet) * MOST);
    signal(SIGTERM, end);
    puts("ready"), fflush(stdout);
    while (!ended) {
        uint64_t x = give(&ways[0]), y = give(&ways[1]), wait = x < y ? x : y;
        struct timespec t = {(time_t)(wait / 1000000000), (long)(wait % 1000000000)};
        struct pollfd fds[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
        if (ppoll(fds, 2, wait == UINT64_MAX ? NULL : &t, NULL) > 0)
            for (int i = 0; i < 2; i++) if (fds[i].revents) take(&ways[i]);
    }
    for (int i = 0; i < 2; i++)
        fprintf(stderr, "way %d: %llu packets, %llu bytes, %llu lost, %llu dropped\n", i, (unsigned long long)ways[i].packets,
                (unsigned long long)ways[i].bytes, (unsigned long long)ways[i].lost, (unsigned long long)ways[i].dropped);
    return 0;
}
