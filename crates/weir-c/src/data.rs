//! The `void *` that a program gives with a function, to get it back when that is called.

use std::ffi::c_void;

/// What the program wants to be given. Weir does not look into it.
#[derive(Clone, Copy)]
pub(crate) struct UserData(*mut c_void);

// SAFETY: it is only handed back. The header says on which threads functions are called, and that what they share through this
// is the program's to protect.
unsafe impl Send for UserData {}
// SAFETY: the same.
unsafe impl Sync for UserData {}

impl UserData {
    pub(crate) fn new(data: *mut c_void) -> UserData {
        UserData(data)
    }

    /// The pointer. By a method, so that closures capture the whole, which may go to other threads.
    pub(crate) fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// Frees what a handler was registered with.
pub(crate) type FreeFunction = unsafe extern "C" fn(*mut c_void);

/// Data that is freed when nothing can use it any more.
pub(crate) struct OwnedData {
    data: UserData,
    free: Option<FreeFunction>,
}

impl OwnedData {
    pub(crate) fn new(data: *mut c_void, free: Option<FreeFunction>) -> OwnedData {
        OwnedData { data: UserData::new(data), free }
    }

    pub(crate) fn pointer(&self) -> *mut c_void {
        self.data.pointer()
    }
}

impl Drop for OwnedData {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: the program gave both together, and the data is not used after this.
            unsafe { free(self.data.pointer()) };
        }
    }
}
