-- For wrk: `wrk … -s wrk.lua URL -- DEPTH` pipelines DEPTH requests (1: none) and prints one line of figures.

local thread_count = 0

function setup(thread)
   thread_count = thread_count + 1
end

function init(args)
   local depth = tonumber(args[1]) or 1
   if depth > 1 then
      local batch = string.rep(wrk.format(), depth)
      request = function() return batch end
   end
end

function done(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format("FIGURES %d %d %d %d %d\n", summary.requests, summary.duration,
      errors.connect + errors.read + errors.write + errors.timeout + errors.status,
      latency:percentile(50), latency:percentile(99)))
end
