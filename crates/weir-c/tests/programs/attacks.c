/*
 * What a careless or hostile program does to the library, and what the library must make of it.
 *
 *     attacks DRIVER WORKERS LOOP ROUNDS
 *
 * Each round starts a server with a location for each attack, prints its address, and stops it when a line comes on standard
 * input. What must hold is checked here; the program that runs this one sends the requests. Ends with 0 if all held.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weir.h>

static int faults;
static weir_server *server;
/* Guards what follows. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static weir_request *late;
static int ends[16];
static int freed;
static int waiting;

#define CHECK(condition) check((condition) != 0, #condition, __LINE__)

static void check(int holds, const char *text, int line)
{
    if (holds)
        return;
    fprintf(stderr, "attacks.c:%d: %s (%s)\n", line, text, weir_error_message());
    __atomic_add_fetch(&faults, 1, __ATOMIC_SEQ_CST);
}

static void count_end(int code, void *data)
{
    (void)data;
    pthread_mutex_lock(&lock);
    ends[-code]++;
    pthread_mutex_unlock(&lock);
}

static void count_free(void *data)
{
    (void)data;
    __atomic_add_fetch(&freed, 1, __ATOMIC_SEQ_CST);
}

static void say(weir_request *request, weir_text text)
{
    weir_response_write(request, text.bytes, text.length);
    weir_response_write(request, "\n", 1);
}

/* All that is known of the request. */
static void show(weir_request *request, void *data)
{
    weir_text name, value;
    size_t index;

    CHECK(data == &faults);
    CHECK(weir_request_on_end(request, count_end, NULL) == WEIR_OK);
    say(request, weir_request_method(request));
    say(request, weir_request_target(request));
    say(request, weir_request_path(request));
    say(request, weir_request_query(request));
    say(request, weir_request_host(request));
    say(request, weir_request_version(request));
    say(request, weir_request_field(request, "x-WORD", WEIR_NUL));
    CHECK(weir_request_field(request, "x-none", WEIR_NUL).bytes == NULL);
    for (index = 0; weir_request_field_at(request, index, &name, &value) == WEIR_OK; index++)
        say(request, name);
    CHECK(index == weir_request_field_count(request));
    CHECK(weir_request_peer(request).length > 0);
    CHECK(weir_request_worker(request) < weir_server_worker_count(server));
    CHECK(weir_request_is_over(request) == 0);
    CHECK(weir_response_end(request, NULL, 0) == WEIR_OK);
}

static void got_body(weir_request *request, int code, const char *bytes, size_t length, void *data)
{
    char text[64];
    unsigned long sum = 0;
    size_t at;

    (void)data;
    if (code != WEIR_OK)
        return; /* the client gets the status that belongs to the code */
    for (at = 0; at < length; at++)
        sum += (unsigned char)bytes[at];
    snprintf(text, sizeof text, "%lu %lu", (unsigned long)length, sum);
    CHECK(weir_response_end(request, text, WEIR_NUL) == WEIR_OK);
}

static void body(weir_request *request, void *data)
{
    CHECK(weir_request_body(request, got_body, data) == WEIR_OK);
    CHECK(weir_request_read(request, got_body, data) == WEIR_E_STATE);
}

/* Whether a call is done, or came too late: a client may leave at any moment. */
static int is_done(int code)
{
    return code == WEIR_OK || code == WEIR_E_GONE;
}

/* Sends back what comes, with back pressure both ways. */
static void echo_piece(weir_request *request, int code, const char *bytes, size_t length, void *data);

static void echo_room(weir_request *request, int code, void *data)
{
    if (code == WEIR_OK)
        weir_request_read(request, echo_piece, data);
}

static void echo_piece(weir_request *request, int code, const char *bytes, size_t length, void *data)
{
    if (code != WEIR_OK)
        return;
    if (length == 0)
        CHECK(is_done(weir_response_end(request, NULL, 0)));
    else if (weir_response_write(request, bytes, length) == WEIR_FULL)
        CHECK(is_done(weir_response_on_room(request, echo_room, data)));
    else
        weir_request_read(request, echo_piece, data);
}

static void echo(weir_request *request, void *data)
{
    CHECK(weir_request_read(request, echo_piece, data) == WEIR_OK);
}

/* As many bytes as the query says, no faster than the client takes them. */
static void download_room(weir_request *request, int code, void *data)
{
    static const char piece[32768];
    long *left = data;
    int written = WEIR_OK;

    if (code != WEIR_OK) {
        free(left);
        return;
    }
    while (written == WEIR_OK && *left > 0) {
        size_t length = *left < (long)sizeof piece ? (size_t)*left : sizeof piece;
        written = weir_response_write(request, piece, length);
        if (written >= 0)
            *left -= (long)length;
    }
    CHECK(weir_response_unsent(request) < 200000);
    if (written == WEIR_FULL && weir_response_on_room(request, download_room, left) == WEIR_OK)
        return;
    if (written >= 0)
        CHECK(weir_response_end(request, NULL, 0) == WEIR_OK);
    free(left);
}

static void download(weir_request *request, void *data)
{
    long *left = malloc(sizeof *left);
    char digits[32] = "";
    weir_text query = weir_request_query(request);

    (void)data;
    memcpy(digits, query.bytes, query.length < 31 ? query.length : 31);
    *left = atol(digits);
    CHECK(weir_response_length(request, (uint64_t)*left) == WEIR_OK);
    download_room(request, WEIR_OK, left);
}

/* Another thread, which blocks as it likes. */
static void *write_from_thread(void *data)
{
    weir_request *request = data;
    static const char piece[50000];
    int endless = weir_request_query(request).length > 0, left = 40, written = WEIR_OK;

    while (written >= 0 && (endless || left-- > 0)) {
        written = weir_response_write(request, piece, sizeof piece);
        if (written == WEIR_FULL)
            written = weir_response_wait_room(request, -1);
    }
    if (written >= 0)
        CHECK(weir_response_end(request, NULL, 0) == WEIR_OK);
    else
        CHECK(written == WEIR_E_GONE || written == WEIR_E_STOPPED);
    weir_request_unref(request);
    return NULL;
}

static void start_thread(void *(*run)(void *), void *data)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, run, data) == 0);
    pthread_detach(thread);
}

static void from_thread(weir_request *request, void *data)
{
    (void)data;
    CHECK(weir_request_on_end(request, count_end, NULL) == WEIR_OK);
    start_thread(write_from_thread, weir_request_ref(request));
}

static void *unref_in_thread(void *data)
{
    weir_request_unref(data);
    return NULL;
}

static void let_go_in_thread(weir_request *request, void *data)
{
    (void)data;
    start_thread(unref_in_thread, weir_request_ref(request));
}

static void let_go(weir_request *request, void *data)
{
    (void)request;
    (void)data;
}

static void let_go_half_way(weir_request *request, void *data)
{
    (void)data;
    CHECK(weir_response_write(request, "half", 4) == WEIR_OK);
}

/* Timers, one of which is cancelled. */
static void timer_ran(int code, void *data)
{
    if (code == WEIR_OK)
        CHECK(weir_response_end(data, "timer", 5) == WEIR_OK);
    weir_request_unref(data);
}

static void timer_cancelled(int code, void *data)
{
    CHECK(code == WEIR_E_CANCELLED || code == WEIR_E_STOPPED);
    /* On a thread that is about to end, and must not wait for that. */
    if (code == WEIR_E_STOPPED && data == NULL)
        CHECK(weir_server_stop(server) == WEIR_E_THREAD);
}

static void timer(weir_request *request, void *data)
{
    weir_timer *never = NULL;
    int worker = weir_request_worker(request);

    CHECK(weir_server_timer(server, worker, UINT64_MAX, timer_cancelled, &faults, &never) == WEIR_OK);
    CHECK(weir_timer_cancel(never) == WEIR_OK);
    CHECK(weir_timer_cancel(never) == WEIR_E_STATE);
    weir_timer_free(never);
    CHECK(weir_server_timer(server, WEIR_ANY_WORKER, UINT64_MAX, timer_cancelled, data, NULL) == WEIR_OK);
    CHECK(weir_server_timer(server, 1000, 1, timer_ran, request, NULL) == WEIR_E_ARGUMENT);
    CHECK(weir_server_timer(server, worker, 20, timer_ran, weir_request_ref(request), NULL) == WEIR_OK);
}

static void task_ran(int code, void *data)
{
    CHECK(code == WEIR_OK || code == WEIR_E_STOPPED);
    weir_response_end(data, "task", 4);
    weir_request_unref(data);
}

static void *post_from_thread(void *data)
{
    CHECK(weir_server_post(server, weir_request_worker(data), task_ran, data) == WEIR_OK);
    return NULL;
}

static void task(weir_request *request, void *data)
{
    (void)data;
    start_thread(post_from_thread, weir_request_ref(request));
}

/* Too much, too late, and what can't be. */
static void twice(weir_request *request, void *data)
{
    (void)data;
    CHECK(weir_response_end(request, "once", 4) == WEIR_OK);
    CHECK(weir_response_end(request, "twice", 5) == WEIR_E_STATE);
    CHECK(weir_response_write(request, "more", 4) == WEIR_E_STATE);
    CHECK(weir_response_flush(request) == WEIR_E_STATE);
    CHECK(weir_response_abort(request) == WEIR_E_STATE);
    CHECK(weir_response_status(request, 404) == WEIR_E_STATE);
    CHECK(weir_response_field(request, "A", 1, "b", 1) == WEIR_E_STATE);
    CHECK(weir_request_body(request, got_body, NULL) == WEIR_E_STATE);
}

static void refused(weir_request *request, void *data)
{
    (void)data;
    CHECK(weir_response_status(request, 99) == WEIR_E_ARGUMENT);
    CHECK(weir_response_status(request, 600) == WEIR_E_ARGUMENT);
    CHECK(weir_response_status(request, -200) == WEIR_E_ARGUMENT);
    CHECK(weir_response_field(request, "X", 1, "a\r\nY: b", 7) == WEIR_E_ARGUMENT);
    CHECK(weir_response_field(request, "X", 1, "a\0b", 3) == WEIR_E_ARGUMENT);
    CHECK(weir_response_field(request, "X: Y", 4, "a", 1) == WEIR_E_ARGUMENT);
    CHECK(weir_response_field(request, "", 0, "a", 1) == WEIR_E_ARGUMENT);
    CHECK(weir_response_field(request, "content-length", WEIR_NUL, "7", 1) == WEIR_E_ARGUMENT);
    CHECK(weir_response_field(request, "Transfer-Encoding", WEIR_NUL, "chunked", 7) == WEIR_E_ARGUMENT);
    CHECK(weir_response_write(request, NULL, 1) == WEIR_E_ARGUMENT);
    CHECK(weir_response_write(request, "a", (size_t)-2) == WEIR_E_ARGUMENT);
    CHECK(weir_response_length(request, 5) == WEIR_OK);
    CHECK(weir_response_write(request, "sixsix", 6) == WEIR_E_ARGUMENT);
    CHECK(strstr(weir_error_message(), "5 bytes") != NULL);
    CHECK(weir_request_read(request, NULL, NULL) == WEIR_E_ARGUMENT);
    CHECK(weir_request_on_end(request, NULL, NULL) == WEIR_E_ARGUMENT);
    CHECK(weir_server_post(server, 0, NULL, NULL) == WEIR_E_ARGUMENT);
    CHECK(weir_response_status(request, 201) == WEIR_OK);
    CHECK(weir_response_field(request, "X-Kept", WEIR_NUL, "yes", WEIR_NUL) == WEIR_OK);
    CHECK(weir_response_end(request, "right", 5) == WEIR_OK);
}

static void nulls(weir_request *request, void *data)
{
    weir_text text;

    (void)data;
    CHECK(weir_server_start(NULL, NULL) == WEIR_E_ARGUMENT);
    CHECK(weir_server_stop(NULL) == WEIR_E_ARGUMENT);
    CHECK(weir_server_quit(NULL) == WEIR_E_ARGUMENT);
    CHECK(weir_server_join(NULL, 0) == WEIR_E_ARGUMENT);
    CHECK(weir_server_run(NULL) == WEIR_E_ARGUMENT);
    CHECK(weir_server_fd(NULL) == WEIR_E_ARGUMENT);
    CHECK(weir_server_turn(NULL) == WEIR_E_ARGUMENT);
    CHECK(weir_server_reload(NULL, "", 0) == WEIR_E_ARGUMENT);
    CHECK(weir_server_port(NULL, 0) == WEIR_E_ARGUMENT);
    CHECK(weir_server_address(NULL, 0, NULL, 0) == 0);
    CHECK(weir_server_address(server, 5, NULL, 0) == 0);
    CHECK(weir_server_post(NULL, 0, count_end, NULL) == WEIR_E_ARGUMENT);
    CHECK(weir_builder_listen(NULL, "a") == WEIR_E_ARGUMENT);
    CHECK(weir_builder_location(NULL, "a", nulls, NULL, count_free) == WEIR_E_ARGUMENT);
    CHECK(weir_request_ref(NULL) == NULL);
    weir_request_unref(NULL);
    weir_timer_free(NULL);
    weir_builder_free(NULL);
    CHECK(weir_server_free(NULL) == WEIR_OK);
    CHECK(weir_timer_cancel(NULL) == WEIR_E_ARGUMENT);
    text = weir_request_method(NULL);
    CHECK(text.bytes == NULL && text.length == 0);
    CHECK(weir_request_field_at(request, 0, NULL, &text) == WEIR_E_ARGUMENT);
    CHECK(weir_request_field_at(request, 1000, &text, &text) == WEIR_E_ARGUMENT);
    CHECK(weir_response_end(NULL, NULL, 0) == WEIR_E_ARGUMENT);
    CHECK(weir_response_end(request, "null", 4) == WEIR_OK);
}

/* A worker does not wait for itself. */
static void blocking(weir_request *request, void *data)
{
    if (data == NULL) {
        CHECK(weir_server_stop(server) == WEIR_E_THREAD);
        CHECK(weir_server_free(server) == WEIR_E_THREAD);
        CHECK(weir_server_join(server, -1) == WEIR_E_THREAD);
        CHECK(weir_server_reload(server, "events {} http {}", WEIR_NUL) == WEIR_E_THREAD);
        CHECK(weir_response_wait_room(request, -1) == WEIR_E_THREAD);
    } else {
        CHECK(weir_server_free(server) == WEIR_E_STATE);
    }
    CHECK(weir_server_turn(server) == WEIR_E_STATE);
    CHECK(weir_response_end(request, "blocking", 8) == WEIR_OK);
}

static void huge(weir_request *request, void *data)
{
    size_t length = 64u << 20;
    char *bytes = calloc(length, 1);

    (void)data;
    CHECK(weir_response_write(request, bytes, length) == WEIR_FULL);
    CHECK(weir_response_end(request, NULL, 0) == WEIR_OK);
    free(bytes);
}

static void aborted(weir_request *request, void *data)
{
    (void)data;
    CHECK(weir_response_write(request, "half", 4) == WEIR_OK);
    CHECK(weir_response_abort(request) == WEIR_OK);
}

static void too_short(weir_request *request, void *data)
{
    (void)data;
    CHECK(weir_response_length(request, 5) == WEIR_OK);
    CHECK(weir_response_write(request, "abc", 3) == WEIR_OK);
    CHECK(weir_response_end(request, NULL, 0) == WEIR_OK);
}

static void status(weir_request *request, void *data)
{
    (void)data;
    CHECK(weir_response_status(request, 410) == WEIR_OK);
    CHECK(weir_response_end(request, NULL, 0) == WEIR_OK);
}

static void forked(weir_request *request, void *data)
{
    int code = -1;
    pid_t child = fork();

    (void)data;
    if (child == 0) {
        /* By a signal: valgrind looks for leaks at an exit, and threads of the parent are not in the child. */
        if (weir_server_stop(server) == WEIR_E_FORKED && weir_server_free(server) == WEIR_E_FORKED)
            kill(getpid(), SIGKILL);
        _exit(9);
    }
    CHECK(waitpid(child, &code, 0) == child && WIFSIGNALED(code));
    CHECK(weir_response_end(request, "forked", 6) == WEIR_OK);
}

/* Kept until the server has ended. */
static void keep(weir_request *request, void *data)
{
    (void)data;
    CHECK(weir_request_on_end(request, count_end, NULL) == WEIR_OK);
    pthread_mutex_lock(&lock);
    if (late != NULL)
        weir_request_unref(late);
    late = weir_request_ref(request);
    pthread_mutex_unlock(&lock);
}

/* Kept until the client leaves. */
static void left(int code, void *data)
{
    count_end(code, NULL);
    weir_request_unref(data);
}

static void wait_for_end(weir_request *request, void *data)
{
    (void)data;
    CHECK(weir_request_on_end(request, left, weir_request_ref(request)) == WEIR_OK);
    __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
}

/* How many of these there are. */
static void count_of_kept(weir_request *request, void *data)
{
    char text[64];

    (void)data;
    pthread_mutex_lock(&lock);
    snprintf(text, sizeof text, "%d %d", late != NULL, waiting);
    pthread_mutex_unlock(&lock);
    CHECK(weir_response_end(request, text, WEIR_NUL) == WEIR_OK);
}

static void quits(weir_request *request, void *data)
{
    (void)data;
    CHECK(weir_server_quit(server) == WEIR_OK);
    CHECK(weir_server_quit(server) == WEIR_OK);
    CHECK(weir_response_end(request, "quits", 5) == WEIR_OK);
}

static void count_of_ends(weir_request *request, void *data)
{
    char text[64];

    (void)data;
    pthread_mutex_lock(&lock);
    snprintf(text, sizeof text, "%d %d", ends[0], ends[-WEIR_E_GONE]);
    pthread_mutex_unlock(&lock);
    CHECK(weir_response_end(request, text, WEIR_NUL) == WEIR_OK);
}

/* Entries of a directory of this process: threads, or descriptors. */
static int entries(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;

    while (directory != NULL && readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

/* A thread is listed for a moment after it was joined, and threads of this program's may be about to end. */
static int settled(const char *path, int wanted)
{
    int tries = 0;

    while (entries(path) != wanted && tries++ < 3000)
        usleep(10000);
    return entries(path);
}

static volatile sig_atomic_t signalled_elsewhere, signalled;

static void on_signal(int number)
{
    (void)number;
    signalled = 1;
    if (syscall(SYS_gettid) != getpid())
        signalled_elsewhere = 1;
}

static void location(weir_builder *builder, const char *path, weir_handler_fn handler, void *data)
{
    CHECK(weir_builder_location(builder, path, handler, data, count_free) == WEIR_OK);
}

static weir_builder *build(char **arguments)
{
    weir_builder *builder = weir_builder_new();
    int loop = atoi(arguments[3]);

    CHECK(weir_builder_driver(builder, strcmp(arguments[1], "epoll") == 0 ? WEIR_DRIVER_EPOLL : WEIR_DRIVER_IO_URING) == WEIR_OK);
    CHECK(weir_builder_driver(builder, 7) == WEIR_E_ARGUMENT);
    CHECK(weir_builder_workers(builder, atoi(arguments[2])) == WEIR_OK);
    CHECK(weir_builder_workers(builder, 0) == WEIR_E_ARGUMENT);
    CHECK(weir_builder_foreign_loop(builder, loop) == WEIR_OK);
    CHECK(weir_builder_body_limit(builder, 4000000) == WEIR_OK);
    CHECK(weir_builder_listen(builder, "127.0.0.1:0") == WEIR_OK);
    CHECK(weir_builder_location(builder, "/null", NULL, NULL, count_free) == WEIR_E_ARGUMENT);
    location(builder, "/show", show, &faults);
    location(builder, "/body", body, NULL);
    location(builder, "/echo", echo, NULL);
    location(builder, "/download", download, NULL);
    location(builder, "/thread", from_thread, NULL);
    location(builder, "/let-go", let_go, NULL);
    location(builder, "/let-go-in-thread", let_go_in_thread, NULL);
    location(builder, "/let-go-half-way", let_go_half_way, NULL);
    location(builder, "/timer", timer, loop ? &faults : NULL);
    location(builder, "/task", task, NULL);
    location(builder, "/twice", twice, NULL);
    location(builder, "/refused", refused, NULL);
    location(builder, "/nulls", nulls, NULL);
    location(builder, "/blocking", blocking, loop ? &faults : NULL);
    location(builder, "/huge", huge, NULL);
    location(builder, "/aborted", aborted, NULL);
    location(builder, "/too-short", too_short, NULL);
    location(builder, "/status", status, NULL);
    location(builder, "/forked", forked, NULL);
    location(builder, "/keep", keep, NULL);
    location(builder, "/wait", wait_for_end, NULL);
    location(builder, "/kept", count_of_kept, NULL);
    location(builder, "/quits", quits, NULL);
    location(builder, "/ends", count_of_ends, NULL);
    CHECK(weir_builder_host(builder, "other.example *.other.example") == WEIR_OK);
    location(builder, "/status", let_go, NULL);
    location(builder, "/twice", twice, NULL);
    return builder;
}

/* Serves until a line comes, or the server has ended. */
static void serve(int loop)
{
    struct pollfd waits[2] = {{0, POLLIN, 0}, {-1, POLLIN, 0}};
    char line;

    if (loop)
        waits[1].fd = weir_server_fd(server);
    else
        CHECK(weir_server_fd(server) == WEIR_E_STATE);
    for (;;) {
        if (poll(waits, 2, -1) < 0 && errno != EINTR)
            break;
        if (waits[1].revents != 0)
            CHECK(weir_server_turn(server) >= 0);
        if (waits[0].revents != 0 && read(0, &line, 1) <= 1)
            break;
    }
}

static void round_of(weir_builder *builder, int loop)
{
    char address[64], small[4];
    weir_request *kept;
    size_t length;

    memset(ends, 0, sizeof ends);
    waiting = 0;
    CHECK(weir_server_start(builder, &server) == WEIR_OK);
    CHECK(weir_server_address_count(server) == 1);
    length = weir_server_address(server, 0, address, sizeof address);
    CHECK(length == strlen(address));
    CHECK(weir_server_address(server, 0, small, sizeof small) == length && strcmp(small, "127") == 0);
    CHECK(weir_server_port(server, 0) == atoi(strchr(address, ':') + 1));
    CHECK(weir_server_reload(server, "events {} http { retrun; }", WEIR_NUL) == WEIR_E_START);
    CHECK(strstr(weir_error_message(), "unknown directive \"retrun\"") != NULL);
    CHECK(weir_server_reload(server, NULL, 0) == WEIR_E_ARGUMENT);
    CHECK(weir_server_join(server, 1) == WEIR_E_TIMEOUT);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    puts(address);
    fflush(stdout);
    serve(loop);
    CHECK(weir_server_stop(server) == WEIR_OK);
    CHECK(weir_server_stop(server) == WEIR_OK);
    CHECK(weir_server_join(server, -1) == WEIR_OK);
    CHECK(weir_server_post(server, 0, count_end, NULL) == WEIR_E_STOPPED);
    CHECK(weir_server_timer(server, 0, 1, count_end, NULL, NULL) == WEIR_E_STOPPED);
    CHECK(weir_server_address_count(server) == 0);
    CHECK(weir_server_free(server) == WEIR_OK);
    server = NULL;
    pthread_mutex_lock(&lock);
    kept = late;
    late = NULL;
    pthread_mutex_unlock(&lock);
    if (kept == NULL)
        return;
    CHECK(weir_request_is_over(kept) == 1);
    CHECK(weir_request_path(kept).length == 5);
    CHECK(weir_response_end(kept, "late", 4) == WEIR_E_STOPPED);
    CHECK(weir_response_wait_room(kept, -1) == WEIR_E_STOPPED);
    CHECK(weir_request_on_end(kept, count_end, NULL) == WEIR_OK);
    CHECK(ends[-WEIR_E_STOPPED] == 2);
    weir_request_unref(kept);
}

int main(int argc, char **argv)
{
    struct sigaction action, pipe_before, pipe_after;
    int loop, round, threads, descriptors, registered;
    weir_builder *builder;

    if (argc != 5)
        return 2;
    loop = atoi(argv[3]);
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGPIPE, SIG_DFL);
    sigaction(SIGPIPE, NULL, &pipe_before);
    CHECK(weir_abi_version() == WEIR_ABI_VERSION);
    threads = entries("/proc/self/task");
    descriptors = entries("/proc/self/fd");
    builder = build(argv);
    for (round = 0; round < atoi(argv[4]); round++) {
        round_of(builder, loop);
        CHECK(settled("/proc/self/task", threads) == threads);
        CHECK(settled("/proc/self/fd", descriptors) == descriptors);
    }
    registered = freed;
    weir_builder_free(builder);
    CHECK(registered == 0 && freed == 26);
    sigaction(SIGPIPE, NULL, &pipe_after);
    CHECK(pipe_before.sa_handler == pipe_after.sa_handler);
    CHECK(signalled && !signalled_elsewhere);
    return faults == 0 ? 0 : 1;
}
