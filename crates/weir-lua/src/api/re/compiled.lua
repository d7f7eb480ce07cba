-- `weir.regex`: patterns as the structs that lua-resty-core has of them, for libraries that read these.
local _, native = ...
local ffi = require "ffi"
local C, out, text = native.fast.C, native.fast.out, native.fast.string
local names_of, complain = native.re.names, native.re.complain
local cast, copy, new, gc, sizeof = ffi.cast, ffi.copy, ffi.new, ffi.gc, ffi.sizeof
local tonumber, pairs, find, floor, ceil = tonumber, pairs, string.find, math.floor, math.ceil

-- The members that lua-resty-core's has; what its pointers point at is in the last one.
local struct = ffi.typeof [[struct {
    void *pool;
    unsigned char *name_table;
    int name_count, name_entry_size, ncaptures;
    int *captures;
    void *regex, *regex_sd, *replace;
    const char *pattern;
    int room[?];
}]]

-- Flags that C functions get beside a pattern, as lua-resty-core numbers them.
local FLAGS = { o = 1, d = 2, j = 4, D = 8, U = 16 }
local NO_MATCH, BAD_MAGIC = -1, -31

local regex = { ONCE = FLAGS.o }

function regex.flags(options)
    local flags = 0
    for letter, flag in pairs(FLAGS) do
        if find(options, letter, 1, true) then flags = flags + flag end
    end
    return flags
end

-- As PCRE writes names: for each group of a name two bytes of its number and the name, in pieces of one size.
local function named(number)
    local names = names_of(number)
    local count, longest = 0, 0
    for name, groups in pairs(names or {}) do
        count = count + #groups
        if #name > longest then longest = #name end
    end
    return names, count, longest + 3
end

local function write_names(at, size, names)
    for name, groups in pairs(names) do
        for i = 1, #groups do
            at[0], at[1] = floor(groups[i] / 256), groups[i] % 256
            copy(at + 2, name)
            at = at + size
        end
    end
end

local function number_of(compiled) return tonumber(cast("intptr_t", compiled.regex)) end

function regex.destroy(compiled)
    local number = number_of(gc(compiled, nil))
    compiled.regex = nil
    if number > 0 then C.re_free(number) end
end

-- The struct and whether it is cached by the server; nil and what PCRE says. An option that does not exist is an error.
function regex.compile(pattern, options)
    local number = C.re_compile(pattern, #pattern, options, #options, out)
    if number == -2 then return nil, text(out.at, out.len) end
    if number < 0 then return nil, complain(pattern, options) end
    local groups, cached = out.number, out.flag ~= 0
    local names, count, size = named(number)
    local compiled = new(struct, 2 * groups + ceil(count * size / sizeof "int"))
    compiled.ncaptures, compiled.captures = groups - 1, compiled.room
    compiled.name_count, compiled.name_entry_size = count, size
    compiled.name_table = cast("unsigned char *", compiled.room + 2 * groups)
    compiled.regex = cast("void *", number)
    if names then write_names(compiled.name_table, size, names) end
    if not cached then gc(compiled, regex.destroy) end
    return compiled, cached
end

-- How many groups there are up to the last that took part, whose places are in `captures`; -1: no match; other negative
-- numbers are PCRE's.
function regex.exec(compiled, subject, length, from)
    local groups = C.re_exec(number_of(compiled), subject, length, from, out)
    if groups == 0 then return NO_MATCH end
    if groups == -2 then return out.number end
    -- It was destroyed.
    if groups < 0 then return BAD_MAGIC end
    local spans, captures, last = C.re_spans(), compiled.captures, 0
    for at = 0, groups - 1 do
        captures[2 * at], captures[2 * at + 1] = spans[2 * at], spans[2 * at + 1]
        if spans[2 * at] >= 0 then last = at end
    end
    return last + 1
end

return regex
