-- `ngx.re.*`
local re = ngx._re
ngx._re = nil
local exec, find, sub = re.match, re.find, re.sub
local type, tostring, error, concat = type, tostring, error, table.concat
local byte_sub = string.sub

local function text(value, at, name)
    if type(value) == "string" then return value end
    if type(value) == "number" or value == nil or type(value) == "boolean" then return tostring(value) end
    error("bad argument #" .. at .. " to '" .. name .. "' (string expected, got " .. type(value) .. ")", 3)
end

local function start_of(ctx, name)
    if ctx == nil then return 0 end
    if type(ctx) ~= "table" then error("bad argument #4 to '" .. name .. "' (table expected, got " .. type(ctx) .. ")", 3) end
    local pos = ctx.pos
    if pos == nil then return 0 end
    return pos > 0 and pos - 1 or 0
end

ngx.re = {}

function ngx.re.match(subject, regex, options, ctx, res)
    subject, regex = text(subject, 1, "match"), text(regex, 2, "match")
    local groups, from, to = exec(subject, regex, options, start_of(ctx, "match"), res)
    if not groups then
        if from then return nil, from end
        return nil
    end
    if ctx then ctx.pos = to + 1 end
    return groups
end

function ngx.re.find(subject, regex, options, ctx, nth)
    subject, regex = text(subject, 1, "find"), text(regex, 2, "find")
    local from, to, err, ends = find(subject, regex, options, start_of(ctx, "find"), nth)
    if err then return nil, nil, err end
    if ctx and ends then ctx.pos = ends + 1 end
    if not from then return nil end
    return from, to
end

function ngx.re.gmatch(subject, regex, options)
    subject, regex = text(subject, 1, "gmatch"), text(regex, 2, "gmatch")
    local start, ended = 0, false
    -- What is wrong with the pattern is told at once.
    local _, err = exec("", regex, options, 0)
    if type(err) == "string" then return nil, err end
    return function()
        if ended then return nil end
        local groups, from, to = exec(subject, regex, options, start)
        if not groups then
            ended = true
            return nil, from
        end
        start = to > from and to or to + 1
        if start > #subject then ended = true end
        return groups
    end
end

local function replace(subject, regex, options, call, everywhere)
    local parts, count, start, copied = {}, 0, 0, 0
    while start <= #subject do
        local groups, from, to = exec(subject, regex, options, start)
        if not groups then
            if from then return nil, nil, from end
            break
        end
        parts[#parts + 1] = byte_sub(subject, copied + 1, from)
        local by = call(groups)
        if type(by) ~= "string" and type(by) ~= "number" then
            error("string or number expected to be returned by the replace function, got " .. type(by), 3)
        end
        parts[#parts + 1] = tostring(by)
        count, copied = count + 1, to
        start = to > from and to or to + 1
        if not everywhere then break end
    end
    parts[#parts + 1] = byte_sub(subject, copied + 1)
    return concat(parts), count
end

local function substitute(name, everywhere)
    return function(subject, regex, by, options)
        subject, regex = text(subject, 1, name), text(regex, 2, name)
        if type(by) == "function" then return replace(subject, regex, options, by, everywhere) end
        return sub(subject, regex, options, text(by, 3, name), everywhere)
    end
end
ngx.re.sub, ngx.re.gsub = substitute("sub", false), substitute("gsub", true)

package.preload["ngx.re"] = function()
    return {
        version = "0.1.33",
        opt = function() end,
        split = function(subject, regex, options, ctx, most, res)
            res = res or {}
            local count, start, copied = 0, ctx and ctx.pos and ctx.pos - 1 or 0, 0
            copied = start
            most = most or 0
            while start < #subject and (most <= 0 or count < most - 1) do
                local groups, from, to = exec(subject, regex, options, start)
                if not groups then
                    if from then return nil, from end
                    break
                end
                if to == from then
                    from = from > copied and from or copied + 1
                    to = from
                    if from >= #subject then break end
                end
                count = count + 1
                res[count] = byte_sub(subject, copied + 1, from)
                for _, group in ipairs(groups) do
                    if group then
                        count = count + 1
                        res[count] = group
                    end
                end
                copied, start = to, to
            end
            res[count + 1] = byte_sub(subject, copied + 1)
            res[count + 2] = nil
            return res
        end,
    }
end
