//! Scripts: where they are written, and their functions.

use std::cell::RefCell;
use std::ffi::CString;
use std::path::PathBuf;

use weir_engine::Exchange;
use weir_engine::variable::ValueScript;

use crate::luajit::state::LuaState;
use crate::luajit::sys;
use crate::vm::lua_vm::LuaVm;
use crate::vm::phase::ScriptPhase;

/// A script of the configuration.
#[derive(Clone)]
pub(crate) struct ScriptSource {
    /// `content_by_lua(nginx.conf:40)`
    pub(crate) name: String,
    /// The configuration's file, and the line there of the script's first.
    pub(crate) place: (String, usize),
    pub(crate) code: ScriptCode,
}

/// Its text, or where that is.
#[derive(Clone)]
pub(crate) enum ScriptCode {
    /// In the configuration.
    Inline(Vec<u8>),
    /// In a file, whose name may have variables; relative names begin at the prefix.
    File(ValueScript, PathBuf),
}

/// Why a script can't be loaded.
#[derive(Debug)]
pub(crate) struct LoadError {
    /// The status of the response: 404 for a file that is not there, 503 for one that can't be read, else 500.
    pub(crate) status: u16,
    /// In OpenResty's words.
    pub(crate) message: String,
}

impl From<String> for LoadError {
    fn from(message: String) -> LoadError {
        LoadError { status: 500, message }
    }
}

/// A script on one worker, loaded when it is first needed.
pub(crate) struct ScriptChunk {
    source: ScriptSource,
    /// The function's anchor; of files by their name.
    loaded: RefCell<Option<i32>>,
}

impl ScriptChunk {
    pub(crate) fn new(source: ScriptSource) -> ScriptChunk {
        ScriptChunk { source, loaded: RefCell::new(None) }
    }

    /// Pushes the function on the VM's main stack.
    ///
    /// # Errors
    /// What is wrong with the code.
    pub(crate) fn push(&self, vm: &LuaVm, x: Option<&mut Exchange>) -> Result<(), LoadError> {
        let kept = if vm.is_single() { None } else { *self.loaded.borrow() };
        if let Some(reference) = kept {
            vm.main().push_anchored(reference);
            return Ok(());
        }
        match &self.source.code {
            ScriptCode::Inline(text) => {
                load(vm.main(), text, &format!("={}", self.source.name))
                    .map_err(|error| format!("failed to load inlined Lua code: {error}"))?;
                vm.places.borrow_mut().entry(self.source.name.clone()).or_insert(self.source.place.clone());
                if vm.is_single() {
                    return Ok(());
                }
                vm.main().push_value(-1);
                *self.loaded.borrow_mut() = Some(vm.main().anchor());
                Ok(())
            }
            ScriptCode::File(script, prefix) => {
                let name = match x {
                    Some(x) => {
                        let name = script.value(x);
                        x.text(&name).to_vec()
                    }
                    None => script.constant().unwrap_or_default().to_vec(),
                };
                let path = prefix.join(String::from_utf8_lossy(&name).as_ref());
                vm.push_file(&path)
            }
        }
    }
}

/// Loads source text or bytecode; the function, which is to be called without arguments, is on the stack.
///
/// # Errors
/// Lua's message.
pub(crate) fn load(l: LuaState, text: &[u8], name: &str) -> Result<(), String> {
    let name = CString::new(name.replace('\0', "")).unwrap_or_default();
    // SAFETY: text and name live during the call, which raises nothing but returns a message.
    let status = unsafe { sys::luaL_loadbuffer(l.raw(), text.as_ptr().cast(), text.len(), name.as_ptr()) };
    if status == sys::status::OK {
        // SAFETY: the function is on top, and was not called yet.
        unsafe { sys::weir_lua_fix(l.raw()) };
        return Ok(());
    }
    let message = l.lossy(-1);
    l.pop(1);
    Err(message)
}

/// How a script that begins in this line of the configuration is named: long file names keep their end only.
pub(crate) fn name(phase: ScriptPhase, file: &str, line: usize) -> String {
    // The whole, `=label(...file:line)`, has LUA_IDSIZE bytes, the NUL included.
    let most = 56usize.saturating_sub(phase.label().len() + line.to_string().len());
    let short = match file.len() > most {
        true => format!("...{}", String::from_utf8_lossy(&file.as_bytes()[file.len() - most + 3..])),
        false => file.to_owned(),
    };
    format!("{}({short}:{line})", phase.label())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LuaJIT compiles no function with `...` as a whole, and makes every chunk one.
    #[test]
    fn a_chunk_without_dots_is_a_function_without() {
        // SAFETY: the VM is this thread's, and closed last.
        let l = unsafe {
            let l = sys::luaL_newstate();
            sys::luaL_openlibs(l);
            LuaState::new(l)
        };
        let asks = b"local chunk = ... return require('jit.util').funcinfo(chunk).isvararg, chunk()";
        for (text, dots, value) in [("local a = 1\nreturn a + 1", false, 2.0), ("return 3, ...", true, 3.0)] {
            load(l, asks, "=asks").expect("it is Lua");
            load(l, text.as_bytes(), "=chunk").expect("it is Lua");
            // SAFETY: a function and its argument are on the stack.
            assert_eq!(unsafe { sys::lua_pcall(l.raw(), 1, 2, 0) }, sys::status::OK);
            assert_eq!((l.boolean(-2), l.number(-1)), (dots, Some(value)), "{text}");
            l.pop(2);
        }
        // SAFETY: nothing uses it any more.
        unsafe { sys::lua_close(l.raw()) }
    }
}
