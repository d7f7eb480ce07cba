-- Runs tests of libraries in plain Lua inside a request: files that fail by raising, and specs in busted's words, of
-- which as much is here as the libraries use. Says `ok NAME` or `not ok NAME: why`, a line each.
local cases = {}
local unpack = unpack

local function same(a, b)
    if type(a) ~= "table" or type(b) ~= "table" then return a == b end
    for key, value in pairs(a) do
        if not same(value, b[key]) then return false end
    end
    for key in pairs(b) do
        if a[key] == nil then return false end
    end
    return true
end

local checks = {
    equal = function(a, b) return a == b end,
    same = same,
    ["true"] = function(value) return value == true end,
    ["false"] = function(value) return value == false end,
    truthy = function(value) return not not value end,
    falsy = function(value) return not value end,
    ["nil"] = function(value) return value == nil end,
    error = function(f, message)
        local ok, said = pcall(f)
        if ok then return false end
        if message == nil then return true end
        if type(said) == "string" and type(message) == "string" then said = said:gsub("^[^:]+:%d+: ", "") end
        return same(said, message)
    end,
    match = function(pattern, text) return (tostring(text):find(pattern)) ~= nil end,
    error_matches = function(f, pattern)
        local ok, said = pcall(f)
        return not ok and tostring(said):find(pattern) ~= nil
    end,
    near = function(a, b, most) return math.abs(a - b) <= most end,
}
checks.equals, checks.eq, checks.errors, checks.matches, checks.has_error =
    checks.equal, checks.equal, checks.error, checks.match, checks.error
for _, kind in ipairs { "table", "string", "number", "function", "boolean", "userdata" } do
    checks[kind] = function(value) return type(value) == kind end
end
local fillers = { are = true, is = true, has = true, have = true, was = true, be = true, to = true, a = true, an = true, of = true }

-- `assert.are_not.same(a, b)`: words until one is called.
local function words(said)
    return setmetatable({}, {
        __index = function(_, word) return words(said .. "_" .. word) end,
        __call = function(_, ...)
            local name, negated = {}, false
            for word in said:gmatch("[^_]+") do
                if word:lower() == "not" or word == "no" then
                    negated = true
                elseif not fillers[word] then
                    name[#name + 1] = word
                end
            end
            local check = checks[table.concat(name, "_")]
            if not check then error("assert." .. said .. " is not known here", 2) end
            if not not check(...) == negated then
                local values = {}
                for at = 1, select("#", ...) do values[at] = tostring((select(at, ...))) end
                error("assert" .. said .. ": " .. table.concat(values, ", "), 2)
            end
            return ...
        end,
    })
end
local given_assert = assert
local spec_assert = setmetatable({}, {
    __index = function(_, word) return words("_" .. word) end,
    __call = function(_, ...) return given_assert(...) end,
})

-- Raised where a file ends by `os.exit` and says that all is well.
local done = setmetatable({}, { __tostring = function() return "os.exit(0)" end })

local function ran(name, f)
    local ok, why = xpcall(f, function(why) return why == done and done or tostring(why) end)
    ok = ok or why == done
    cases[#cases + 1] = ok and "ok " .. name or "not ok " .. name .. ": " .. why:gsub("\n.*", "")
end

local function spec(file)
    local path, before, after = {}, {}, {}
    local environment
    local function describe(name, body)
        path[#path + 1] = name
        local first, last = #before, #after
        setfenv(body, environment)()
        before[first + 1], after[last + 1] = nil, nil
        path[#path] = nil
    end
    local function it(name, body)
        ran(file .. ": " .. table.concat(path, " ") .. " " .. name, function()
            for at = 1, 100 do
                if before[at] then before[at]() end
            end
            body()
            for at = 1, 100 do
                if after[at] then after[at]() end
            end
        end)
    end
    environment = setmetatable({
        describe = describe, context = describe, insulate = describe, it = it, assert = spec_assert,
        before_each = function(f) before[#before + 1] = f end, after_each = function(f) after[#after + 1] = f end,
        setup = function(f) f() end, teardown = function() end, pending = function() end, finally = function() end,
    }, { __index = _G, __newindex = _G })
    environment._G = environment
    local chunk, why = loadfile(file)
    if not chunk then return ran(file, function() error(why, 0) end) end
    local ok, wrong = pcall(setfenv(chunk, environment))
    if not ok then ran(file, function() error(wrong, 0) end) end
end

return function(files)
    local exit, write, out = os.exit, io.write, print
    os.exit = function(code)
        if code == nil or code == true or code == 0 then error(done) end
        error("os.exit(" .. tostring(code) .. ")", 2)
    end
    print = function() end
    for _, file in ipairs(files) do
        -- Programs have it, and libraries look for it.
        rawset(_G, "arg", { [0] = file })
        if file:find("_spec") then
            spec(file)
        else
            ran(file, function()
                local chunk = given_assert(loadfile(file))
                setfenv(chunk, setmetatable({}, { __index = _G, __newindex = _G }))(file)
            end)
        end
    end
    os.exit, io.write, print = exit, write, out
    return table.concat(cases, "\n") .. "\n"
end
