#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::h3::h3_streams(data));
