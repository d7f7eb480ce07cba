//! The command line.

use std::ops::Range;
use std::path::PathBuf;

use weir_sim::cut::PlanCut;
use weir_sim::plan::Plan;

/// What some seeds draw and others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimFeature {
    /// A block `stream`.
    Stream,
    /// WebSockets.
    WebSocket,
    /// Upstream servers that speak HTTP/2.
    Grpc,
}

/// Their names on the command line.
const FEATURES: [(&str, SimFeature); 3] =
    [("stream", SimFeature::Stream), ("websocket", SimFeature::WebSocket), ("grpc", SimFeature::Grpc)];

impl SimFeature {
    fn of(word: &str) -> Result<SimFeature, String> {
        let found = FEATURES.iter().find(|(name, _)| *name == word).map(|(_, feature)| *feature);
        let names = FEATURES.map(|(name, _)| name).join(", ");
        found.ok_or_else(|| format!("{word:?} is none of {names}"))
    }

    /// Whether a plan has it.
    pub(crate) fn is_in(self, plan: &Plan) -> bool {
        match self {
            SimFeature::Stream => !plan.stream.is_empty(),
            SimFeature::Grpc => plan.framed.is_some(),
            SimFeature::WebSocket => plan.tunnels.settings.is_some(),
        }
    }
}

/// What the command line says.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    /// Which seeds are run.
    pub(crate) seeds: Range<u64>,
    /// No seed is begun after so many minutes.
    pub(crate) minutes: Option<u64>,
    /// So many at a time.
    pub(crate) jobs: usize,
    /// Of the seeds those alone that have all of these.
    pub(crate) features: Vec<SimFeature>,
    /// Each seed is run twice, and must do the same.
    pub(crate) is_twice: bool,
    /// The second time in another environment and working directory, while other programs compute.
    pub(crate) is_disturbed: bool,
    /// The first seed is made smaller.
    pub(crate) is_minimised: bool,
    /// What is taken away from each plan.
    pub(crate) cut: PlanCut,
    /// The directories of runs are kept.
    pub(crate) keeps: bool,
    /// Where an instrumented program writes what of it has run, a file for each server: see `fuzz/coverage`.
    pub(crate) profiles: Option<PathBuf>,
    /// The program that is simulated.
    pub(crate) weir: Option<PathBuf>,
    /// The library of the world.
    pub(crate) world: Option<PathBuf>,
}

pub(crate) const USAGE: &str =
    "usage: weir-sim [--seed N | --seeds FROM..TO] [--minutes N] [--jobs N] [--with FEATURE] [--twice [--disturbed]] [--keep]
                [--minimise] [--cut \"clients=0,3 ...\"] [--profiles DIRECTORY] [--weir PROGRAM] [--world LIBRARY]";

impl Arguments {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let mut arguments = Arguments {
            seeds: 0..100,
            minutes: None,
            jobs: 2,
            features: Vec::new(),
            is_twice: false,
            is_disturbed: false,
            is_minimised: false,
            cut: PlanCut::default(),
            keeps: false,
            profiles: None,
            weir: None,
            world: None,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
            match word.as_str() {
                "--seed" => {
                    let seed = number(&value()?)?;
                    arguments.seeds = seed..seed + 1;
                }
                "--seeds" => arguments.seeds = range(&value()?)?,
                "--minutes" => {
                    arguments.minutes = Some(number(&value()?)?);
                    arguments.seeds.end = u64::MAX;
                }
                "--jobs" => arguments.jobs = number(&value()?)?.clamp(1, 64) as usize,
                "--profiles" => arguments.profiles = Some(value()?.into()),
                "--weir" => arguments.weir = Some(value()?.into()),
                "--world" => arguments.world = Some(value()?.into()),
                "--with" => arguments.features.push(SimFeature::of(&value()?)?),
                "--twice" => arguments.is_twice = true,
                "--disturbed" => arguments.is_disturbed = true,
                "--minimise" => arguments.is_minimised = true,
                "--cut" => {
                    let text = value()?;
                    arguments.cut = PlanCut::parse(&text).ok_or_else(|| format!("{text:?} is no cut"))?;
                }
                "--keep" => arguments.keeps = true,
                _ => return Err(format!("{word:?} is no option")),
            }
        }
        Ok(arguments)
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

fn range(word: &str) -> Result<Range<u64>, String> {
    let (from, to) = word.split_once("..").ok_or_else(|| format!("{word:?} is not FROM..TO"))?;
    Ok(number(from)?..number(to)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read_and_others_refused() {
        let read = parse("--seeds 3..9 --twice --jobs 0 --weir a").expect("good");
        assert_eq!((read.seeds, read.is_twice, read.jobs, read.weir), (3..9, true, 1, Some("a".into())));
        assert_eq!(parse("--seed 5").expect("good").seeds, 5..6);
        assert_eq!(parse("--minutes 2").expect("good").seeds, 0..u64::MAX);
        assert_eq!(parse("--with websocket").expect("good").features, [SimFeature::WebSocket]);
        for wrong in ["--with x", "--seed", "--seed x", "--seeds 3", "--what", "a"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
