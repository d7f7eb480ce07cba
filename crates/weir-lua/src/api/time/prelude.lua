-- Times, compiled.
local ngx = ngx
local C, out, text = ngx._fast.C, ngx._fast.out, ngx._fast.string
local type = type

local parse_http_time = ngx.parse_http_time
function ngx.parse_http_time(value)
    if type(value) ~= "string" then return parse_http_time(value) end
    if C.text(10, value, #value, 0, out) == 1 then return out.number end
    return nil
end
-- Read once while a script runs without waiting, unless it asks for it again.
local glance, floor = ngx._fast.glance, math.floor
function ngx.now()
    local wall = glance.wall
    if wall ~= 0 then return wall end
    return C.now()
end
function ngx.time()
    local wall = glance.wall
    if wall ~= 0 then return floor(wall) end
    return C.seconds()
end
function ngx.update_time() C.update_time() end
for name, what in pairs { http_time = 0, cookie_time = 1 } do
    local other = ngx[name]
    ngx[name] = function(time)
        if type(time) ~= "number" then return other(time) end
        C.date(what, time, out)
        return text(out.at, out.len)
    end
end
for name, what in pairs { today = 2, localtime = 3, utctime = 4 } do
    ngx[name] = function()
        C.date(what, 0, out)
        return text(out.at, out.len)
    end
end
