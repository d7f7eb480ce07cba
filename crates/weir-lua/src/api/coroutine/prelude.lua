-- `coroutine.*`: scheduled by the run where scripts can wait, so that a wait inside a coroutine is one of the whole
-- script and not seen by its resumer; Lua's own functions elsewhere.
local co = ngx._co
ngx._co = nil
local create, resume, give, status = co.create, co.resume, co.give, co.status
local deep = co.deep
local C = ngx._fast.C
-- In a function of its own, which is compiled also when it is called by what is not.
local function scheduled() return C.scheduled() == 1 end
local own = coroutine
local o_create, o_resume, o_yield, o_status, o_wrap =
    own.create, own.resume, own.yield, own.status, own.wrap

-- LuaJIT resumes on C's stack, without a look at how much is left of it.
local error, type = error, type
local l_resume, l_wrap = o_resume, o_wrap
function o_resume(...)
    if deep() then return false, "C stack overflow" end
    return l_resume(...)
end
function o_wrap(f)
    if type(f) ~= "function" then return l_wrap(f) end
    local go = l_wrap(f)
    return function(...)
        if deep() then error("C stack overflow", 2) end
        return go(...)
    end
end
own._create, own._resume, own._yield, own._status, own._wrap = o_create, o_resume, o_yield, o_status, o_wrap
own.__create, own.__resume, own.__yield, own.__status, own.__wrap = o_create, o_resume, o_yield, o_status, o_wrap

function own.create(f)
    if scheduled() then return create(f) end
    return o_create(f)
end

function own.resume(...)
    if scheduled() then return resume(...) end
    return o_resume(...)
end

function own.yield(...)
    if scheduled() then return give(...) end
    return o_yield(...)
end

function own.status(thread)
    if scheduled() then return status(thread) end
    return o_status(thread)
end

local function result(ok, ...)
    if ok then return ... end
    error((...), 0)
end

function own.wrap(f)
    if not scheduled() then return o_wrap(f) end
    local thread = create(f, true)
    return function(...)
        return result(resume(thread, ...))
    end
end
