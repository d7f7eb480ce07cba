-- `ngx.print` and `ngx.say`, compiled.
local ngx = ngx
local C = ngx._fast.C
local type, select = type, select

-- One text after another is what scripts say most. In a function of its own, which is compiled also when it is called by
-- what is not, as the rest of a script is after a wait; one with `...` is interpreted there, and a call by `C` then is
-- two thousand instructions.
local function saying(other, line)
    local function say(said) return C.say(said, #said, line) == 1 end
    return function(...)
        local said = ...
        if type(said) == "string" and select("#", ...) == 1 and say(said) then return 1 end
        return other(...)
    end
end
ngx.print, ngx.say = saying(ngx.print, 0), saying(ngx.say, 1)
