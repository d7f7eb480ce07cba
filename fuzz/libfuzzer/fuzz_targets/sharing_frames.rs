#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::sharing::sharing_frames(data));
