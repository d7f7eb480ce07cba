-- The table of functions that compiled code calls directly, and what they answer in. Taken by the files behind this one.
local ffi = require "ffi"
ffi.cdef [[
struct weir_pair {
    const char *name;
    const char *value;
    uint32_t name_len;
    int32_t value_len;
};
struct weir_glance {
    double now;
    double stamp;
    double change;
    double wall;
    double gap;
};
struct weir_mark {
    double version;
    double used;
};
struct weir_answer {
    const char *at;
    size_t len;
    double number;
    uint32_t flags;
    uint32_t flag;
    const int32_t *spans;
    const struct weir_pair *pairs;
    struct weir_mark *mark;
    double version;
    double expires;
    double strings;
    double list;
    char room[256];
};
struct weir_value {
    double number;
    double init;
    double ttl;
    uint32_t flags;
    int32_t kind;
    int32_t when;
    int32_t evict;
};
struct weir_api {
    int (*variable_index)(const char *, size_t);
    int (*variable)(int, const char *, size_t, struct weir_answer *);
    int (*header)(const char *, size_t, const char *, size_t, struct weir_answer *);
    int (*set_header)(const char *, size_t, const char *, size_t, int);
    int (*request_header)(const char *, size_t, struct weir_answer *);
    int (*ctx)(void);
    int (*status)(void);
    int (*set_status)(int);
    int (*headers_sent)(void);
    int (*is_subrequest)(void);
    int (*phase)(void);
    double (*now)(void);
    double (*seconds)(void);
    int (*text)(int, const char *, size_t, int, struct weir_answer *);
    int (*date)(int, double, struct weir_answer *);
    const struct weir_dict *(*dict)(int);
    int (*dict_get)(const struct weir_dict *, const char *, size_t, int, struct weir_answer *);
    int (*dict_set)(const struct weir_dict *, const char *, size_t, const char *, size_t, const struct weir_value *, struct weir_answer *);
    int (*dict_incr)(const struct weir_dict *, const char *, size_t, const struct weir_value *, struct weir_answer *);
    int (*dict_whole)(const struct weir_dict *, int, struct weir_answer *);
    int (*re_compile)(const char *, size_t, const char *, size_t, struct weir_answer *);
    void (*re_free)(int);
    int (*re_exec)(int, const char *, size_t, double, struct weir_answer *);
    int (*list)(int, double, int, const char *, size_t, struct weir_answer *);
    int (*request)(int, struct weir_answer *);
    int (*set_method)(int);
    int (*set_request_header)(const char *, size_t, const char *, size_t);
    int (*arg)(double, struct weir_answer *);
    double (*monotonic)(void);
    int (*set_peer)(const char *, size_t, int, const char *, size_t, struct weir_answer *);
    int (*settable)(const char *, size_t);
    int (*set_variable)(int, const char *, size_t);
    int (*give_ctx)(int);
    struct weir_glance *(*glance)(void);
    int (*say)(const char *, size_t, int);
    void (*update_time)(void);
};
]]
ngx._fast = {
    C = ffi.cast("const struct weir_api *", ngx._fast()),
    out = ffi.new("struct weir_answer"),
    value = ffi.new("struct weir_value"),
    string = ffi.string,
}
ngx._fast.glance = ngx._fast.C.glance()
