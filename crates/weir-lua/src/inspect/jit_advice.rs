//! What to do about code that the compiler gives up: by LuaJIT's reason, as `weir lua jit` reports it.

/// In a few words; empty where there is nothing to do.
pub(crate) fn of(reason: &str) -> &'static str {
    let row = ADVICE.iter().find(|(part, _)| reason.contains(part));
    row.map_or("", |(_, advice)| advice)
}

/// A part of the reason, the more special before the more general; and the advice.
const ADVICE: &[(&str, &str)] = &[
    ("bytecode FNEW", "make the function once, outside of the loop, and pass it what changes"),
    ("bytecode UCLO", "make closures outside of the loop, so that it closes no upvalues"),
    ("bytecode VARG", "name the parameters, or pass a table; select('#', ...) with a constant is compiled"),
    ("bytecode TSETM", "fill the table item by item instead of from a call's results"),
    ("bytecode", "move this out of the hot loop into a function of its own"),
    ("coroutine", "loops around coroutines are interpreted; make each step do more"),
    ("FastFunc pcall", "put the loop into the function that is called, not the call into the loop"),
    ("FastFunc xpcall", "put the loop into the function that is called, not the call into the loop"),
    ("FastFunc next", "iterate by ipairs, or keep the keys in a list of their own"),
    ("FastFunc pairs", "iterate by ipairs, or keep the keys in a list of their own"),
    ("FastFunc string.gsub", "ngx.re.gsub with the option \"jo\""),
    ("FastFunc string.gmatch", "ngx.re.gmatch with the option \"jo\""),
    ("FastFunc string.match", "ngx.re.match with the option \"jo\", or string.find with plain = true"),
    ("FastFunc string.find", "ngx.re.find with the option \"jo\", or plain = true"),
    ("FastFunc string.format", "numbers and strings by %d, %g and %s only; or glue by .."),
    ("FastFunc table.sort", "sort once, outside of the loop"),
    ("FastFunc unpack", "name the items: local a, b = t[1], t[2]"),
    ("FastFunc setmetatable", "give the table its metatable once, outside of the loop"),
    (
        "FastFunc tostring",
        "of tables and functions only LuaJIT's interpreter makes texts; take .. for numbers",
    ),
    ("FastFunc loadstring", "load once, outside of the loop"),
    ("FastFunc load", "load once, outside of the loop"),
    ("FastFunc debug", "not in code that runs often"),
    ("FastFunc", "call it outside of the hot loop"),
    ("C function type", "no structs by value, no varargs and no callbacks in C functions that run often"),
    ("C function", "call C by FFI, or outside of the hot loop"),
    ("inner loop in root trace", "nothing: the inner loop is compiled by itself"),
    (
        "leaving loop in root trace",
        "nothing, unless it stays: loops that end early are compiled from elsewhere",
    ),
    (
        "loop unroll limit",
        "short inner loops with changing lengths: write their few rounds out, or make them long",
    ),
    ("call unroll limit", "deep recursion: use a loop"),
    ("down-recursion", "deep recursion: use a loop"),
    ("return to lower frame", "nothing, unless it stays: the caller is compiled instead"),
    ("blacklisted", "given up for good; the reasons above it for the same place say why"),
    ("retry recording", "nothing"),
    ("bad argument type", "this call raises an error, or gets another type than it says"),
    ("JIT compilation disabled", "jit.off was called for it"),
    ("missing metamethod", "this operation raises an error"),
    ("looping index lookup", "__index refers to itself"),
    ("mixed sparse/dense", "lists from 1 on without holes, in tables of their own"),
    ("store with nil or NaN", "a key is nil or not a number"),
    ("symbol not in cache", "take functions of ffi.C once before the loop runs"),
    ("C type conversion", "convert by ffi.cast outside of the loop; no structs by value"),
    ("guard would always fail", "a value has another type than just before: one type for a variable"),
    ("persistent type instability", "a variable changes its type in the loop: one type for a variable"),
    (
        "error thrown or hook called",
        "errors are interpreted: return nil and a message where it happens often",
    ),
    ("trace too long", "split the loop's body into functions with loops of their own"),
    ("trace too deep", "fewer calls inside one another in the loop"),
    ("too many snapshots", "fewer branches in the loop: split it"),
    ("too many PHIs", "fewer local variables that change in the loop: split it"),
    ("too many spill slots", "fewer local variables that live at once: split the loop"),
    ("machine code too long", "split the loop's body"),
    ("mcode", "much code is compiled: look for code that is loaded again and again (load, loadstring)"),
    (
        "trace too short",
        "calls that are not compiled (string.gsub, io, C modules) stand close together: fewer in the loop",
    ),
    ("cannot assemble", "an operation that only the interpreter has: move it out of the hot loop"),
    ("PHI shuffling", "split the loop's body"),
    ("register", "split the loop's body"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_special_reason_comes_before_the_general_one() {
        assert!(of("NYI: bytecode FNEW  ").starts_with("make the function once"));
        assert!(of("NYI: bytecode CALLMT").starts_with("move this out"));
        assert!(of("NYI: FastFunc string.gsub").contains("ngx.re.gsub"));
        assert!(of("NYI: unsupported variant of FastFunc string.format").contains("%d"));
        assert!(of("NYI: unsupported variant of FastFunc coroutine.wrap").contains("coroutines"));
        assert!(of("NYI: C function 0x1234").contains("FFI"));
        assert_eq!(of("trace error 99"), "");
    }

    /// Every reason of LuaJIT's has a row, and none is hidden by one before it.
    #[test]
    fn every_reason_has_its_advice() {
        for reason in include_str!(concat!(env!("OUT_DIR"), "/luajit-build/src/lj_traceerr.h"))
            .lines()
            .filter_map(|line| line.strip_prefix("TREDEF(")?.split('"').nth(1))
        {
            assert!(!of(reason).is_empty(), "{reason}");
        }
        for (at, (part, _)) in ADVICE.iter().enumerate() {
            assert!(ADVICE[..at].iter().all(|(before, _)| !part.contains(before)), "{part}");
        }
    }
}
