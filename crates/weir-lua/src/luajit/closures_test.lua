-- Functions that are made in loops, kept, called, and given values of all kinds; compiled and interpreted alike.
local function check(a, b, m) if a ~= b then error((m or "") .. ": " .. tostring(a) .. " ~= " .. tostring(b), 2) end end
-- closures of immutable locals, params, loops
local function mk(a, b) return function(c) return a + b + c end end
local s = 0
for i = 1, 2000 do s = s + mk(i, 2)(3) end
check(s, 2000*2001/2 + 5*2000, "mk")
-- kept and called later
local t = {}
for i = 1, 2000 do t[i] = mk(i, i * 0.5) end
for i = 1, 2000 do check(t[i](1), i * 1.5 + 1, "kept " .. i) end
-- strings, nil, booleans, tables, functions
local function mk2(x, y, z, w, f) return function() return x, y, z, w, f end end
for i = 1, 1000 do
  local tab, fn = { i }, function() return i end
  local x, y, z, w, f = mk2("s" .. i, nil, i % 2 == 0, tab, fn)()
  check(x, "s" .. i) check(y, nil) check(z, i % 2 == 0) check(w, tab) check(f, fn) check(f(), i)
end
-- recursive local function
for i = 1, 1000 do
  local function fact(n) if n <= 1 then return 1 end return n * fact(n - 1) end
  check(fact(i % 10 + 1), ({1,2,6,24,120,720,5040,40320,362880,3628800})[i % 10 + 1])
end
-- mutable upvalues stay shared
for i = 1, 1000 do
  local n = 0
  local function inc() n = n + 1 return n end
  local function get() return n end
  inc() inc() check(get(), 2) n = 7 check(get(), 7) check(inc(), 8)
end
-- nested: parent's upvalues, both kinds
local function outer(a)
  local count = 0
  return function(b)
    count = count + 1
    return function(c) return a, b, c, count end
  end
end
for i = 1, 1000 do
  local f = outer(i)
  local g = f("b" .. i)
  local a, b, c, n = g(3)
  check(a, i) check(b, "b" .. i) check(c, 3) check(n, 1)
  local h = f(5)
  check(select(4, g(1)), 2) check(select(2, h(1)), 5)
end
-- http_headers
local lower = string.lower
local function new()
  local mt = { normalised = {} }
  mt.__index = function(t, k) return rawget(t, mt.normalised[lower(k)]) end
  mt.__newindex = function(t, k, v)
    local n = lower(k)
    if not mt.normalised[n] then mt.normalised[n] = k rawset(t, k, v) else rawset(t, mt.normalised[n], v) end
  end
  return setmetatable({}, mt)
end
for i = 1, 3000 do
  local h = new()
  h["Content-Type"] = i h["content-type"] = i + 1 h["X-" .. i] = "v"
  check(h["CONTENT-TYPE"], i + 1) check(rawget(h, "Content-Type"), i + 1) check(h["x-" .. i], "v") check(h.none, nil)
end
-- coroutines that make closures, across yields; closures created before a loop with open upvalues
for i = 1, 500 do
  local co = coroutine.wrap(function(a)
    local fs = {}
    for j = 1, 20 do fs[j] = function() return a + j end coroutine.yield(j) end
    local sum = 0
    for j = 1, 20 do sum = sum + fs[j]() end
    return sum
  end)
  local last
  for j = 1, 21 do last = co(i) end
  check(last, 20 * i + 210)
end
local function open_before(n)
  local x = n
  local function bump() x = x + 1 return x end
  local fs = {}
  for i = 1, n do local k = i * 2 fs[i] = function() return k end bump() end
  for i = 1, n do check(fs[i](), i * 2) end
  return x
end
for i = 1, 50 do check(open_before(i * 4), i * 8) end
-- gc pressure
for i = 1, 20000 do
  local f = mk(i, 1)
  if i % 1000 == 0 then check(f(1), i + 2) end
end
-- loop var capture, goto continue, repeat until
local keep = {}
for i = 1, 300 do
  local j = i * 3
  if i % 3 == 0 then goto continue end
  keep[#keep + 1] = function() return i, j end
  ::continue::
end
local n = 0
for i = 1, 300 do if i % 3 ~= 0 then n = n + 1 local a, b = keep[n]() check(a, i) check(b, i * 3) end end
local r, m = 0, 0
repeat local q = r local f = function() return q end r = r + 1 until f() >= 500
check(r, 501)
-- pcall with error through closures
for i = 1, 500 do
  local ok, e = pcall(function(a) local b = a if b % 2 == 0 then error({ i, function() return b end }) end return b end, i)
  if i % 2 == 0 then check(ok, false) check(e[2](), i) else check(e, i) end
end
-- varargs
local function va(...) local a, b = ... return function() return a, b end end
for i = 1, 500 do local a, b = va(i, "x", 3)() check(a, i) check(b, "x") end
-- upvalue of an enclosing loop called in the same trace many times
local total = 0
for i = 1, 100 do for j = 1, 100 do local f = function(z) return i * j + z end total = total + f(1) end end
check(total, 5050 * 5050 + 10000)
