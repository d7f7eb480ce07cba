-- `resty.signal`: signals by name, to any process.
local ffi = require "ffi"
local type = type

pcall(ffi.cdef, "int kill(int32_t pid, int sig);")
pcall(ffi.cdef, "char *strerror(int number);")
local C = ffi.C

-- Linux' numbers. EMT and INFO, which it does not have, are known by name all the same.
local numbers = {
    NONE = 0, HUP = 1, INT = 2, QUIT = 3, ILL = 4, TRAP = 5, ABRT = 6, BUS = 7, FPE = 8, KILL = 9, USR1 = 10, SEGV = 11, USR2 = 12,
    PIPE = 13, ALRM = 14, TERM = 15, CHLD = 17, CONT = 18, STOP = 19, TSTP = 20, TTIN = 21, TTOU = 22, URG = 23, XCPU = 24,
    XFSZ = 25, VTALRM = 26, PROF = 27, WINCH = 28, IO = 29, PWR = 30, SYS = 31, EMT = false, INFO = false,
}

local function signum(name)
    if type(name) == "number" then return name end
    local number = numbers[name]
    if number == nil then return nil, "unknown signal name" end
    if not number then error("missing C def for signal " .. name, 2) end
    return number
end

local function kill(pid, name)
    local number, why = signum(name)
    if not number then return nil, why end
    if C.kill(pid, number) == 0 then return true end
    return nil, ffi.string(C.strerror(ffi.errno()))
end

return { version = 0.04, signum = signum, kill = kill }
