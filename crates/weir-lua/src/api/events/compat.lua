-- `resty.events.compat`: the functions of `resty.worker.events` over `resty.events`.
local events = require "resty.events"
local ipairs = ipairs
local module = { _VERSION = events._VERSION }
local all, ids

function module.poll() return require("weir.events").poll() end

function module.configure(options)
    all, ids = events.new(options), {}
    return all:init_worker()
end

function module.configured() return all ~= nil end
function module.run() return all:run() end

local function done(ok, why)
    if not ok then return nil, why end
    return "done"
end

function module.post(source, event, data, unique) return done(all:publish(unique or "all", source, event, data)) end
function module.post_local(source, event, data) return done(all:publish("current", source, event, data)) end

function module.register(callback, source, event, ...)
    ids[callback] = ids[callback] or {}
    for _, name in ipairs { event or "*", ... } do
        ids[callback][#ids[callback] + 1] = all:subscribe(source or "*", name, callback)
    end
end

module.register_weak = module.register

function module.unregister(callback)
    for _, id in ipairs(ids[callback] or {}) do all:unsubscribe(id) end
    ids[callback] = nil
end

return module
