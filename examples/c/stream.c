/*
 * Bodies that come and go in pieces, a timer, and a thread: cc stream.c $(pkg-config --cflags --libs weir) -lpthread -o stream
 *
 *     ./stream 127.0.0.1:8080
 *     curl -T large-file http://127.0.0.1:8080/upload        counts bytes, in little memory, however large the file is
 *     curl http://127.0.0.1:8080/download?1000000000 >file   makes bytes as fast as the client takes them
 *     curl -N http://127.0.0.1:8080/clock?5                  a line every 100 ms, by a timer of the worker
 *     curl http://127.0.0.1:8080/prime?1000000007            asks another thread, which may take its time
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir.h>

static weir_server *server;

/* What is known of a request. */
struct job {
    weir_request *request;
    unsigned long long left, count;
};

static unsigned long long number(const weir_request *request)
{
    weir_text query = weir_request_query(request);
    char digits[24] = "";

    if (query.length > 0)
        memcpy(digits, query.bytes, query.length < sizeof digits ? query.length : sizeof digits - 1);
    return strtoull(digits, NULL, 10);
}

static void ended(int code, void *data)
{
    (void)code;
    free(data);
}

/* A job for the request, with the number in its query. It lives as long as the request. */
static struct job *begin(weir_request *request)
{
    struct job *job = calloc(1, sizeof *job);

    job->left = number(request);
    weir_request_on_end(request, ended, job);
    return job;
}

static void upload_piece(weir_request *request, int code, const char *bytes, size_t length, void *data)
{
    struct job *job = data;
    char text[64];

    (void)bytes;
    if (code != WEIR_OK)
        return; /* nobody responds: the client gets what belongs to the code */
    job->count += length;
    if (length > 0) {
        weir_request_read(request, upload_piece, job); /* the client waits until a piece is asked for */
        return;
    }
    snprintf(text, sizeof text, "%llu bytes\n", job->count);
    weir_response_end(request, text, WEIR_NUL);
}

static void upload(weir_request *request, void *data)
{
    (void)data;
    weir_request_read(request, upload_piece, begin(request));
}

static void download_more(weir_request *request, int code, void *data)
{
    static const char piece[16384];
    struct job *job = data;

    if (code != WEIR_OK)
        return; /* the client has left */
    while (job->left > 0) {
        size_t length = job->left < sizeof piece ? (size_t)job->left : sizeof piece;
        int written = weir_response_write(request, piece, length);

        if (written < 0)
            return;
        job->left -= length;
        if (written == WEIR_FULL) {
            weir_response_on_room(request, download_more, job);
            return;
        }
    }
    weir_response_end(request, NULL, 0);
}

static void download(weir_request *request, void *data)
{
    struct job *job = begin(request);

    (void)data;
    weir_response_length(request, job->left);
    download_more(request, WEIR_OK, job);
}

/* A job that a timer or a thread has is its own, with a reference to the request, until it lets go of both. */
static struct job *take(weir_request *request)
{
    struct job *job = calloc(1, sizeof *job);

    job->left = number(request);
    job->request = weir_request_ref(request);
    return job;
}

static void let_go(struct job *job)
{
    weir_request_unref(job->request);
    free(job);
}

static void tick(int code, void *data)
{
    struct job *job = data;

    if (code == WEIR_OK && job->left > 0 && weir_response_write(job->request, "tick\n", 5) >= 0) {
        job->left--;
        if (weir_server_timer(server, weir_request_worker(job->request), 100, tick, job, NULL) == WEIR_OK)
            return;
    }
    weir_response_end(job->request, NULL, 0); /* fails if the client has left, which is as well */
    let_go(job);
}

static void clock_lines(weir_request *request, void *data)
{
    (void)data;
    tick(WEIR_OK, take(request));
}

static void *look_for_prime(void *data)
{
    struct job *job = data;
    unsigned long long divisor = 2;

    while (divisor * divisor <= job->left && job->left % divisor != 0)
        divisor++;
    if (job->left > 1 && divisor * divisor > job->left)
        weir_response_end(job->request, "prime\n", WEIR_NUL);
    else
        weir_response_end(job->request, "not prime\n", WEIR_NUL);
    let_go(job);
    return NULL;
}

static void prime(weir_request *request, void *data)
{
    struct job *job = take(request);
    pthread_t thread;

    (void)data;
    if (pthread_create(&thread, NULL, look_for_prime, job) == 0)
        pthread_detach(thread);
    else
        let_go(job); /* without a response: the client gets 500 */
}

int main(int argc, char **argv)
{
    weir_builder *builder = weir_builder_new();
    char address[128];
    sigset_t signals;
    int received;

    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);

    weir_builder_listen(builder, argc > 1 ? argv[1] : "127.0.0.1:8080");
    weir_builder_workers(builder, 2);
    weir_builder_body_limit(builder, 0);
    weir_builder_location(builder, "/upload", upload, NULL, NULL);
    weir_builder_location(builder, "/download", download, NULL, NULL);
    weir_builder_location(builder, "/clock", clock_lines, NULL, NULL);
    weir_builder_location(builder, "/prime", prime, NULL, NULL);
    if (weir_server_start(builder, &server) != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_error_message());
        return 1;
    }
    weir_builder_free(builder);
    weir_server_address(server, 0, address, sizeof address);
    printf("http://%s/\n", address);
    fflush(stdout);
    sigwait(&signals, &received);
    return weir_server_free(server) == WEIR_OK ? 0 : 1;
}
