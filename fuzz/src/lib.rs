//! Fuzz targets of every parser: functions that take any bytes and must neither panic nor break what they assert.
//!
//! [`TARGETS`] is the one list of them. The binary of this crate runs it for a bounded number of inputs on stable
//! Rust; `libfuzzer/` hands the same functions to libFuzzer. README.md says how to use both.
#![forbid(unsafe_code)]

pub mod cache;
pub mod conf;
pub mod dns;
pub mod h1;
pub mod h2;
pub mod h3;
pub mod http;
pub mod modules;
pub mod mutate;
pub mod see;
pub mod sharing;
mod targets;
pub mod tls;

pub use targets::TARGETS;

/// A function under test and the material its inputs are made of.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name on the command line and in `libfuzzer/fuzz_targets`.
    pub name: &'static str,
    /// Panics when something is wrong.
    pub run: fn(&[u8]),
    /// Inputs to start from; each alone must pass.
    pub seeds: &'static [&'static [u8]],
    /// Words of the grammar, for the mutator to put in.
    pub tokens: &'static [&'static [u8]],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds_that_pass_and_a_libfuzzer_file() {
        let manifest = include_str!("../libfuzzer/Cargo.toml");
        for target in TARGETS {
            assert!(!target.seeds.is_empty(), "{}", target.name);
            target.seeds.iter().for_each(|seed| (target.run)(seed));
            assert!(
                manifest.contains(&format!("path = \"fuzz_targets/{}.rs\"", target.name)),
                "{}",
                target.name
            );
        }
        assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
    }

    #[test]
    fn the_empty_input_passes_everywhere() {
        TARGETS.iter().for_each(|target| (target.run)(b""));
    }
}
