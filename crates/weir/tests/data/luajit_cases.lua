-- Shows what LuaJIT's functions do: the names of all functions there are, then what each chunk of `luajit_cases.txt` (read in its
-- directory) gives. Runs in `init_by_lua`, where coroutines are LuaJIT's own, with the directory, and gives the lines. Used by
-- tests/it/lua_luajit.rs and conformance/luajit.
local directory = ...
local lines = {}

local function say(...) lines[#lines + 1] = table.concat({ ... }) end

local function plain(text)
    return (text:gsub("0x%x+", "0x"):gsub("[^\32-\126]", function(byte) return ("\\%03d"):format(byte:byte()) end))
end

local function shown(value, depth)
    local kind = type(value)
    if kind == "string" then return '"' .. plain(value) .. '"' end
    if kind == "number" then return ("%.14g"):format(value) end
    if kind == "nil" or kind == "boolean" then return tostring(value) end
    if kind == "cdata" then return "cdata " .. plain(tostring(value)) end
    if kind ~= "table" or depth > 2 or getmetatable(value) then return kind end
    local parts = {}
    for key, item in pairs(value) do parts[#parts + 1] = "[" .. shown(key, 3) .. "]=" .. shown(item, depth + 1) end
    table.sort(parts)
    return "{" .. table.concat(parts, " ") .. "}"
end

local function results(ok, ...)
    local parts = {}
    for at = 1, select("#", ...) do parts[at] = shown((select(at, ...)), 1) end
    return (ok and "" or "error ") .. table.concat(parts, ", ")
end

local function names()
    local all = {}
    local function add(prefix, of)
        for name, value in pairs(of) do
            if type(value) == "function" and type(name) == "string" and not name:find("^_") then all[#all + 1] = prefix .. name end
        end
    end
    for _, of in ipairs { "string", "table", "math", "io", "os", "debug", "coroutine", "package", "bit", "jit", "ffi", "jit.opt", "jit.util", "jit.profile", "string.buffer" } do
        add(of .. ".", require(of))
    end
    for name, value in pairs(_G) do
        if type(value) == "function" and not name:find("^_") then all[#all + 1] = name end
    end
    add("file:", debug.getmetatable(io.stdout).__index)
    add("buffer:", debug.getmetatable(require("string.buffer").new()).__index)
    for _, name in ipairs { "table.new", "table.clear", "table.clone", "table.nkeys", "table.isarray", "table.isempty", "thread.exdata", "thread.exdata2" } do
        if type(require(name)) == "function" then all[#all + 1] = "require " .. name end
    end
    table.sort(all)
    return all
end

for _, name in ipairs(names()) do say(name) end
for line in io.lines(directory .. "/luajit_cases.txt") do
    if not line:find("^#") then
        local chunk, why = loadstring(line, "=case")
        say(plain(line), " -> ", chunk and results(pcall(chunk)) or "error " .. plain(why))
    end
end
return table.concat(lines, "\n") .. "\n"
