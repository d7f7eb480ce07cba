-- `resty.core.base`: what libraries use of it besides lua-resty-core itself.
local _, native = ...
local ffi = require "ffi"
local subsystem = ngx.config.subsystem
local new, select, error, ceil = ffi.new, select, error, math.ceil
local size_of_buffer, buffer, size, message = 4096, nil, nil, nil
local bytes, pointer, cast = ffi.typeof("char[?]"), ffi.typeof("void *"), ffi.cast
local C, out = native.fast.C, native.fast.out
-- Where a worker's own scripts run: there, too, OpenResty has a request, and this represents it.
local of_worker, worker = native.fast.of_worker, cast(pointer, out)

return {
    version = "0.1.33",
    FFI_OK = 0, FFI_ERROR = -1, FFI_AGAIN = -2, FFI_BUSY = -3, FFI_DONE = -4, FFI_DECLINED = -5, FFI_ABORT = -6,
    FFI_NO_REQ_CTX = -100, FFI_BAD_CONTEXT = -101,
    new_tab = require "table.new",
    clear_tab = require "table.clear",
    -- What represents the request: no address that has anything at it.
    get_request = function()
        if C.request(4, out) ~= 1 then
            return of_worker[C.phase()] and worker or nil
        end
        local request = cast(pointer, out.at)
        return request
    end,
    allows_subsystem = function(...)
        for at = 1, select("#", ...) do
            if select(at, ...) == subsystem then return end
        end
        error("unsupported subsystem: " .. subsystem, 2)
    end,
    get_string_buf_size = function() return size_of_buffer end,
    set_string_buf_size = function(wanted)
        if wanted > 0 then size_of_buffer, buffer = ceil(wanted), nil end
    end,
    get_string_buf = function(wanted, own)
        if own or wanted > size_of_buffer then return new(bytes, wanted) end
        buffer = buffer or new(bytes, size_of_buffer)
        return buffer
    end,
    get_size_ptr = function()
        size = size or new("size_t[1]")
        return size
    end,
    get_errmsg_ptr = function()
        message = message or new("char *[1]")
        return message
    end,
    -- A number for `value`; tables keep their free numbers as a list that begins at 0.
    ref_in_table = function(table, value)
        if value == nil then return -1 end
        local at = table[0]
        if at and at ~= 0 then
            table[0] = table[at]
        else
            at = #table + 1
        end
        table[at] = value
        return at
    end,
}
