-- `table.clone`, `nkeys`, `isarray` and `isempty` in compiled code, beside the same in Lua that is never compiled.
local clone, nkeys, isarray, isempty = require "table.clone", require "table.nkeys", require "table.isarray", require "table.isempty"
local clear, new = require "table.clear", require "table.new"
local ffi = require "ffi"
local floor = math.floor

local function check(a, b, m)
  if a ~= b then error((m or "") .. ": " .. tostring(a) .. " is not " .. tostring(b), 2) end
end

local reference = {}
function reference.nkeys(t) local n = 0 for _ in next, t do n = n + 1 end return n end
function reference.isempty(t) return next(t) == nil end
function reference.isarray(t)
  for k in next, t do if type(k) ~= "number" or k ~= floor(k) then return false end end
  return true
end
function reference.same(a, b)
  for k, v in next, a do if rawget(b, k) ~= v then return false end end
  for k, v in next, b do if rawget(a, k) ~= v then return false end end
  return true
end
for _, f in pairs(reference) do jit.off(f, true) end

-- The same numbers whichever way this runs.
local seed = 12345
local function draw(n) seed = (seed * 1103515245 + 12345) % 2147483648 return floor(seed / 65536) % n end

local SHARED = { "shared" }
local KEYS = { 0, -1, 1.5, 2^40, true, false, SHARED, print, "a", "b", "__index", "__len", 1/0, ffi.new("int[1]"), coroutine.create(print) }
local META = { __index = function() return 1 end, __len = function() return 99 end, __pairs = function() error "no" end,
  __newindex = function() error "no" end, __metatable = "hidden" }
local shapes = {}
function shapes.empty() return {} end
function shapes.room() return new(draw(9), draw(9)) end
function shapes.array() local t = {} for i = 1, draw(40) do t[i] = i end return t end
function shapes.long() local t = new(200, 0) for i = 1, 60 + draw(140) do t[i] = SHARED end return t end
function shapes.zero() return { [0] = draw(2) == 0 and 1 or nil, 2, 3 } end
function shapes.holes() return { 1, nil, 3, nil, nil, draw(2) == 0 and 6 or nil } end
function shapes.fields() return { a = 1, b = SHARED, c = "c", d = draw(2) == 0 and {} or nil } end
function shapes.both() return { 1, 2, { 3 }, x = { 4 }, y = false } end
function shapes.strings() local t = {} for i = 1, draw(60) do t["k" .. draw(100)] = i end return t end
function shapes.odd() local t = {} for _ = 1, draw(9) do t[KEYS[1 + draw(#KEYS)]] = draw(3) == 0 and {} or draw(9) end return t end
function shapes.numbers() local t = {} for _ = 1, draw(20) do t[1 + draw(1000)] = draw(9) end return t end
function shapes.dead() local t = {} for i = 1, 20 do t[{}] = i t["d" .. i] = {} end
  for k in next, t do if draw(3) > 0 then t[k] = nil end end return t end
function shapes.shrunk() local t = {} for i = 1, 30 do t[i] = i end for i = 30, 1 + draw(30), -1 do t[i] = nil end return t end
function shapes.cleared() local t = { 1, 2, a = 1, b = {} } clear(t) if draw(2) == 0 then t.c = 1 end return t end
function shapes.meta() return setmetatable({ 1, a = draw(2) == 0 and 1 or nil }, META) end
function shapes.cloned() return clone(shapes.fields()) end
function shapes.negative() return { [-draw(3)] = 1, 1 } end
local names = {}
for name in pairs(shapes) do names[#names + 1] = name end
table.sort(names)

-- Each shape in a loop of its own, and all by turns; the collector at work at every depth of its round.
local function look(t, m)
  check(nkeys(t), reference.nkeys(t), m) check(isarray(t), reference.isarray(t), m) check(isempty(t), reference.isempty(t), m)
  local c = clone(t)
  check(rawequal(c, t), false, m) check(getmetatable(c), nil, m)
  check(reference.same(c, t), true, m)
  return c
end
for _, name in ipairs(names) do for _ = 1, 60 do look(shapes[name](), name) end end
for at = 1, 3000 do look(shapes[names[1 + draw(#names)]](), "turn " .. at) end

-- A copy is as good as another table: it grows, loses keys, and nothing of that is seen in the first.
for at = 1, 600 do
  local t = shapes[names[1 + draw(#names)]]()
  local was, plain = {}, {}
  for k, v in next, t do was[k] = v plain[k] = v end
  local c = clone(t)
  for _ = 1, draw(30) do
    local k, v = draw(2) == 0 and "n" .. draw(30) or draw(30), draw(4) > 0 and at or nil
    c[k] = v plain[k] = v
  end
  check(reference.same(c, plain), true, "copy " .. at) check(nkeys(c), reference.nkeys(plain)) check(isarray(c), reference.isarray(plain))
  check(reference.same(t, was), true, "first " .. at)
end

-- Stores before a call are seen by it, those after it are not: fields, elements, of tables made here, of templates, of others.
local kept, kept_array, sum = { a = 0 }, { 0, 0 }, 0
for i = 1, 400 do
  local t = {}
  t.a = i local n1 = nkeys(t) t.a = nil local n2 = nkeys(t) t.a = i local n3 = nkeys(t)
  sum = sum + n1 * 100 + n2 * 10 + n3
end
check(sum, 400 * 101, "fields")
sum = 0
for i = 1, 400 do
  local t = { 1, 2, 3 }
  t[1] = nil local n1 = nkeys(t) t[1] = i local n2 = nkeys(t) t[1] = nil local e = nkeys(t)
  sum = sum + n1 * 100 + n2 * 10 + e
end
check(sum, 400 * 232, "elements")
for i = 1, 400 do
  kept.a = i local c = clone(kept) kept.a = i + 1 local d = clone(kept)
  kept_array[2] = i local e = clone(kept_array) kept_array[2] = nil local f = clone(kept_array) kept_array[2] = 0
  if c.a ~= i or d.a ~= i + 1 or e[2] ~= i or f[2] ~= nil then error("stores " .. i) end
  c.a = 7 if kept.a ~= i + 1 or d.a ~= i + 1 then error("copies " .. i) end
end
for i = 1, 400 do
  local t = { x = 1, y = 2 }
  t.x = nil local a = isempty(t) t.y = nil local b = isempty(t) t.x = i local c = isempty(t)
  t.x = nil t[1] = 1 local d = isarray(t) t.x = 1 local e = isarray(t) t.x = nil t[0.5] = 1 local f = isarray(t)
  if a or not b or c or not d or e or f then error("whether " .. i) end
end
-- The first of two stores is needed by the call alone, which nothing else follows that could fail.
local function twice(t, v) t.v = v local n = nkeys(t) t.v = nil return n end
local function twice_array(t, v) t[1] = v local c = clone(t) t[1] = false return c end
for i = 1, 400 do
  check(twice({}, i), 1) check(twice({ v = 1, w = 2 }, i), 2)
  check(twice_array({ 5 }, i)[1], i) check(twice_array({}, i)[1], i)
end
-- Loads from before a call are not loads from the copy, and those of the first table stay.
for i = 1, 400 do
  local t = { a = i, n = { i } }
  local before = t.a
  local c = clone(t)
  t.a = before + 1 c.n2 = c.n
  if c.a ~= before or t.a ~= before + 1 or c.n ~= t.n or t.n2 ~= nil or c.n2[1] ~= i then error("loads " .. i) end
  c.n[1] = -i if t.n[1] ~= -i then error("inner " .. i) end
end

-- Tables that exist in compiled code alone until it is left.
local out
for i = 1, 500 do
  local t = { i, a = i }
  local n = nkeys(t)
  if i % 7 == 0 then t.b = n out = t end
  if i % 7 == 1 and out then check(out.b, 2) check(out[1], i - 1) check(nkeys(out), 3) end
end
for i = 1, 500 do
  local t = { a = i }
  local c = clone(t)
  if i % 5 == 0 then out = { t, c } end
  if i > 5 and out and i % 5 == 1 and #out == 2 then check(out[1].a, i - 1) check(out[2].a, i - 1) check(out[1] == out[2], false) end
end
-- Nobody looks at the result.
for i = 1, 300 do clone(kept) nkeys(kept) isarray(kept) isempty(kept) kept.a = i end
check(kept.a, 300)
-- From one round to the next.
local t = { n = 0 }
for i = 1, 500 do local c = clone(t) c.n = c.n + 1 c["k" .. i % 50] = i t = c end
check(t.n, 500) check(nkeys(t), 51)

-- Results that change: side traces, in functions that are called from loops and from each other.
local function kind(v) if isempty(v) then return "empty" end return isarray(v) and "array" or "fields" end
local counts = { empty = 0, array = 0, fields = 0 }
local list = { {}, { 1 }, { a = 1 }, { 1, 2, nil, 4 }, { 1, a = 1 }, { [0] = 1 }, { [3] = 1 } }
for i = 1, 7000 do local k = kind(list[i % 7 + 1]) counts[k] = counts[k] + 1 end
check(counts.empty, 1000) check(counts.array, 4000) check(counts.fields, 2000)
local function deep(v, level)
  if type(v) ~= "table" then return v end
  local c = clone(v)
  for k, w in next, v do c[k] = deep(w, level + 1) end
  return c
end
local source = { a = { b = { c = { 1, 2, { d = true } } } }, list = { {}, {}, { x = {} } } }
for _ = 1, 300 do
  local c = deep(source, 0)
  check(c.a.b.c[3].d, true) check(c.a.b == source.a.b, false) check(c.list[3].x == source.list[3].x, false) check(nkeys(c), 2)
end

-- A copy with the names of metamethods is a metatable like another.
for i = 1, 300 do
  local meta = clone({ __index = function(_, k) return k .. i end, __call = function() return i end })
  local o = setmetatable({}, meta)
  check(o.x, "x" .. i) check(o(), i)
  local late = setmetatable({}, clone({}))
  if late.x ~= nil then error "late" end
  getmetatable(late).__index = source
  check(late.a, source.a)
end

-- What is no table raises the same error, however hot.
local function fails(f, ...) local ok, why = pcall(f, ...) return not ok and why end
local what = { clone = clone, nkeys = nkeys, isarray = isarray, isempty = isempty }
for name, f in pairs(what) do
  local function call(v) return (f(v)) end
  for i = 1, 200 do
    local v = i % 10 == 0 and i or {}
    local why = fails(call, v)
    if i % 10 == 0 then
      check(why:match "bad argument #1 to '%a+' %(table expected, got number%)" ~= nil, true, name .. " " .. tostring(why))
    else check(why, false) end
  end
  check((fails(f) or ""):match "table expected, got no value" ~= nil, true, name)
end

-- Copies live as long as something has them, and no longer.
collectgarbage() collectgarbage()
local before = collectgarbage "count"
local ring = {}
for i = 1, 20000 do
  local c = clone(source) c.own = { i } c["s" .. i % 100] = "text " .. i
  ring[i % 64] = c
  local old = ring[(i + 1) % 64]
  if old and old.own[1] ~= i - 63 then error("ring " .. i) end
end
ring = nil
collectgarbage() collectgarbage()
check(collectgarbage "count" - before < 500, true, "memory")
