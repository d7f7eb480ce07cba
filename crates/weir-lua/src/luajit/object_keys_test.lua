-- Keys that are objects, found by compiled code where the interpreter has put them and the other way round.
local ffi = require "ffi"
local function check(a, b, m) if a ~= b then error((m or "") .. ": " .. tostring(a) .. " is not " .. tostring(b), 2) end end

local held = {}
local kinds = {
  tables = function() return {} end,
  arrays = function(i) return { i, i, i } end,
  functions = function(i) return function() return i end end,
  cdata = function(i) return ffi.new("int[2]", i) end,
  coroutines = function() return coroutine.create(print) end,
  userdata = function() return newproxy(true) end,
  pointers = function(i) held[#held + 1] = function() return i end return debug.upvalueid(held[#held], 1) end,
}
local function interpreted(f) jit.off(f, true) return f end
local fill = interpreted(function(t, list) for i = 1, #list do t[list[i]] = i end end)
local find = interpreted(function(t, list) local sum = 0 for i = 1, #list do sum = sum + (t[list[i]] or 0) end return sum end)

for name, make in pairs(kinds) do
  for _, count in ipairs { 3, 60, 700 } do
    local list, wanted = {}, count * (count + 1) / 2
    for i = 1, count do list[i] = make(i) end
    local a = {}
    fill(a, list)
    for _ = 1, 4 do
      local sum = 0
      for i = 1, count do sum = sum + (a[list[i]] or 0) end
      check(sum, wanted, name .. " read")
    end
    local b = {}
    for i = 1, count do b[list[i]] = i end
    check(find(b, list), wanted, name .. " written")
    for i = 1, count do if b[list[i]] ~= i then error(name .. " " .. i) end end
    -- As constants of a function, and of a loop.
    local first, last = list[1], list[count]
    for i = 1, 100 do
      if b[first] ~= 1 or b[last] ~= count or a[first] ~= 1 or a[last] ~= count then error(name .. " constant " .. i) end
    end
    local c = {}
    for i = 1, 100 do c[first] = i c[last] = -i end
    check(interpreted(function() return c[last] end)(), -100, name)
    for i = count, 1, -1 do b[list[i]] = nil end
    check(next(b), nil, name .. " taken out")
  end
end
