#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_modules::fuzzed::log_line(data));
