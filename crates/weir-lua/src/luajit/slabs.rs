//! Tests of LuaJIT's heap, of which `slabs.h` is a part, and of tables that grow in it.

use std::ffi::c_void;
use std::ptr;

use crate::luajit::sys::{self, AllocFunction, RawState};

unsafe extern "C" {
    fn weir_lua_regions(heap: *mut c_void) -> u32;
}

/// A VM without libraries, and its allocator.
fn open() -> (*mut RawState, AllocFunction, *mut c_void) {
    let mut heap = ptr::null_mut();
    // SAFETY: the VM is the test's own, which closes it.
    unsafe {
        let l = sys::luaL_newstate();
        let allocate = sys::lua_getallocf(l, &raw mut heap);
        (l, allocate, heap)
    }
}

/// A block as a test knows it: each of its bytes is `mark`.
#[derive(Clone, Copy)]
struct MarkedBlock {
    at: *mut u8,
    size: usize,
    mark: u8,
}

impl MarkedBlock {
    const NONE: MarkedBlock = MarkedBlock { at: ptr::null_mut(), size: 0, mark: 0 };

    fn check(&self, upto: usize) {
        for at in 0..self.size.min(upto) {
            // SAFETY: the block has `size` bytes.
            assert_eq!(unsafe { self.at.add(at).read() }, self.mark, "byte {at} of {}", self.size);
        }
    }

    /// Makes it one of `size` bytes, 0 for none; what it had of them must be there still.
    fn resize(&mut self, allocate: AllocFunction, heap: *mut c_void, size: usize, mark: u8) {
        self.check(usize::MAX);
        // SAFETY: the block is the heap's, and has the size that is said.
        self.at = unsafe { allocate(heap, self.at.cast(), self.size, size) }.cast();
        assert_eq!(self.at.is_null(), size == 0);
        assert_eq!(self.at.addr() % 8, 0, "{size} bytes");
        if size > 0 {
            self.check(size);
            // SAFETY: it has as many bytes.
            unsafe { self.at.write_bytes(mark, size) };
        }
        (self.size, self.mark) = (size, mark);
    }
}

#[test]
fn blocks_have_their_bytes_and_regions_go_back() {
    let (l, allocate, heap) = open();
    // SAFETY: the heap of an open VM.
    let regions = || unsafe { weir_lua_regions(heap) };
    let (before, mut most) = (regions(), 0);
    let mut blocks = [MarkedBlock::NONE; 4000];
    let mut random = 88_172_645_463_325_252_u64;
    for _ in 0..60_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let size = match random >> 60 {
            0..4 => 0,
            4..12 => random >> 20 & 0xff,
            12..15 => random >> 20 & 0x7ff,
            _ => random >> 20 & 0x3fff,
        };
        blocks[random as usize % 4000].resize(allocate, heap, size as usize, (random >> 8) as u8);
        most = regions().max(most);
    }
    assert!(most > before + 2, "{before} regions, then {most}");
    blocks.iter_mut().for_each(|block| block.resize(allocate, heap, 0, 0));
    assert!(regions() <= before + 1, "one is kept: {before} regions before, {} after", regions());
    // SAFETY: nothing uses it any more.
    unsafe { sys::lua_close(l) };
}

#[test]
fn each_size_is_a_block_of_its_own() {
    let (l, allocate, heap) = open();
    let mut blocks = [MarkedBlock::NONE; 1100];
    for round in 1..4 {
        for (size, block) in blocks.iter_mut().enumerate() {
            block.resize(allocate, heap, size, (size as u8).wrapping_mul(round));
        }
    }
    // Each becomes one of the other end's size, and goes then.
    for (size, block) in blocks.iter_mut().enumerate() {
        block.resize(allocate, heap, 1100 - size, 7);
    }
    blocks.iter_mut().for_each(|block| block.resize(allocate, heap, 0, 0));
    // SAFETY: nothing uses it any more.
    unsafe { sys::lua_close(l) };
}

/// Keys of all kinds that come one by one, some of which go again: compiled and not.
#[test]
fn tables_that_grow_have_all_their_keys() {
    let text = br#"
        for round = 1, 300 do
            if round == 150 then jit.off() end
            local t, count = {}, round % 40
            for at = 1, count do
                t["k" .. at] = at
                t[at] = -at
                t[at + 0.5] = at
                if at % 3 == 0 then t["k" .. (at - 1)] = nil end
            end
            for at = 1, count do
                local gone = at % 3 == 2 and at + 1 <= count
                assert(t["k" .. at] == (not gone and at or nil), "k" .. at)
                assert(t[at] == -at and t[at + 0.5] == at)
            end
            local seen = 0
            for key, value in pairs(t) do
                assert(t[key] == value)
                seen = seen + 1
            end
            assert(seen == 3 * count - math.floor(count / 3), seen)
        end"#;
    // SAFETY: the VM is the test's own; the text lives during the call; a function is on the stack.
    unsafe {
        let l = sys::luaL_newstate();
        sys::luaL_openlibs(l);
        assert_eq!(
            sys::luaL_loadbuffer(l, text.as_ptr().cast(), text.len(), c"=tables".as_ptr()),
            sys::status::OK
        );
        let status = sys::lua_pcall(l, 0, 0, 0);
        assert_eq!(status, sys::status::OK, "{:?}", crate::luajit::state::LuaState::new(l).bytes(-1));
        sys::lua_close(l);
    }
}
