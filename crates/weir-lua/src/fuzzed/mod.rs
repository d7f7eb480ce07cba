//! Parsers as functions of any bytes, for `fuzz/`: each asserts what its callers rely on. Not part of the crate's API.

use std::cell::OnceCell;
use std::rc::Rc;

use crate::api::json::{self, DEPTH, JsonEncoder, SparseArrays};
use crate::hooks::wiring::WIRING;
use crate::vm::lua_vm::LuaVm;
use crate::vm::settings::VmSettings;

thread_local! {
    /// One for all inputs: starting it costs more than reading them.
    static STATE: OnceCell<Rc<LuaVm>> = const { OnceCell::new() };
}

/// Has the `number`th allocation of a VM with `lua_memory_limit` fail, as if the limit was reached; 0 none.
pub fn fail_allocation(number: u64) {
    crate::vm::limit::memory::inject(number);
}

/// How many allocations [`fail_allocation`] still waits for.
pub fn allocations_left() -> u64 {
    crate::vm::limit::memory::injected()
}

/// `cjson.decode`: a value or a message, a stack as it should be; and what is written of the value is read again as the
/// same text.
pub fn cjson(data: &[u8]) {
    STATE.with(|vm| {
        let l = vm
            .get_or_init(|| {
                LuaVm::start(VmSettings::default(), Default::default(), WIRING).expect("memory for a VM")
            })
            .main();
        let top = l.top();
        let sparse = SparseArrays { convert: true, ratio: 2.0, safe: 10.0 };
        let encoder = JsonEncoder {
            depth: DEPTH,
            precision: 17,
            sparse,
            empty_as_object: true,
            keeps_slash: false,
            invalid_as_null: true,
        };
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        if json::decode(l, data, 100, true).is_ok() {
            assert_eq!(l.top(), top + 1);
            if encoder.value(l, -1, 0, &mut once).is_ok() {
                l.set_top(top);
                json::decode(l, &once, 100, true).expect("what was written");
                encoder.value(l, -1, 0, &mut twice).expect("what was read");
                assert_eq!(once.len(), twice.len());
            }
        } else {
            assert_eq!(l.top(), top);
        }
        l.set_top(top);
    });
}
