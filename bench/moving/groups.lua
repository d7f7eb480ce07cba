-- Each request names one of the groups that are asked.
local asked = tonumber(os.getenv("GROUPS_ASKED"))
request = function()
    wrk.headers["X-Group"] = "g" .. math.random(0, asked - 1)
    return wrk.format("GET", "/")
end
done = function(summary, latency)
    local errors = summary.errors
    io.write(string.format("figures %d %d %d %d %d\n", summary.requests, errors.status,
        errors.connect + errors.read + errors.write + errors.timeout, latency:percentile(50), latency:percentile(99)))
end
