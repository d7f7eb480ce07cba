-- Calls everything that scripts can reach with arguments of every kind, a piece of the calls in each request.
-- Functions are found by walking, so that new ones are called as well.
local wrong = {}
local ffi = require "ffi"
local type, pcall, select, tostring, pairs, unpack = type, pcall, select, tostring, pairs, unpack
local floor, sort, create, print = math.floor, table.sort, coroutine.create, print
local spawn, kill, wait, status = ngx.thread.spawn, ngx.thread.kill, ngx.thread.wait, coroutine.status
local shared, location = ngx.shared, ngx.location

local seed = 1
local function random(n)
    -- Lehmer's: the products fit in a double.
    seed = seed * 16807 % 2147483647
    return seed % n + 1
end

local big = ("x"):rep(2 ^ 20)
local function nested(depth)
    local t = {}
    for _ = 1, depth do t = { t } end
    return t
end
local function cyclic()
    local t = { 1 }
    t[2], t.self = t, t
    return setmetatable(t, t)
end
-- One value of each kind; made again for each call, since calls change tables.
local values = {
    function() return nil end,
    function() return true end,
    function() return false end,
    function() return 0 end,
    function() return -1 end,
    function() return 1.5 end,
    function() return 200 end,
    function() return 0 / 0 end,
    function() return 1 / 0 end,
    function() return -1 / 0 end,
    function() return 2 ^ 31 end,
    function() return 2 ^ 53 end,
    function() return -2 ^ 63 end,
    function() return 1e308 end,
    function() return "" end,
    function() return "\0" end,
    function() return "a\r\nb: \255" end,
    function() return "(a|b" end,
    function() return "7" end,
    function() return "args" end,
    function() return "/fine" end,
    function() return "@nowhere" end,
    function() return big end,
    function() return {} end,
    function() return { "a", 2, nil, { "b" }, key = "value", [1.5] = true } end,
    function() return nested(5) end,
    function() return nested(300) end,
    cyclic,
    function() return { method = "x", args = 1 / 0, body = {}, ctx = 1, vars = "", share_all_vars = {} } end,
    function() return print end,
    function() return function() end end,
    function() return function() error({}) end end,
    function() return create(function() end) end,
    function() return newproxy(true) end,
    function() return ngx.null end,
    function() return io.stdout end,
    function() return ffi.new("int64_t", -5) end,
    function() return ffi.new("char[4]") end,
    function() return ffi.typeof("double") end,
    function() return shared.wrong end,
}

-- Everything callable, by its name: { name, function, maker of what its methods want first }.
local all, seen = {}, {}
-- Not ours, or not to be called: what ends the process, is LuaJIT's own, the walk's, or makes a program of the VM
-- (`weir.cli` of `weir lua`).
local foreign = { _G = true, debug = true, os = true, io = true, ffi = true, package = true, wrong = true, string = true,
    math = true, bit = true, jit = true, weir = true }
local function walk(name, value, self)
    if type(value) == "function" then
        if not seen[value] then all[#all + 1] = { name, value, self } end
        seen[value] = true
        return
    end
    if type(value) ~= "table" or seen[value] then return end
    seen[value] = true
    for key, inner in pairs(value) do walk(name .. "." .. tostring(key), inner, self) end
    local meta = getmetatable(value)
    if type(meta) == "table" then
        walk(name .. "[]", meta.__index, self or function() return value end)
        walk(name .. "[]=", meta.__newindex, self or function() return value end)
        walk(name .. "()", meta.__call, self or function() return value end)
    end
end
local function names_of(table)
    local names = {}
    for name in pairs(table) do
        local first = name:match("^[^.]+")
        if not foreign[first] then names[#names + 1] = name end
    end
    sort(names)
    return names
end
local function collect()
    -- It ends the process, as it should.
    seen[require("ngx.process").signal_graceful_exit] = true
    -- LuaJIT's own, which move 2^31 elements when they are told to begin at -2^31.
    seen[table.insert], seen[table.remove] = true, true
    walk("ngx", ngx)
    walk("ndk", ndk)
    walk("coroutine", coroutine)
    for _, name in ipairs(names_of(package.preload)) do
        local loaded, module = pcall(require, name)
        if loaded then walk(name, module) end
    end
    -- Modules of the standard library's names that are ours or the patched LuaJIT's.
    for _, name in ipairs(names_of(package.loaded)) do walk(name, package.loaded[name]) end
    for name, maker in pairs {
        ["ngx.semaphore:"] = function() return require("ngx.semaphore").new(1) end,
        ["resty.lrucache:"] = function() return require("resty.lrucache").new(3) end,
        ["resty.sha1:"] = function() return require("resty.sha1"):new() end,
        ["resty.md5:"] = function() return require("resty.md5"):new() end,
        ["resty.aes:"] = function() return require("resty.aes"):new("key") end,
    } do
        walk(name, maker(), maker)
    end
    walk("ngx.shared.wrong", getmetatable(shared.wrong).__index, function() return shared.wrong end)
    for _, key in ipairs { "status", "ctx", "headers_sent", "is_subrequest" } do
        walk("ngx." .. key, function() return ngx[key] end)
        walk("ngx." .. key .. "=", function(value) ngx[key] = value end)
    end
    sort(all, function(a, b) return a[1] < b[1] end)
end
collect()
wrong.count = #all

-- The calls of one function: none, each kind alone, then two to five at random, with and without what methods want.
local SINGLE, MORE = #values, 40
local function arguments(number)
    if number == 0 then return 0, {} end
    if number <= SINGLE then return 1, { values[number]() } end
    local count = 1 + (number - SINGLE) % 5
    local given = {}
    for at = 1, count do given[at] = values[random(#values)]() end
    return count, given
end
local CALLS = SINGLE + MORE + 1

local waits = {
    server_rewrite = true, rewrite = true, access = true, precontent = true, content = true,
}
-- How far each phase has come.
local at = {}

local function protected(phase, f, ...)
    if not waits[phase] then
        pcall(f, ...)
        return
    end
    local made, thread = pcall(spawn, pcall, f, ...)
    if not made then return end
    local alive = status(thread)
    if alive == "zombie" then
        wait(thread)
    elseif alive ~= "dead" then
        -- It waits, perhaps for ever.
        kill(thread)
    end
end

local function call(phase, number)
    local entry = all[floor(number / (2 * CALLS)) + 1]
    local nth = number % (2 * CALLS)
    local with_self = nth >= CALLS
    if with_self and not entry[3] then return end
    seed = number + 1
    local count, given = arguments(nth % CALLS)
    wrong.last = entry[1] .. " with " .. count .. " arguments, call " .. number
    if with_self then return protected(phase, entry[2], entry[3](), unpack(given, 1, count)) end
    return protected(phase, entry[2], unpack(given, 1, count))
end

-- The next `calls` of a phase, each `step`th from the `first` on; behind one that ends the request the next one goes on.
function wrong.run(phase, calls, step, first)
    local number = at[phase] or first
    local most = #all * 2 * CALLS
    for _ = 1, calls do
        if number >= most then break end
        at[phase] = number + step
        call(phase, number)
        number = number + step
    end
end

function wrong.left(phase)
    local left = #all * 2 * CALLS - (at[phase] or 0)
    return left > 0 and left or 0
end

return wrong
