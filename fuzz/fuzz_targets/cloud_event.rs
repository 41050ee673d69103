#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| payonce::fuzz::cloud_event(bytes));
