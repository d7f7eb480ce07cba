//! Known mutants: `fuzz/mutants --self-test` holds that each is found and has the verdict that sample.rs says.

#![forbid(unsafe_code)]

pub mod sample;
