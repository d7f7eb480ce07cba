-- `ngx.resp`
local ngx = ngx
local resp, texts = ngx.resp, ngx._texts
local tostring, error = tostring, error
resp.get_headers = ngx._lists.fields_of(1)

local add_response_header = resp._add_header
function resp._add_header(name, value)
    if value == nil then error("invalid header value", 2) end
    return add_response_header(tostring(name), texts(value))
end

local module = {
    version = "0.1.33",
    add_header = resp._add_header,
    set_status = resp._set_status,
    bypass_if_checks = resp._bypass_if_checks,
}
resp._set_status = nil
package.preload["ngx.resp"] = function() return module end
