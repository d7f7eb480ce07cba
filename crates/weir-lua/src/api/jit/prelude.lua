-- `jit.prngstate`
local random, type, error = ngx._jit.random, type, error

local function is_word(number) return type(number) == "number" and number >= 0 and number < 2 ^ 32 and number % 1 == 0 end

function jit.prngstate(state)
    if state == nil then return { random() } end
    local kind = type(state)
    if kind == "number" then
        state = { state }
    elseif kind ~= "table" then
        error("bad argument #1 to 'prngstate' (table expected, got " .. kind .. ")", 2)
    end
    local words = { 0, 0, 0, 0, 0, 0, 0, 0 }
    local valid = #state <= 8
    for at = 1, valid and #state or 0 do
        words[at] = state[at]
        valid = valid and is_word(state[at])
    end
    if not valid then
        error("bad argument #1 to 'prngstate' (PRNG state must be an array with up to 8 integers or an integer)", 2)
    end
    return { random(words[1], words[2], words[3], words[4], words[5], words[6], words[7], words[8]) }
end
