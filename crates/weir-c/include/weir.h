/*
 * weir.h - Weir as a library: web servers inside of programs in C, and in every language that can call C.
 *
 *     static void hello(weir_request *request, void *data)
 *     {
 *         weir_response_field(request, "Content-Type", WEIR_NUL, "text/plain", WEIR_NUL);
 *         weir_response_end(request, "Hello!\n", WEIR_NUL);
 *     }
 *
 *     weir_builder *builder = weir_builder_new();
 *     weir_server *server;
 *     weir_builder_listen(builder, "127.0.0.1:8080");
 *     weir_builder_location(builder, "/hello", hello, NULL, NULL);
 *     if (weir_server_start(builder, &server) != WEIR_OK)
 *         fprintf(stderr, "%s\n", weir_error_message());
 *
 *     cc hello.c $(pkg-config --cflags --libs weir)
 *
 * A server has threads of its own, the workers, each with a loop (io_uring or epoll). It has the engine, the directives and the
 * modules of the weir program; what a location responds may come from functions of your program, the handlers.
 *
 * RESULTS. Functions that return int return WEIR_OK (0) or more, or below 0 one of WEIR_E_*. weir_error_message() says more: of
 * a configuration the file, the line and what is wrong. When a function has failed, nothing has happened; functions and data that
 * were given to it are yours as before and will not be called or freed. No function aborts the process, NULL and impossible
 * arguments are WEIR_E_ARGUMENT, and no panic of Weir's leaves it (WEIR_E_INTERNAL).
 *
 * THREADS. All functions but weir_builder_* may be called from any thread at any time, in handlers too, except those that wait
 * for workers: weir_server_stop, _free, _join, _run and _reload, and weir_response_wait_room, fail with WEIR_E_THREAD on a
 * worker's thread. A builder is used by one thread at a time.
 *
 * Your functions (handlers, pieces of bodies, timers, tasks) are called on the worker that has the request, which serves nothing
 * else until they return: do not block in them. Those of one request are never called at the same time, those of different
 * requests may be, on different workers. A program with a loop of its own asks for weir_builder_foreign_loop(): then all are
 * called by weir_server_turn() or weir_server_run(), on the thread that calls that.
 *
 * No lock is held while they are called. They must not leave by longjmp or by an exception of C++.
 *
 * MEMORY. What you give is copied before a function returns, except for `data`, which is only given back. What you get as
 * weir_text is valid for as long as you have the request, and what a function of yours is given as bytes until it returns.
 *
 * A request is valid while a function is called that is given it. To use it later, or on another thread, take a reference with
 * weir_request_ref() and give it back with weir_request_unref(), once. Functions that wait to be called (weir_request_read,
 * weir_request_body, weir_response_on_room) have a reference of their own. When the last reference goes before the response was
 * ended, the client gets 500, or where the response has begun a connection that breaks off: no client waits for ever.
 *
 * A request that you have a reference of stays valid when the client has left (functions return WEIR_E_GONE), when the response
 * was ended (WEIR_E_STATE), and when the server has ended (WEIR_E_STOPPED).
 *
 * PROCESS. No signal is handled, ignored or sent; workers block all signals, so that yours come to your threads, and SIGPIPE
 * keeps what it does. All descriptors are closed by exec. A child of fork() has no workers: there, weir_server_* fail with
 * WEIR_E_FORKED, and nothing else of Weir's may be used. The library stays loaded after dlclose(). Start threads, also by
 * weir_server_start(), after daemon() and fork(), not before.
 *
 * VERSIONS. Types are opaque, so that they may grow. WEIR_ABI_VERSION is the number in libweir.so's name; it changes when
 * programs must be compiled again. New functions do not change it.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) && !defined(WEIR_STATIC)
#define WEIR_API __attribute__((visibility("default")))
#else
#define WEIR_API
#endif

/* The version of this interface; weir_abi_version() is the library's. */
#define WEIR_ABI_VERSION 0

/* In place of a length: the string ends with NUL. */
#define WEIR_NUL ((size_t)-1)

/* In place of a worker's number: any. */
#define WEIR_ANY_WORKER (-1)

/* What functions return, and are called with. */
enum weir_code {
    WEIR_OK = 0,            /* done */
    WEIR_FULL = 1,          /* done, and more than enough waits to be sent: see weir_response_write() */
    WEIR_E_ARGUMENT = -1,   /* NULL, or another argument that can't be */
    WEIR_E_START = -2,      /* the configuration is wrong, or an address or another thing it asks for can't be had */
    WEIR_E_STATE = -3,      /* too late (the response has begun, or was ended), or too early */
    WEIR_E_GONE = -4,       /* the client has left */
    WEIR_E_STOPPED = -5,    /* the server has ended */
    WEIR_E_THREAD = -6,     /* not on a worker's thread, which it would block */
    WEIR_E_CANCELLED = -7,  /* the timer was cancelled */
    WEIR_E_TIMEOUT = -8,    /* not in time */
    WEIR_E_TOO_LARGE = -9,  /* the request's body is larger than client_max_body_size */
    WEIR_E_PROTOCOL = -10,  /* the client broke the protocol */
    WEIR_E_SYSTEM = -11,    /* the system refused it: no descriptors, no memory, a file that can't be read */
    WEIR_E_FORKED = -12,    /* the process was forked after the server had started */
    WEIR_E_INTERNAL = -13   /* a fault of Weir's */
};

/* Event drivers, for weir_builder_driver(). */
enum weir_driver {
    WEIR_DRIVER_AUTO = 0,     /* io_uring where it works, else epoll */
    WEIR_DRIVER_EPOLL = 1,
    WEIR_DRIVER_IO_URING = 2
};

/* A description of a server. */
typedef struct weir_builder weir_builder;
/* A running server. */
typedef struct weir_server weir_server;
/* A request and the response to it. */
typedef struct weir_request weir_request;
/* A timer of a worker. */
typedef struct weir_timer weir_timer;

/* Bytes with their length, not ended by NUL. `bytes` may be NULL where `length` is 0. */
typedef struct weir_text {
    const char *bytes;
    size_t length;
} weir_text;

/*
 * Responds to a request. It may end the response before it returns, or keep a reference and end it later, from any thread.
 * `data` is what was given with it.
 */
typedef void (*weir_handler_fn)(weir_request *request, void *data);

/* Frees what was given with a handler, when nothing can use it any more: once, on any thread. */
typedef void (*weir_free_fn)(void *data);

/*
 * Called once for each weir_request_read() or weir_request_body(). WEIR_OK: `bytes` has `length` bytes of the body, none at its
 * end. Otherwise why there are none: WEIR_E_GONE, WEIR_E_STOPPED, WEIR_E_TIMEOUT (client_body_timeout), WEIR_E_TOO_LARGE,
 * WEIR_E_PROTOCOL, WEIR_E_SYSTEM, WEIR_E_STATE (the response was begun without it). A response is possible after all but the
 * first two; the client gets the status that belongs to the error (408, 413, 400, 500) if there is none.
 */
typedef void (*weir_body_fn)(weir_request *request, int code, const char *bytes, size_t length, void *data);

/* Called once for each weir_response_on_room(): WEIR_OK when there is room, otherwise why there will be none. */
typedef void (*weir_room_fn)(weir_request *request, int code, void *data);

/*
 * Called once for each weir_request_on_end(). WEIR_OK: the response was handed over whole. WEIR_E_GONE: the client left before.
 * WEIR_E_STOPPED: the server ended before. WEIR_E_STATE: it broke off (weir_response_abort(), no reference left, fewer bytes
 * than announced).
 */
typedef void (*weir_end_fn)(int code, void *data);

/*
 * Called once for each task or timer: WEIR_OK when it is time, WEIR_E_CANCELLED, or WEIR_E_STOPPED when the server has ended
 * first (then on any thread, maybe before weir_server_post() has returned).
 */
typedef void (*weir_task_fn)(int code, void *data);

/* ---- Errors and versions ---- */

/* Why the last function that failed on this thread did so; valid until the next one fails there. Never NULL. */
WEIR_API const char *weir_error_message(void);
/* What a code means. Never NULL. */
WEIR_API const char *weir_code_text(int code);
/* The version of the library, such as "0.1.0". */
WEIR_API const char *weir_version(void);
/* WEIR_ABI_VERSION of the header that the library was made with. */
WEIR_API int weir_abi_version(void);

/* ---- Describing a server ---- */

/* A new description; NULL only without memory. Without any call, the server listens on 127.0.0.1 at a free port and has nothing. */
WEIR_API weir_builder *weir_builder_new(void);
/* Frees a description, NULL too. Servers that it has started go on. */
WEIR_API void weir_builder_free(weir_builder *builder);

/* Listens on an address, with the parameters of a `listen` line: "127.0.0.1:8080", "[::]:443 ssl", "unix:/run/a.sock". */
WEIR_API int weir_builder_listen(weir_builder *builder, const char *address);
/* Serves files below a directory where there is no location. */
WEIR_API int weir_builder_root(weir_builder *builder, const char *directory);
/*
 * Addresses, root and locations that follow are of the host with these names ("example.com *.example.com"). What was described
 * before is of the host that takes all other requests. A host without addresses has those of the first.
 */
WEIR_API int weir_builder_host(weir_builder *builder, const char *names);
/*
 * Serves requests for `path`, written as in a `location` line ("/api/", "= /exact", "~ \\.cgi$"). `free_data` may be NULL.
 */
WEIR_API int weir_builder_location(weir_builder *builder, const char *path, weir_handler_fn handler, void *data,
                                   weir_free_fn free_data);
/* How many bytes the body of a request may have, of all hosts; 0 for no limit, otherwise it is 1 MB (client_max_body_size). */
WEIR_API int weir_builder_body_limit(weir_builder *builder, uint64_t limit);

/*
 * Or a configuration: a whole nginx.conf, with `events` and `http`, in which `handler NAME;` says which function responds in a
 * location. Not together with listen, root, host, location and body_limit. The text is UTF-8.
 */
WEIR_API int weir_builder_conf(weir_builder *builder, const char *text, size_t length);
WEIR_API int weir_builder_conf_file(weir_builder *builder, const char *path);
/* The function that `handler NAME;` means. A location's has its path as its name, after the names of its host. */
WEIR_API int weir_builder_handler(weir_builder *builder, const char *name, weir_handler_fn handler, void *data,
                                  weir_free_fn free_data);
/* Where relative paths of the configuration begin; otherwise at its directory, and of a text at the current one. */
WEIR_API int weir_builder_prefix(weir_builder *builder, const char *directory);

/* How many workers serve, up to 255; otherwise as `worker_processes` says, which is 1 without it. */
WEIR_API int weir_builder_workers(weir_builder *builder, int count);
/* One of enum weir_driver. */
WEIR_API int weir_builder_driver(weir_builder *builder, int driver);
/* Not 0: your functions are called by weir_server_turn() and weir_server_run() instead of on workers. */
WEIR_API int weir_builder_foreign_loop(weir_builder *builder, int on);

/* ---- Servers ---- */

/*
 * Starts a server; when it returns WEIR_OK, connections are accepted. Otherwise *server is NULL. A builder may start several,
 * one after the other or at once.
 */
WEIR_API int weir_server_start(const weir_builder *builder, weir_server **server);
/*
 * Ends the server at once if it runs, waits for its threads, and frees it, NULL too. Nothing of yours is called for it after
 * that. With an error it is not freed: on a worker's thread, and inside of weir_server_turn() (WEIR_E_STATE).
 */
WEIR_API int weir_server_free(weir_server *server);
/* Ends at once, running requests too, and returns when all threads have ended. A second time it does nothing. */
WEIR_API int weir_server_stop(weir_server *server);
/* Accepts no more and lets running requests end, for `worker_shutdown_timeout` at most. Returns at once. */
WEIR_API int weir_server_quit(weir_server *server);
/* Waits for the end, so many milliseconds for each worker at most (WEIR_E_TIMEOUT); below 0 for ever. */
WEIR_API int weir_server_join(weir_server *server, int64_t milliseconds);
/*
 * Takes another configuration into use without losing a request; NULL reads the file again that the server has come from. Names
 * of handlers are those of the builder. Fails without a change.
 */
WEIR_API int weir_server_reload(weir_server *server, const char *text, size_t length);

/* How many workers it has. */
WEIR_API int weir_server_worker_count(const weir_server *server);
/* How many addresses it listens on; 0 once it ends. */
WEIR_API int weir_server_address_count(const weir_server *server);
/*
 * Writes an address ("127.0.0.1:49152"), cut off to `room` bytes with its NUL; a port 0 has become a real one. Returns its
 * length, 0 if there is none. `text` may be NULL where `room` is 0.
 */
WEIR_API size_t weir_server_address(const weir_server *server, int index, char *text, size_t room);
/* The port of an address. */
WEIR_API int weir_server_port(const weir_server *server, int index);

/* ---- Your own loop (weir_builder_foreign_loop) ---- */

/*
 * A descriptor that is readable while functions of yours wait to be called: for epoll, libuv, libevent, GLib, asyncio. Do not
 * read, write or close it. Sockets are served by workers all the while, whether your loop turns or not.
 */
WEIR_API int weir_server_fd(const weir_server *server);
/* Calls those that wait now, and returns how many these were. Never waits. Not from one of them (WEIR_E_STATE). */
WEIR_API int weir_server_turn(weir_server *server);
/*
 * Serves on this thread until the server has ended, by weir_server_quit() or _stop(). Without weir_builder_foreign_loop() it
 * only waits, as weir_server_join() does.
 */
WEIR_API int weir_server_run(weir_server *server);

/* ---- Tasks and timers ---- */

/* Has `task` called on a worker (from 0, or WEIR_ANY_WORKER), soon. */
WEIR_API int weir_server_post(weir_server *server, int worker, weir_task_fn task, void *data);
/*
 * Has `task` called on a worker after so many milliseconds. `timer` may be NULL; otherwise it is to be freed by
 * weir_timer_free(), before or after it has run.
 */
WEIR_API int weir_server_timer(weir_server *server, int worker, uint64_t milliseconds, weir_task_fn task, void *data,
                               weir_timer **timer);
/* Has the task called with WEIR_E_CANCELLED now. WEIR_E_STATE: it was called. */
WEIR_API int weir_timer_cancel(weir_timer *timer);
/* Forgets a timer, NULL too. It runs all the same. */
WEIR_API void weir_timer_free(weir_timer *timer);

/* ---- Requests ---- */

/* One more reference. Returns the request. */
WEIR_API weir_request *weir_request_ref(weir_request *request);
/* One reference less, NULL too. */
WEIR_API void weir_request_unref(weir_request *request);

/* "GET" */
WEIR_API weir_text weir_request_method(const weir_request *request);
/* As sent: "/a%20b/../c?d" */
WEIR_API weir_text weir_request_target(const weir_request *request);
/* Decoded, without `..` and double slashes: "/c". It may have any bytes. */
WEIR_API weir_text weir_request_path(const weir_request *request);
/* What follows the question mark, as sent: "d" */
WEIR_API weir_text weir_request_query(const weir_request *request);
/* The host asked for, in lower case, without port. */
WEIR_API weir_text weir_request_host(const weir_request *request);
/* "HTTP/1.1", "HTTP/2.0", "HTTP/3.0" */
WEIR_API weir_text weir_request_version(const weir_request *request);
/* The client's address with its port, or what `set_real_ip_from` has put in its place. */
WEIR_API weir_text weir_request_peer(const weir_request *request);
/* The value of the first field of that name, in any case of letters; `bytes` is NULL if there is none. */
WEIR_API weir_text weir_request_field(const weir_request *request, const char *name, size_t length);
/* All fields in order, from 0. */
WEIR_API size_t weir_request_field_count(const weir_request *request);
WEIR_API int weir_request_field_at(const weir_request *request, size_t index, weir_text *name, weir_text *value);
/* The number of the worker that has it: for weir_server_post() and weir_server_timer(). */
WEIR_API int weir_request_worker(const weir_request *request);

/*
 * Has `function` called with the whole body, which client_max_body_size bounds. Before the response has begun.
 */
WEIR_API int weir_request_body(weir_request *request, weir_body_fn function, void *data);
/*
 * Has `function` called with the next piece of the body, as it comes. As long as none is asked for, none is read, and the client
 * has to wait. May go on while the response is written, if it has begun before that.
 */
WEIR_API int weir_request_read(weir_request *request, weir_body_fn function, void *data);
/* Has `function` called when the request is over; at once, on this thread, if it is. It does not count as a reference. */
WEIR_API int weir_request_on_end(weir_request *request, weir_end_fn function, void *data);
/* 1 when it is over, 0 while it goes on. */
WEIR_API int weir_request_is_over(const weir_request *request);

/* ---- Responses ---- */

/*
 * From 200 to 599; otherwise it is 200. A status from 300 on without a body becomes the server's own page of it, or what
 * `error_page` says.
 */
WEIR_API int weir_response_status(weir_request *request, int status);
/*
 * Adds a field. Those that frame the message (Content-Length, Transfer-Encoding, Connection), names that are no tokens, and
 * values with CR, LF or NUL are WEIR_E_ARGUMENT.
 */
WEIR_API int weir_response_field(weir_request *request, const char *name, size_t name_length, const char *value,
                                 size_t value_length);
/* Announces the length of the body (Content-Length). Without it, one that is not ended at once is sent in chunks. */
WEIR_API int weir_response_length(weir_request *request, uint64_t length);
/*
 * Adds to the body, and begins the response: status and fields can't be changed any more. All bytes are taken. WEIR_FULL: 64 KB
 * or more of them wait for the client, so that one who makes more should wait, for weir_response_on_room() or in
 * weir_response_wait_room(); who does not needs memory for what the client does not take.
 */
WEIR_API int weir_response_write(weir_request *request, const char *bytes, size_t length);
/* Begins the response, and lets what was written so far pass filters (gzip) that wait for more. */
WEIR_API int weir_response_flush(weir_request *request);
/* Ends the response, after so many more bytes. `bytes` may be NULL where `length` is 0. */
WEIR_API int weir_response_end(weir_request *request, const char *bytes, size_t length);
/* Breaks the response off: the connection or stream is closed, so that the client knows that it is not whole. */
WEIR_API int weir_response_abort(weir_request *request);
/* Bytes that wait for the client to take those before. */
WEIR_API size_t weir_response_unsent(const weir_request *request);
/* Has `function` called when less than 64 KB wait, soon if that is so now. */
WEIR_API int weir_response_on_room(weir_request *request, weir_room_fn function, void *data);
/* Blocks until less than 64 KB wait, so many milliseconds at most (WEIR_E_TIMEOUT); below 0 for ever. Not on a worker. */
WEIR_API int weir_response_wait_room(weir_request *request, int64_t milliseconds);

#ifdef __cplusplus
}
#endif

#endif /* WEIR_H */
