/*
 * A web server in a few lines: cc hello.c $(pkg-config --cflags --libs weir) -o hello && ./hello 127.0.0.1:8080
 * Then: curl http://127.0.0.1:8080/hello?you
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <weir.h>

static void hello(weir_request *request, void *data)
{
    weir_text query = weir_request_query(request);

    (void)data;
    weir_response_field(request, "Content-Type", WEIR_NUL, "text/plain", WEIR_NUL);
    weir_response_write(request, "Hello, ", WEIR_NUL);
    weir_response_write(request, query.bytes, query.length);
    weir_response_end(request, "!\n", WEIR_NUL);
}

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, weir_error_message());
    return 1;
}

int main(int argc, char **argv)
{
    weir_builder *builder = weir_builder_new();
    weir_server *server;
    char address[128];
    sigset_t signals;
    int received;

    /* Before there are threads: the signals come to sigwait() below, and to nobody else. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);

    weir_builder_listen(builder, argc > 1 ? argv[1] : "127.0.0.1:8080");
    weir_builder_location(builder, "/hello", hello, NULL, NULL);
    if (weir_server_start(builder, &server) != WEIR_OK)
        return failed("it does not start");
    weir_builder_free(builder);
    weir_server_address(server, 0, address, sizeof address);
    printf("http://%s/hello?you\n", address);
    fflush(stdout);

    sigwait(&signals, &received);

    weir_server_quit(server);
    weir_server_join(server, -1);
    return weir_server_free(server) == WEIR_OK ? 0 : failed("it does not end");
}
