-- `ngx.resp`
local ngx = ngx
local resp, texts, write, C = ngx.resp, ngx._texts, ngx._write_field, ngx._fast.C
local tostring, error, type = tostring, error, type
resp.get_headers = ngx._lists.fields_of(1)

local add_response_header = resp._add_header
function resp._add_header(name, value)
    if value == nil then error("invalid header value", 2) end
    name, value = tostring(name), texts(value)
    if write(1, name, value) then return end
    return add_response_header(name, value)
end

local set_reason, bypass = resp._set_status, resp._bypass_if_checks
function resp._set_status(status, reason)
    if type(status) == "number" and type(reason) == "string" and C.set_reason(status, reason, #reason) == 1 then return end
    return set_reason(status, reason)
end
function resp._bypass_if_checks()
    if C.bypass() == 1 then return end
    return bypass()
end


local module = {
    version = "0.1.33",
    add_header = resp._add_header,
    set_status = resp._set_status,
    bypass_if_checks = resp._bypass_if_checks,
}
resp._set_status = nil
package.preload["ngx.resp"] = function() return module end
