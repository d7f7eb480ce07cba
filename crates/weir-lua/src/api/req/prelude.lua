-- `ngx.req.*`, compiled: lists of fields and arguments, the method, single fields. What is out of the
-- ordinary goes to the functions that raise the right errors.
local ngx = ngx
local req, list = ngx.req, ngx._lists.list
local C, out, text = ngx._fast.C, ngx._fast.out, ngx._fast.string
local type, tostring, error = type, tostring, error

req.get_headers = ngx._lists.fields_of(0)
function req.get_uri_args(most, into)
    return list(2, most, true, into)
end
req.get_query_args = req.get_uri_args

local get_method, start_time, http_version, is_internal =
    req.get_method, req.start_time, req.http_version, req.is_internal
-- Not by tail calls: an error has the place of the caller of these.
function req.get_method()
    if C.request(0, out) == 1 then return text(out.at, out.len) end
    return (get_method())
end
function req.start_time()
    if C.request(1, out) == 1 then return out.number end
    return (start_time())
end
function req.http_version()
    if C.request(2, out) == 1 then return out.number end
    return (http_version())
end
function req.is_internal()
    if C.request(3, out) == 1 then return out.number == 1 end
    return (is_internal())
end

local set_method = req._set_method
req._set_method = nil
function req.set_method(method)
    if type(method) ~= "number" then error("bad method number", 2) end
    if C.set_method(method) ~= 1 then return set_method(method) end
end

local set_header, clear_header = req.set_header, req.clear_header
local texts, write = ngx._texts, ngx._write_field
function req.set_header(name, value)
    if name == nil then error("bad 'name' argument: string expected, got nil", 2) end
    if type(name) ~= "string" then name = tostring(name) end
    if value == nil then
        if C.set_request_header(name, #name, nil, 0) == 1 then return end
    else
        value = texts(value)
        if type(value) == "string" and C.set_request_header(name, #name, value, #value) == 1 then return end
        if write(2, name, value) then return end
    end
    return set_header(name, value)
end
local add_header = req._add_header
function req._add_header(name, value)
    if name == nil then error("bad 'name' argument: string expected, got nil", 2) end
    if value == nil then error("bad 'value' argument: string or table expected, got nil", 2) end
    if type(value) == "table" and #value == 0 then error("bad 'value' argument: non-empty table expected", 2) end
    name, value = tostring(name), texts(value)
    if write(3, name, value) then return end
    return add_header(name, value)
end
function req.clear_header(name)
    if type(name) ~= "string" then name = tostring(name) end
    if C.set_request_header(name, #name, nil, 0) == 1 then return end
    return clear_header(name)
end
local add_request_header = req._add_header
package.preload["ngx.req"] = function() return { version = "0.1.33", add_header = add_request_header } end
