/*
 * Several servers in one process, from configurations: a text and a file, with named handlers, a script, and reloads.
 *
 *     servers DIRECTORY
 *
 * Prints two addresses, and at each line of standard input does the next step; ends with 0 if all held.
 */
#include <stdio.h>
#include <string.h>

#include <weir.h>

static int faults;

#define CHECK(condition) check((condition) != 0, #condition, __LINE__)

static void check(int holds, const char *text, int line)
{
    if (holds)
        return;
    fprintf(stderr, "servers.c:%d: %s (%s)\n", line, text, weir_error_message());
    faults++;
}

static void name(weir_request *request, void *data)
{
    CHECK(weir_response_end(request, data, WEIR_NUL) == WEIR_OK);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static weir_server *start(weir_builder *builder)
{
    weir_server *server;
    char address[64];

    CHECK(weir_server_start(builder, &server) == WEIR_OK);
    weir_server_address(server, 0, address, sizeof address);
    puts(address);
    fflush(stdout);
    return server;
}

#define CONF(word) \
    "worker_processes 2; events {} http { access_log off; client_body_temp_path bodies; server { listen 127.0.0.1:0;\n" \
    "location /word { return 200 " word "; } location /own { handler own; }\n" \
    "location /lua { content_by_lua_block { ngx.print(_VERSION, ' ', ngx.var.uri) } } } }\n"

int main(int argc, char **argv)
{
    weir_builder *texts = weir_builder_new(), *files = weir_builder_new();
    weir_server *one, *two, *none;
    char path[4096], line[16];

    if (argc != 2)
        return 2;
    snprintf(path, sizeof path, "%s/weir.conf", argv[1]);
    write_file(path, CONF("file"));

    CHECK(weir_builder_handler(texts, "own", name, "one", NULL) == WEIR_OK);
    CHECK(weir_builder_prefix(texts, argv[1]) == WEIR_OK);
    CHECK(weir_builder_conf(texts, CONF("text"), WEIR_NUL) == WEIR_OK);
    CHECK(weir_builder_conf_file(files, path) == WEIR_OK);
    CHECK(weir_server_start(files, &none) == WEIR_E_START && none == NULL);
    CHECK(strstr(weir_error_message(), "unknown handler \"own\" in ") != NULL);
    CHECK(strstr(weir_error_message(), "weir.conf:2") != NULL);
    CHECK(weir_builder_handler(files, "own", name, "two", NULL) == WEIR_OK);

    one = start(texts);
    two = start(files);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
    CHECK(weir_server_reload(one, CONF("reloaded"), WEIR_NUL) == WEIR_OK);
    write_file(path, CONF("changed"));
    CHECK(weir_server_reload(two, NULL, 0) == WEIR_OK);
    puts("reloaded");
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
    CHECK(weir_server_free(one) == WEIR_OK);
    puts("one is gone");
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
    CHECK(weir_server_quit(two) == WEIR_OK);
    CHECK(weir_server_join(two, -1) == WEIR_OK);
    CHECK(weir_server_free(two) == WEIR_OK);

    /* What can't be described. */
    CHECK(weir_builder_root(texts, "/srv") == WEIR_OK);
    CHECK(weir_server_start(texts, &none) == WEIR_E_START);
    CHECK(strstr(weir_error_message(), "has its addresses and locations there") != NULL);
    CHECK(weir_builder_listen(texts, "\xff") == WEIR_E_ARGUMENT);
    weir_builder_free(texts);
    weir_builder_free(files);
    return faults == 0 ? 0 : 1;
}
