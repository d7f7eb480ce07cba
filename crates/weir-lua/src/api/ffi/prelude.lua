-- The table of functions that compiled code calls directly, and the struct for their results. Used by the files after
-- this one.
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
    int (*hears)(int);
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
    const int32_t *(*re_spans)(void);
    int (*receive)(const void *, double, struct weir_answer *);
    int (*takes_sockets)(void);
    int (*send)(const void *, const char *, size_t);
    int (*scheduled)(void);
    int (*connect)(const void *, const char *, size_t, double, double, double, double);
    int (*keep)(const void *, double);
    int (*dict_key)(const struct weir_dict *, int, const char *, size_t, double, struct weir_answer *);
    int (*raw_log)(double, const char *, size_t);
    int (*log_limit)(void);
    int (*exiting)(void);
    double (*worker_number)(double);
    int (*bypass)(void);
    int (*set_reason)(int, const char *, size_t);
    int (*capture)(double, struct weir_answer *);
    int (*set_module_variable)(const char *, size_t, const char *, size_t);
    int (*header_values)(const char *, size_t, struct weir_answer *);
    void (*field_value)(int, const char *, size_t);
    int (*set_field)(int, const char *, size_t, int);
};
]]
ngx._fast = {
    C = ffi.cast("const struct weir_api *", ngx._fast()),
    out = ffi.new("struct weir_answer"),
    value = ffi.new("struct weir_value"),
    string = ffi.string,
}
ngx._fast.glance = ngx._fast.C.glance()

local out, text = ngx._fast.out, ngx._fast.string

-- Strings that were made of values, by name, and the state of things that they hold for, or 0. A value that is the same the next
-- time is not made into a string again; in the same state it is not even asked for.
local MOST, LONGEST = 500, 256
function ngx._fast.memory()
    return { count = 0, values = {}, states = {} }
end
function ngx._fast.remember(known, name, value, state)
    if value and #value > LONGEST then
        value, state = nil, 0
    end
    if not known.states[name] then
        if known.count >= MOST then
            known.count, known.values, known.states = 0, {}, {}
        end
        known.count = known.count + 1
    end
    known.values[name], known.states[name] = value, state
end

-- What was found: a text from C, what it was `last`, or nothing.
function ngx._fast.taken(found, last)
    if found == 1 then
        local value = text(out.at, out.len)
        return value
    end
    if found == 2 then return last end
    return nil
end
