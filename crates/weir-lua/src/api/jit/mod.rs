//! `jit.prngstate` of OpenResty's LuaJIT: the state of the random numbers that the compiler draws.

use crate::luajit::sys;
use crate::run::function::{ApiFunction, CallDone, expect_number, function};

pub(super) const TABLE: &[ApiFunction] = &[
    // Eight numbers of 32 bits: what the state was. It is set to the arguments, if there are as many.
    function("_jit.random", 0, |l| {
        let given = if l.is_none_or_nil(8) { 0 } else { 8 };
        let mut numbers = [0; 8];
        for (number, at) in numbers.iter_mut().zip(1..=given) {
            *number = expect_number(l, at, "prngstate")? as u32;
        }
        let mut before = [0; 8];
        let after = if given == 8 { numbers.as_ptr() } else { std::ptr::null() };
        // SAFETY: both have room for eight; the state is the VM's own, which runs on this thread.
        unsafe { sys::weir_lua_random(l.raw(), before.as_mut_ptr(), after) };
        before.iter().for_each(|number| l.push_number(f64::from(*number)));
        Ok(CallDone::Results(8))
    }),
];
