-- `resty.core.regex`: what libraries use of it; `ngx.re` has its own way.
local _, native = ...
local ffi = require "ffi"
local base, regex = require "resty.core.base", require "weir.regex"
local template_of = native.re.template
local sub, find, tostring, new_table, bit_and = string.sub, string.find, tostring, require "table.new", bit.band
local DUPLICATE_NAMES = 8

local cache, is_empty, ratio = {}, true, 2
local module = { version = "0.1.33" }

-- The pattern, whether it is cached, and its flags; nil and what is wrong.
local function compile(pattern, options)
    pattern, options = tostring(pattern), options and tostring(options) or ""
    local key = options .. "\0" .. pattern
    local flags, compiled = regex.flags(options), cache[key]
    if compiled then return compiled, true, flags end
    local cached
    compiled, cached = regex.compile(pattern, options)
    if not compiled then return nil, cached end
    if cached then cache[key], is_empty = compiled, false end
    return compiled, cached, flags
end
module.re_match_compile = compile

function module.re_sub_compile(pattern, options, replacement, call)
    if not call then
        local parts, wrong = template_of(replacement)
        if not parts then return nil, wrong end
    end
    return compile(pattern, options)
end

module.destroy_compiled_regex = regex.destroy

local function named(compiled, flags, result)
    local at, duplicates = compiled.name_table, bit_and(flags, DUPLICATE_NAMES) ~= 0
    for _ = 1, compiled.name_count do
        local name, value = ffi.string(at + 2), result[at[0] * 256 + at[1]]
        if not duplicates then
            result[name] = value
        elseif value then
            local known = result[name]
            if known then known[#known + 1] = value else result[name] = { value } end
        end
        at = at + compiled.name_entry_size
    end
end

-- The texts of the last match's groups, by number and by name.
function module.collect_captures(compiled, groups, subject, flags, result)
    result = result or new_table(compiled.ncaptures, compiled.name_count)
    for at = 0, compiled.ncaptures do
        local from = compiled.captures[2 * at]
        if at < groups and from >= 0 then
            result[at] = sub(subject, from + 1, compiled.captures[2 * at + 1])
        else
            result[at] = false
        end
    end
    if compiled.name_count > 0 then named(compiled, flags or 0, result) end
    return result
end

function module.is_regex_cache_empty() return is_empty end
function module.set_buf_grow_ratio(wanted) ratio = wanted end

-- A buffer of `wanted` bytes with what `buffer` has: where to go on in it, too.
function module.check_buf_size(buffer, size, at, used, wanted, own)
    if wanted <= size then return buffer, size, at, wanted end
    size = size * ratio
    if size < wanted then size = wanted end
    local larger = base.get_string_buf(size, own)
    ffi.copy(larger, buffer, used)
    return larger, size, larger + used, wanted
end

return module
