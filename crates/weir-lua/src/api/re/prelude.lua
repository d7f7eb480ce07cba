-- `ngx.re.*`: patterns are compiled once and then known by a number.
local re = ngx._re
local C, out, text = ngx._fast.C, ngx._fast.out, ngx._fast.string
-- Of the last match: pairs of offsets. One pointer for ever, since each that is read is an object.
local spans = C.re_spans()
local names_of, template_of, complain = re.names, re.template, re.complain
local type, tostring, error, concat, pairs, sub, setmetatable =
    type, tostring, error, table.concat, pairs, string.sub, setmetatable
local find_plain, byte = string.find, string.byte
local new = require "table.new"

-- By options and pattern; what is known of a pattern, by its number.
local cache, groups, names, moves, lists = {}, {}, {}, {}, {}

-- The pattern's number and whether it is let go after use; nil and what is wrong.
local function compiled(regex, options)
    local known = cache[options]
    local number = known and known[regex]
    if number then return number, false end
    number = C.re_compile(regex, #regex, options, #options, out)
    if number < 0 then
        if number == -2 then return nil, text(out.at, out.len) end
        return nil, complain(regex, options)
    end
    local keep = out.flag ~= 0
    groups[number] = out.number
    if out.flags > 0 then names[number] = names_of(number) else names[number] = nil end
    moves[number] = (find_plain(options, "u", 1, true) or find_plain(options, "U", 1, true)) and true or false
    -- Groups may have one name: each name has the list of what matched.
    lists[number] = find_plain(options, "D", 1, true) and true or false
    if keep then
        if not known then
            known = {}
            cache[options] = known
        end
        known[regex] = number
    end
    return number, not keep
end

local function failed() return "pcre_exec() failed: " .. out.number end

local function string_of(value, at, name)
    if type(value) == "string" then return value end
    if value == nil or type(value) == "number" or type(value) == "boolean" then return tostring(value) end
    error("bad argument #" .. at .. " to '" .. name .. "' (string expected, got " .. type(value) .. ")", 3)
end

-- Where to begin, from 0.
local function start_of(ctx, name)
    if ctx == nil then return 0 end
    if type(ctx) ~= "table" then
        error("bad argument #4 to '" .. name .. "' (table expected, got " .. type(ctx) .. ")", 3)
    end
    local pos = ctx.pos
    if pos == nil or pos <= 0 then return 0 end
    return pos - 1
end

-- A group of the last match.
local function group(subject, at)
    local from = spans[2 * at]
    if from < 0 then return false end
    return sub(subject, from + 1, spans[2 * at + 1])
end

-- Puts the last match's named groups into `res`.
local function fill_named(res, named, listed)
    for name, numbers in pairs(named) do
        if #numbers == 1 and not listed then
            res[name] = res[numbers[1]]
        else
            local taken
            for at = 1, #numbers do
                local group = res[numbers[at]]
                if group then
                    taken = taken or {}
                    taken[#taken + 1] = group
                end
            end
            res[name] = taken
        end
    end
end

-- Puts the last match's groups into `res`, by number and by name. Without a loop for the usual few, and so elsewhere in
-- this file: where the compiler comes from a function's beginning to a loop that goes round once or twice, it gives up, and the
-- functions that call this one are not compiled either.
local function fill(res, number, subject)
    local count, named = groups[number], names[number]
    res[0] = group(subject, 0)
    if count > 1 then
        res[1] = group(subject, 1)
        if count > 2 then
            res[2] = group(subject, 2)
            if count > 3 then
                res[3] = group(subject, 3)
                for at = 4, count - 1 do res[at] = group(subject, at) end
            end
        end
    end
    if named then fill_named(res, named, lists[number]) end
    return res
end

-- After an empty match that ends at `to`: a character further.
local function further(subject, number, to)
    to = to + 1
    if moves[number] then
        while to < #subject do
            local unit = byte(subject, to + 1)
            if unit < 0x80 or unit >= 0xc0 then break end
            to = to + 1
        end
    end
    return to
end

ngx.re = {}

function ngx.re.match(subject, regex, options, ctx, res)
    subject, regex = string_of(subject, 1, "match"), string_of(regex, 2, "match")
    local start = start_of(ctx, "match")
    local number, once = compiled(regex, options or "")
    if not number then return nil, once end
    local count = C.re_exec(number, subject, #subject, start, out)
    local found, wrong
    if count > 0 then
        if ctx then ctx.pos = spans[1] + 1 end
        found = fill(res or new(groups[number], names[number] and 4 or 0), number, subject)
    elseif count < 0 then
        wrong = failed()
    end
    if once then C.re_free(number) end
    if wrong then return nil, wrong end
    return found
end

function ngx.re.find(subject, regex, options, ctx, nth)
    subject, regex = string_of(subject, 1, "find"), string_of(regex, 2, "find")
    local start = start_of(ctx, "find")
    local number, once = compiled(regex, options or "")
    if not number then return nil, nil, once end
    nth = nth or 0
    local from, to, wrong
    if nth < 0 or nth >= groups[number] then
        wrong = "nth out of bound"
    else
        local count = C.re_exec(number, subject, #subject, start, out)
        if count > 0 then
            if ctx then ctx.pos = spans[1] + 1 end
            if spans[2 * nth] >= 0 then from, to = spans[2 * nth] + 1, spans[2 * nth + 1] end
        elseif count < 0 then
            wrong = failed()
        end
    end
    if once then C.re_free(number) end
    if wrong then return nil, nil, wrong end
    return from, to
end

-- What `gmatch` gives: a table that is called, since a function that is made is not compiled.
local function next_match(self)
    local subject, start = self.subject, self.start
    if start > #subject then return nil end
    local number, once = compiled(self.regex, self.options)
    local count = C.re_exec(number, subject, #subject, start, out)
    local found, wrong
    if count > 0 then
        local from, to = spans[0], spans[1]
        found = fill(new(groups[number], names[number] and 4 or 0), number, subject)
        self.start = to > from and to or further(subject, number, to)
    else
        self.start = #subject + 1
        if count < 0 then wrong = failed() end
    end
    if once then C.re_free(number) end
    if wrong then return nil, wrong end
    return found
end
local iterator = { __call = next_match }

function ngx.re.gmatch(subject, regex, options)
    subject, regex, options = string_of(subject, 1, "gmatch"), string_of(regex, 2, "gmatch"), options or ""
    -- What is wrong with the pattern is reported at once.
    local number, once = compiled(regex, options)
    if not number then return nil, once end
    if once then C.re_free(number) end
    return setmetatable({ subject = subject, regex = regex, options = options, start = 0 }, iterator)
end

-- Replacements with `$1` and the like, in parts: texts, and numbers of groups.
local templates, known_templates = {}, 0
local function parts_of(by)
    local parts = templates[by]
    if parts then return parts end
    local wrong
    parts, wrong = template_of(by)
    if not parts then return nil, wrong end
    if known_templates < 1024 then
        known_templates, templates[by] = known_templates + 1, parts
    end
    return parts
end

-- What comes for the last match.
local function replacement(subject, number, parts, call)
    local total = groups[number]
    if call then
        local by = call(fill(new(total, names[number] and 4 or 0), number, subject))
        return tostring(by)
    end
    local count = #parts
    if count == 0 then return "" end
    if count == 1 and type(parts[1]) == "string" then return parts[1] end
    local buf = new(count, 0)
    for at = 1, count do
        local part = parts[at]
        if type(part) == "number" then part = part < total and group(subject, part) or "" end
        buf[at] = part
    end
    return concat(buf)
end

-- The text after its first replacement, which is of the bytes before `copied`.
local function replace_more(subject, number, parts, call, text, copied, start)
    local buf, size, count = { text }, 1, 1
    while start <= #subject do
        local got = C.re_exec(number, subject, #subject, start, out)
        if got == 0 then break end
        if got < 0 then return nil, nil, failed() end
        local from, to = spans[0], spans[1]
        buf[size + 1] = sub(subject, copied + 1, from)
        size, count = size + 2, count + 1
        buf[size] = replacement(subject, number, parts, call)
        copied = to
        start = to > from and to or further(subject, number, to)
    end
    buf[size + 1] = sub(subject, copied + 1)
    return concat(buf), count
end

-- A pattern that matches nowhere, or is replaced once, takes no loop.
local function replace(subject, number, parts, call, everywhere)
    local got = C.re_exec(number, subject, #subject, 0, out)
    if got == 0 then return subject, 0 end
    if got < 0 then return nil, nil, failed() end
    local from, to = spans[0], spans[1]
    local text = sub(subject, 1, from) .. replacement(subject, number, parts, call)
    if everywhere then
        local start = to > from and to or further(subject, number, to)
        return replace_more(subject, number, parts, call, text, to, start)
    end
    return text .. sub(subject, to + 1), 1
end

local function substitute(name, everywhere)
    return function(subject, regex, by, options)
        subject, regex = string_of(subject, 1, name), string_of(regex, 2, name)
        local number, once = compiled(regex, options or "")
        if not number then return nil, nil, once end
        local parts, call, wrong
        if type(by) == "function" then
            call = by
        else
            parts, wrong = parts_of(tostring(by))
        end
        local new_text, count
        if not wrong then new_text, count, wrong = replace(subject, number, parts, call, everywhere) end
        if once then C.re_free(number) end
        if wrong then return nil, nil, wrong end
        return new_text, count
    end
end
ngx.re.sub, ngx.re.gsub = substitute("sub", false), substitute("gsub", true)

-- Whether a pattern matches only itself: most separators do. Known of the first that are asked for.
local plain_patterns, known_patterns = {}, 0
local simple = { [""] = true, j = true, o = true, jo = true, oj = true }
local function is_plain(regex, options)
    if type(regex) ~= "string" or not simple[options or ""] then return false end
    local plain = plain_patterns[regex]
    if plain == nil then
        plain = regex ~= "" and not find_plain(regex, "[\\^$.|?*+()%[%]{}]")
        if known_patterns < 1024 then
            known_patterns, plain_patterns[regex] = known_patterns + 1, plain
        end
    end
    return plain
end

-- The rest of a subject after its last separator, and the end of the list; empty texts at its end count for nothing
-- unless a number of texts was wanted.
local function finish(res, size, rest, most)
    size = size + 1
    res[size] = rest
    if most <= 0 then
        while size > 0 and res[size] == "" do
            res[size] = nil
            size = size - 1
        end
    end
    res[size + 1] = nil
    return res
end

-- From after the first `copied` bytes.
local function split_plainly(subject, by, copied, most, res)
    local size = 0
    while copied < #subject and (most <= 0 or size < most - 1) do
        local from, to = find_plain(subject, by, copied + 1, true)
        if not from then break end
        size = size + 1
        res[size] = sub(subject, copied + 1, from - 1)
        copied = to
    end
    return finish(res, size, sub(subject, copied + 1), most)
end

local function split(subject, regex, options, ctx, most, res)
    subject, most, res = tostring(subject), most or 0, res or {}
    local copied = start_of(ctx, "split")
    if copied >= #subject then
        res[1] = nil
        return res
    end
    if is_plain(regex, options) then return split_plainly(subject, regex, copied, most, res) end
    local number, once = compiled(regex, options or "")
    if not number then return nil, once end
    local size, fields, start, total = 0, 0, copied, groups[number]
    while start < #subject and (most <= 0 or fields < most - 1) do
        local got = C.re_exec(number, subject, #subject, start, out)
        if got < 0 then
            local wrong = failed()
            if once then C.re_free(number) end
            return nil, wrong
        end
        if got == 0 then break end
        local from, to = spans[0], spans[1]
        if from == to and from >= #subject then break end
        if from == to and from == copied then
            start = further(subject, number, start)
        else
            size, fields = size + 1, fields + 1
            res[size] = sub(subject, copied + 1, from)
            for at = 1, total - 1 do
                if spans[2 * at] >= 0 then
                    size = size + 1
                    res[size] = sub(subject, spans[2 * at] + 1, spans[2 * at + 1])
                end
            end
            copied, start = to, to
        end
    end
    if once then C.re_free(number) end
    return finish(res, size, sub(subject, copied + 1), most)
end

package.preload["ngx.re"] = function()
    return { version = "0.1.33", opt = function() end, split = split }
end
