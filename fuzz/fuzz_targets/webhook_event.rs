#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| payonce::fuzz::webhook_event(bytes));
