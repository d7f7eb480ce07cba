/*
 * Many requests at once, each ended in a way of its own, by several threads, while clients leave and the server stops under them:
 *
 *     storm DRIVER WORKERS LOOP ROUNDS
 *
 * What must hold: each request is over once, each task and timer is called once, and nothing is left.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weir.h>

static weir_server *server;
static int begun, over, owed, called, threads;
static unsigned ways;

#define COUNT(what) __atomic_add_fetch(&(what), 1, __ATOMIC_SEQ_CST)

static void ended(int code, void *data)
{
    (void)code;
    (void)data;
    COUNT(over);
}

static void called_back(int code, void *data)
{
    COUNT(called);
    if (code == WEIR_OK)
        weir_response_end(data, "task", 4);
    weir_request_unref(data);
}

static void owe(int accepted, weir_request *request)
{
    if (accepted == WEIR_OK)
        COUNT(owed);
    else
        weir_request_unref(request);
}

static void *elsewhere(void *data)
{
    weir_request *request = data;
    static const char piece[70000];
    int step;

    switch (COUNT(ways) % 6) {
    case 0:
        weir_response_end(request, "thread", 6);
        break;
    case 1:
        weir_response_write(request, piece, sizeof piece);
        weir_response_abort(request);
        break;
    case 2:
        break;
    case 3:
        for (step = 0; step < 30 && weir_response_write(request, piece, sizeof piece) >= 0; step++)
            if (weir_response_wait_room(request, 1000) < 0)
                break;
        weir_response_end(request, NULL, 0);
        break;
    case 4:
        owe(weir_server_post(server, WEIR_ANY_WORKER, called_back, weir_request_ref(request)), request);
        break;
    default:
        weir_response_write(request, "a", 1);
        weir_response_flush(request);
        weir_response_end(request, "b", 1);
    }
    weir_request_unref(request);
    __atomic_sub_fetch(&threads, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void body_came(weir_request *request, int code, const char *bytes, size_t length, void *data)
{
    (void)code;
    (void)bytes;
    (void)data;
    COUNT(called);
    if (length > 0 && weir_request_read(request, body_came, NULL) == WEIR_OK)
        COUNT(owed);
    else
        weir_response_end(request, "body", 4);
}

static void handle(weir_request *request, void *data)
{
    pthread_t thread;

    (void)data;
    COUNT(begun);
    weir_request_on_end(request, ended, NULL);
    switch (COUNT(ways) % 5) {
    case 0:
        if (weir_request_read(request, body_came, NULL) == WEIR_OK)
            COUNT(owed);
        break;
    case 1:
        owe(weir_server_timer(server, WEIR_ANY_WORKER, ways % 7, called_back, weir_request_ref(request), NULL), request);
        break;
    case 2:
        weir_response_end(request, "at once", 7);
        break;
    default:
        COUNT(threads);
        if (pthread_create(&thread, NULL, elsewhere, weir_request_ref(request)) == 0) {
            pthread_detach(thread);
        } else {
            weir_request_unref(request);
            __atomic_sub_fetch(&threads, 1, __ATOMIC_SEQ_CST);
        }
    }
}

int main(int argc, char **argv)
{
    weir_builder *builder = weir_builder_new();
    struct pollfd waits[2] = {{0, POLLIN, 0}, {-1, POLLIN, 0}};
    char line, address[64];
    int round, loop;

    if (argc != 5)
        return 2;
    loop = atoi(argv[3]);
    weir_builder_driver(builder, strcmp(argv[1], "epoll") == 0 ? WEIR_DRIVER_EPOLL : WEIR_DRIVER_IO_URING);
    weir_builder_workers(builder, atoi(argv[2]));
    weir_builder_foreign_loop(builder, loop);
    weir_builder_location(builder, "/", handle, NULL, NULL);
    for (round = 0; round < atoi(argv[4]); round++) {
        if (weir_server_start(builder, &server) != WEIR_OK) {
            fprintf(stderr, "%s\n", weir_error_message());
            return 3;
        }
        weir_server_address(server, 0, address, sizeof address);
        puts(address);
        fflush(stdout);
        waits[1].fd = loop ? weir_server_fd(server) : -1;
        while (poll(waits, 2, -1) >= 0) {
            if (waits[1].revents != 0)
                weir_server_turn(server);
            if (waits[0].revents != 0 && read(0, &line, 1) <= 1)
                break;
        }
        /* Under all that goes on. Threads use the server until they end, so it is freed after them. */
        if (weir_server_stop(server) != WEIR_OK)
            return 4;
        while (__atomic_load_n(&threads, __ATOMIC_SEQ_CST) > 0)
            usleep(1000);
        if (weir_server_free(server) != WEIR_OK)
            return 5;
    }
    weir_builder_free(builder);
    printf("%d requests, %d over, %d calls owed, %d made\n", begun, over, owed, called);
    return begun == over && owed == called && begun > 0 ? 0 : 1;
}
