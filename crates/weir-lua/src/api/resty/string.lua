-- `resty.string`
local _, native = ...
local byte, tonumber, find = string.byte, tonumber, string.find

return {
    _VERSION = "0.17",
    to_hex = native.digest.hex,
    -- Digits only, as nginx reads numbers: -1 for anything else, and for what 63 bits don't hold.
    atoi = function(text)
        if not find(text, "^%d+$") then return -1 end
        local value = 0ULL
        for at = 1, #text do
            local digit = byte(text, at) - 48
            if value > (9223372036854775807ULL - digit) / 10 then return -1 end
            value = value * 10 + digit
        end
        return tonumber(value)
    end,
}
