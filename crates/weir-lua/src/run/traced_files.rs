//! Files of functions in the trace of an error: scripts that run, which who looks into the server may read.

use weir_rt::sampler::names;

/// The trace, whose files are known from here on.
pub(crate) fn known(backtrace: String) -> String {
    let files = backtrace.lines().filter_map(|line| line.trim_start().split_once(".lua:"));
    files.for_each(|(file, _)| {
        names::number(format!("@{file}.lua").as_bytes());
    });
    backtrace
}
