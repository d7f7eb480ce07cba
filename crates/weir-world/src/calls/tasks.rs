//! Threads: their beginning and end, and how they wait for each other.

use std::ffi::c_void;
use std::sync::OnceLock;

use crate::kernel::{self, returned};
use crate::thread_state::{ThreadWait, Woken};
use crate::threads::{self, is_simulated};

use super::{clock, files, machine, sockets, waits};

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create =
    unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> i32;
type Join = unsafe extern "C" fn(libc::pthread_t, *mut *mut c_void) -> i32;

/// The C library's own function of a name that is ours.
fn real(name: &std::ffi::CStr) -> *mut c_void {
    // SAFETY: a text that ends with a NUL; the handle means "the next one".
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        kernel::exit(74);
    }
    found
}

/// What a new thread begins with.
struct Beginning {
    number: usize,
    start: Start,
    argument: *mut c_void,
}

/// pthread_create(3).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> i32 {
    // SAFETY: the function of this name has this type.
    let create: Create = unsafe { std::mem::transmute(real(c"pthread_create")) };
    if !is_simulated() {
        // SAFETY: by the caller's word.
        return unsafe { create(thread, attributes, start, argument) };
    }
    let number = threads::register();
    let beginning = Box::into_raw(Box::new(Beginning { number, start, argument }));
    // SAFETY: by the caller's word.
    let roomy = unsafe { with_room(attributes) };
    let attributes = roomy.as_ref().map_or(attributes, std::ptr::from_ref);
    // SAFETY: by the caller's word; the new thread takes the box.
    let result = unsafe { create(thread, attributes, run, beginning.cast()) };
    if result != 0 {
        // SAFETY: no thread has taken it.
        drop(unsafe { Box::from_raw(beginning) });
        return result;
    }
    // SAFETY: written by the successful call above.
    let handle = unsafe { thread.read() };
    threads::with(|simulation| {
        if let Some(thread) = simulation.threads.get_mut(number) {
            thread.handle = handle;
        }
    });
    threads::maybe_pause();
    0
}

/// `attributes` with a larger stack, where they have a small one: whichever thread waits does the work of clients and servers,
/// TLS among it.
///
/// # Safety
/// They are null or attributes of a thread.
unsafe fn with_room(attributes: *const libc::pthread_attr_t) -> Option<libc::pthread_attr_t> {
    // SAFETY: by the caller's word; the copy is used as long as they are.
    let mut copy = unsafe { attributes.as_ref().map(|it| std::ptr::read(it)) }?;
    let mut bytes = 0;
    // SAFETY: attributes, and a place for the number.
    unsafe { libc::pthread_attr_getstacksize(&raw const copy, &raw mut bytes) };
    if bytes >= STACK {
        return None;
    }
    // SAFETY: attributes that are our own.
    (unsafe { libc::pthread_attr_setstacksize(&raw mut copy, STACK) } == 0).then_some(copy)
}

/// Bytes of stack that a thread has at least.
const STACK: usize = 1 << 20;

extern "C" fn run(beginning: *mut c_void) -> *mut c_void {
    // SAFETY: made by `pthread_create`, for this thread alone.
    let beginning = unsafe { Box::from_raw(beginning.cast::<Beginning>()) };
    threads::begin_thread(beginning.number);
    end_with_thread(ROUNDS);
    (beginning.start)(beginning.argument)
}

/// Destructors of a thread's values are called in so many rounds: the baton is handed on in the last one.
const ROUNDS: usize = 4;

/// Has [`ending`] called when the thread's values are dropped, which is after its last line.
fn end_with_thread(rounds: usize) {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    let key = *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: a place for the key, and a function of the type that is wanted.
        unsafe { libc::pthread_key_create(&raw mut key, Some(ending)) };
        key
    });
    // SAFETY: the key exists; the value is a number, which nothing follows.
    unsafe { libc::pthread_setspecific(key, rounds as *const c_void) };
}

unsafe extern "C" fn ending(rounds: *mut c_void) {
    match rounds as usize {
        0 | 1 => threads::end_thread(),
        rounds => end_with_thread(rounds - 1),
    }
}

/// pthread_join(3).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(thread: libc::pthread_t, value: *mut *mut c_void) -> i32 {
    // SAFETY: the function of this name has this type.
    let join: Join = unsafe { std::mem::transmute(real(c"pthread_join")) };
    if is_simulated() {
        // A handle is used again when its thread has been joined: the last one that had it is meant.
        let number = threads::with(|s| s.threads.iter().rposition(|one| one.handle == thread));
        if let Some(number) = number {
            threads::wait(ThreadWait::End(number), None);
        }
    }
    // SAFETY: by the caller's word.
    unsafe { join(thread, value) }
}

/// sched_yield(2).
#[unsafe(no_mangle)]
pub extern "C" fn sched_yield() -> i32 {
    if is_simulated() {
        threads::wait(ThreadWait::Nothing, None);
    }
    0
}

/// syscall(2): what goes by it in the runtime and in the standard library.
///
/// # Safety
/// That of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: libc::c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> libc::c_long {
    let all = [a, b, c, d, e, f];
    if !is_simulated() {
        // SAFETY: by the caller's word.
        return returned(unsafe { kernel::call(number, all) }) as libc::c_long;
    }
    // SAFETY: all of these by the caller's word; the arguments are the functions' own.
    unsafe {
        match number {
            libc::SYS_futex => futex(all),
            libc::SYS_gettid => machine::thread().into(),
            libc::SYS_clock_gettime => clock::clock_gettime(a as i32, b as *mut _).into(),
            libc::SYS_getrandom => clock::getrandom(a as *mut u8, b, c as u32) as libc::c_long,
            libc::SYS_epoll_pwait => waits::epoll_wait(a as i32, b as *mut _, c as i32, d as i32).into(),
            libc::SYS_openat => files::opened(a as i32, b as *const _, c as i32, d as u32).into(),
            libc::SYS_recvfrom => sockets::recv(a as i32, b as *mut _, c, d as i32) as libc::c_long,
            // Which pages of files are in memory is the machine's: as far as is said, all are.
            libc::SYS_io_uring_setup | SYS_CACHESTAT => {
                kernel::set_errno(libc::ENOSYS);
                -1
            }
            libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => {
                let (process, thread) = (machine::process_of(a as i32), machine::thread_of(b as i32));
                let all = [process as usize, thread as usize, c, d, e, f];
                returned(kernel::call(number, all)) as libc::c_long
            }
            _ => returned(kernel::call(number, all)) as libc::c_long,
        }
    }
}

/// cachestat(2), the same on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

/// futex(2), of threads of this process.
///
/// # Safety
/// The first argument is the address of a word that is alive.
unsafe fn futex(a: [usize; 6]) -> libc::c_long {
    let [address, operation, value, timeout, ..] = a;
    let kind = operation as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    match kind {
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
            let woken = threads::with(|simulation| simulation.wake(address, value));
            if woken > 0 {
                threads::maybe_pause();
            }
            woken as libc::c_long
        }
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
            // SAFETY: by the caller's word; others that write it have not got the baton.
            if unsafe { (address as *const u32).read_volatile() } != value as u32 {
                kernel::set_errno(libc::EAGAIN);
                return -1;
            }
            let clock = match operation as i32 & libc::FUTEX_CLOCK_REALTIME {
                0 => libc::CLOCK_MONOTONIC,
                _ => libc::CLOCK_REALTIME,
            };
            // SAFETY: by the caller's word: null, or a time.
            let deadline = unsafe { (timeout as *const libc::timespec).as_ref() }.map(|time| {
                let ns = clock::nanoseconds(time);
                match kind {
                    libc::FUTEX_WAIT => threads::with(|simulation| simulation.now + ns),
                    _ => clock::simulated(clock, ns),
                }
            });
            match threads::wait(ThreadWait::Futex(address), deadline) {
                Woken::ByEvent => 0,
                Woken::ByTime => {
                    kernel::set_errno(libc::ETIMEDOUT);
                    -1
                }
            }
        }
        // SAFETY: by the caller's word.
        _ => returned(unsafe { kernel::call(libc::SYS_futex, a) }) as libc::c_long,
    }
}
