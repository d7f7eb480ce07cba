-- `weir lua`: a program in the place of a server. What scripts say goes to standard output, `ngx.exit` ends the process.
local cli = (select(2, ...)).cli
-- Raises in a server, where nothing of this may happen.
local file, codes, modules, args, interactive, resty = cli.program()
local ngx, arg_count, tostring, xpcall = ngx, select, tostring, xpcall
local stdout, stderr, exit = io.stdout, io.stderr, os.exit
local traceback, loadstring, loadfile, unpack = debug.traceback, loadstring, loadfile, unpack

local function say(...)
    stdout:write(cli.text(...), "\n")
    return 1
end

local function show(...)
    local texts = {}
    for at = 1, arg_count("#", ...) do
        texts[at] = tostring((arg_count(at, ...)))
    end
    stdout:write(table.concat(texts, "\t"), "\n")
end

-- The globals are not shared, and output has a place to go to.
local function prepare()
    setmetatable(_G, nil)
    print, ngx.say = resty and say or show, say
    ngx.print = function(...)
        stdout:write(cli.text(...))
        return 1
    end
    ngx.flush = function()
        stdout:flush()
        return 1
    end
    ngx.eof, ngx.send_headers = ngx.flush, ngx.flush
    ngx.exit = function(status)
        exit(status)
    end
end

local function told(message)
    return traceback(tostring(message), 2)
end

-- Runs a chunk; false when it failed, which is reported.
local function run(chunk, why, ...)
    local ok, message = chunk, why
    if chunk then
        local args = { ... }
        ok, message = xpcall(function()
            return chunk(unpack(args))
        end, told)
    end
    stdout:flush()
    if not ok then stderr:write("ERROR: ", message, "\n") end
    return ok
end

local function finish(ok, ...)
    if not ok then
        stderr:write((...), "\n")
    elseif arg_count("#", ...) > 0 then
        show(...)
    end
    stdout:flush()
end

-- Reads a chunk, which may have several lines: `nil` at the end of the input.
local function read()
    local text = cli.line("> ")
    if not text then return end
    text = text:gsub("^=", "return ")
    local chunk = loadstring("return " .. text, "=stdin")
    if chunk then return chunk end
    local why
    chunk, why = loadstring(text, "=stdin")
    while not chunk and why:find("'<eof>'", 1, true) do
        local more = cli.line(">> ")
        if not more then break end
        text = text .. "\n" .. more
        chunk, why = loadstring(text, "=stdin")
    end
    return chunk or function() error(why, 0) end
end

local function converse()
    for chunk in read do
        finish(xpcall(chunk, told))
    end
    stdout:write("\n")
end

local function main()
    prepare()
    arg = args
    arg[0] = file
    local ok = true
    for _, name in ipairs(modules) do
        ok = ok and run(function() _G[name] = require(name) end)
    end
    for _, code in ipairs(codes) do
        local chunk, why = loadstring(code, "=(command line -e)")
        ok = ok and run(chunk, why, unpack(args))
    end
    if ok and file then
        local chunk, why = loadfile(file ~= "-" and file or nil)
        ok = run(chunk, why, unpack(args))
    end
    if ok and interactive then converse() end
    cli.done(ok and 0 or 1)
end

return { start = function() assert(ngx.timer.at(0, main)) end }
