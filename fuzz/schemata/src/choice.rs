
/// Which mutant runs: `WEIR_MUTANT` has its number, `WEIR_MUTANT_PROGRAM` the name of the one program in which it runs, if not in all. With `WEIR_MUTANT_REACHED` the numbers of the mutants that are passed are appended to the file it names.
#[allow(unsafe_code, missing_docs, dead_code, unreachable_pub)]
pub mod weir_mutant {
    use std::fs::File;
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

    const COUNT: usize = 0;
    const RECORD: u32 = u32::MAX;
    static CHOSEN: AtomicU32 = AtomicU32::new(0);
    static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
    static FILE: OnceLock<File> = OnceLock::new();

    // Before main: the server changes its environment.
    // SAFETY: the section holds pointers to functions that the C library calls once, with three arguments this one ignores.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static READ: extern "C" fn() = read;

    extern "C" fn read() {
        let name = std::env::current_exe().ok().and_then(|path| path.file_name().map(std::ffi::OsStr::to_owned));
        if std::env::var_os("WEIR_MUTANT_PROGRAM").is_some_and(|only| Some(only) != name) {
            return;
        }
        if let Some(path) = std::env::var_os("WEIR_MUTANT_REACHED") {
            let file = File::options().append(true).create(true).open(path).expect("WEIR_MUTANT_REACHED is a file that can be written");
            CHOSEN.store(RECORD, Relaxed);
            FILE.set(file).expect("read is called once");
        } else if let Ok(number) = std::env::var("WEIR_MUTANT") {
            CHOSEN.store(number.parse().expect("WEIR_MUTANT is a number"), Relaxed);
        }
    }

    /// Whether this mutant runs.
    #[inline]
    pub fn on(number: u32) -> bool {
        let chosen = CHOSEN.load(Relaxed);
        if chosen == RECORD {
            record(number);
        }
        chosen == number
    }

    #[cold]
    fn record(number: u32) {
        if !REACHED[number as usize].swap(true, Relaxed) {
            if let Some(mut file) = FILE.get() {
                let _ = file.write_all(format!("{number}\n").as_bytes());
            }
        }
    }
}
