-- Random programs over tables, run by the interpreter and compiled: the same results, whatever is optimized and collected.
-- luajit fuzz/luajit_tables.lua SEED PROGRAMS. The same seed makes the same programs; one that differs is printed.
local clone, nkeys, isarray, isempty = require "table.clone", require "table.nkeys", require "table.isarray", require "table.isempty"
local clear, new = require "table.clear", require "table.new"
local seed, programs = tonumber(arg[1] or 1), tonumber(arg[2] or 300)

local function draw(n) seed = (seed * 1103515245 + 12345) % 2147483648 return math.floor(seed / 65536) % n end
local function choose(list) return list[draw(#list) + 1] end

local TABLES = { "a", "b", "c", "d" }
local KEYS = { "1", "2", "i", "i % 5", "i + 0.5", "-i", "'x'", "'y'", "'k' .. i % 7", "O[i % 4 + 1]", "F", "true", "2^40", "0", "'__index'" }
local VALUES = { "i", "'v'", "a", "b", "{}", "{ i }", "{ x = i }", "nil", "false", "O[1]", "i * 0.5", "clone(c)", "new(i % 9, 3)" }
local WORDS = { T = TABLES, K = KEYS, V = VALUES }
local function fill(text)
  return (text:gsub("%f[%w]([TKV])%f[%W]", function(word) return choose(WORDS[word]) end))
end
local STATEMENTS = {
  "T[K] = V", "T[K] = V", "T[K] = V", "T = clone(T)", "local o = clone(T) if next(o) == nil then n = n + 1 end T = o",
  "n = n + nkeys(T)", "n = n + nkeys(clone(T))", "if isarray(T) then n = n + 3 end", "if isempty(T) then n = n + 5 else n = n - 1 end",
  "clear(T)", "T = new(i % 17, i % 5)", "T = { i, V, x = V }", "T.x = V if nkeys(T) > 2 then T.x = nil end", "T[#T + 1] = V n = n + #T",
  "n = n + (T[K] == nil and 1 or 2)", "n = n + (type(T[K]) == 'table' and nkeys(T[K]) or 7)", "T[K] = nil n = n + nkeys(T)",
  "local o = T o[K] = V n = n + nkeys(o) + nkeys(T)", "if i % 13 == 0 then T = {} end", "if i % 7 == 3 then collectgarbage('step', 20) end",
  "local o = { V } o.y = V if not isarray(o) then n = n + nkeys(o) end", "table.insert(T, V)", "local o = clone(T) o[K] = V n = n + nkeys(T) - nkeys(o)",
  "for k in pairs(T) do n = n + (isarray(T) and 1 or 2) end", "setmetatable(T, M)", "n = n + (rawget(T, K) == nil and 1 or 0)",
}

local function text()
  local lines = {}
  for at = 1, 2 + draw(7) do lines[at] = fill(choose(STATEMENTS)) end
  local body = {}
  for at, line in ipairs(lines) do body[at] = "    do " .. line .. " end" end
  return "local clone, nkeys, isarray, isempty, clear, new, O, F, M = ...\nlocal a, b, c, d, n = {}, { 1, 2 }, { x = 1 }, {}, 0\nlocal seen = {}\nfor i = 1, "
    .. 70 + draw(60) .. " do\n" .. table.concat(body, "\n") .. "\n    seen[i] = n\nend\nreturn seen, { a, b, c, d }"
end

local names = {}
local function name(value) return names[value] or tostring(value) end
local function described(t, depth)
  local parts = {}
  for k, v in next, t do
    parts[#parts + 1] = name(k) .. "=" .. ((type(v) == "table" and depth < 1) and described(v, depth + 1) or type(v) == "table" and "table" or name(v))
  end
  table.sort(parts)
  return "{" .. table.concat(parts, ",") .. "}"
end

local OBJECTS = { {}, {}, function() end, coroutine.create(print) }
local META = { __index = function() return 1 end, __newindex = function(t, k, v) rawset(t, k, v) end, __len = function() return 2 end }
for at, object in ipairs(OBJECTS) do names[object] = "O" .. at end
names[print] = "F"

local function run(source, compiled)
  local chunk = assert(loadstring(source))
  jit[compiled and "on" or "off"](chunk, true)
  local ok, seen, tables = pcall(chunk, clone, nkeys, isarray, isempty, clear, new, OBJECTS, print, META)
  if not ok then return (tostring(seen):gsub("0x%x+", "?")) end
  return table.concat(seen, " ") .. " " .. described(tables, 0)
end
jit.off(described) jit.off(run)

local OPTIONS = { { "hotloop=2", "hotexit=1" }, { "hotloop=5", "hotexit=2" }, { 0, "hotloop=3" }, { "-fwd", "-dse", "hotloop=3" }, { "-sink", "hotloop=3", "hotexit=1" }, { "-loop", "hotloop=3" }, { "+fold", "hotloop=10" } }
local failed = 0
for at = 1, programs do
  local source = text()
  local expected = run(source, false)
  local options = choose(OPTIONS)
  jit.opt.start(3) jit.opt.start(unpack(options)) jit.flush()
  collectgarbage("setpause", draw(2) == 0 and 0 or 200)
  local got = run(source, true)
  if got ~= expected then
    failed = failed + 1
    print("program " .. at .. ", " .. table.concat(options, " ") .. "\n" .. source .. "\ninterpreted: " .. expected:sub(1, 600) .. "\ncompiled:    " .. got:sub(1, 600))
  end
end
print(programs .. " programs, " .. failed .. " differ")
os.exit(failed == 0 and 0 or 1)
