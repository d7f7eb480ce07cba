//! Tests of `table.clone` and others in compiled code (`tables.h`, `table_calls.h`).

use super::closures::run;

/// With the collector as it is, and at work all the time.
#[test]
fn tables_are_counted_and_copied_alike_however_the_calls_are_made() {
    let program = include_str!("table_calls_test.lua");
    for options in [
        "jit.off()",
        "jit.on()",
        "jit.opt.start('hotloop=2', 'hotexit=2')",
        "jit.opt.start(0, 'hotloop=3')",
        "jit.opt.start('-fwd', '-dse', 'hotloop=5')",
        "jit.opt.start('-sink', 'hotloop=3', 'hotexit=1')",
        "jit.opt.start('-loop', 'hotloop=3')",
    ] {
        for collector in ["", "collectgarbage('setpause', 0) collectgarbage('setstepmul', 200)"] {
            run(&format!("{options} {collector}\n{program}"));
        }
    }
}

/// Where a key is that is an object is computed in two places: LuaJIT's lj_tab.c and the machine code that it writes.
#[test]
fn keys_that_are_objects_are_found_however_the_code_runs() {
    let program = include_str!("object_keys_test.lua");
    for options in
        ["jit.off()", "jit.on()", "jit.opt.start('hotloop=2', 'hotexit=2')", "jit.opt.start(0, 'hotloop=3')"]
    {
        run(&format!("{options}\n{program}"));
    }
}

/// As compiled code calls them: no trace leaves for the interpreter, nor is one given up.
#[test]
fn calls_stay_in_compiled_code() {
    run("
        local clone, nkeys, isarray = require 'table.clone', require 'table.nkeys', require 'table.isarray'
        local isempty, clear = require 'table.isempty', require 'table.clear'
        local util = require 'jit.util'
        local loops, wrong = 0, {}
        jit.attach(function(what, trace, func, pc, why, info)
            if what == 'abort' then wrong[#wrong + 1] = tostring(why) .. ' ' .. tostring(info) end
            if what == 'stop' then
                local link = util.traceinfo(trace).linktype
                if link == 'loop' then loops = loops + 1 else wrong[#wrong + 1] = link end
            end
        end, 'trace')
        local t, sum = { 1, 2, a = { 3 } }, 0
        local function count(from) for i = from, from + 300 do sum = sum + nkeys(t) + nkeys(clone(t)) end end
        local function ask(from) for i = from, from + 300 do if isarray(t) or isempty(t) then sum = 0 end clear(clone(t)) end end
        count(1) ask(1)
        jit.attach(function() end)
        assert(sum == 301 * 6, sum)
        assert(loops == 2 and #wrong == 0, loops .. ' loops; ' .. table.concat(wrong, ', '))");
}
