//! `weir diff`: two saved averages, and whether the second is too much dearer for a build to pass.

use super::control_calls::print;
use super::help::CommandOption;
use super::options::CommandLine;
use super::selector::LocateSocket;
use crate::compare::{JoinedNode, MeasuredNode, ShownParts, SideName, SideNames, json, text};

pub(super) const CHOICES: &[CommandOption] = &[FAIL_OVER, WAIT, SAME];

/// What makes a comparison fail.
pub(super) const FAIL_OVER: CommandOption = CommandOption::new(
    "--fail-over",
    "SHARE",
    "exit with 1 if B takes more than A by at least SHARE, such as 3%, beyond doubt",
);
/// Which times are compared.
pub(super) const WAIT: CommandOption =
    CommandOption::new("--wait", "", "compare waiting times instead of running times");
/// What is one line though it has two names.
pub(super) const SAME: CommandOption = CommandOption::new(
    "--same",
    "A=B",
    "compare A's module A with B's module B; commas separate several pairs",
);

pub(super) fn run(asked: &CommandLine, _: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(2)?;
    let [a, b] = &asked.words[..] else {
        return Err("two files are needed, saved by weir trace --avg N --save FILE".to_owned());
    };
    let round = (read(a)?, read(b)?);
    let names = SideNames {
        a: SideName::new(a, round.0.requests()),
        b: SideName::new(b, round.1.requests()),
        rounds: 1,
    };
    finish(asked, &[round], &names)
}

/// Shows the comparison and judges it.
pub(super) fn finish(
    asked: &CommandLine,
    rounds: &[(MeasuredNode, MeasuredNode)],
    names: &SideNames,
) -> Result<(), String> {
    let most = asked.value(FAIL_OVER.name).map(share).transpose()?;
    let joined = JoinedNode::new(rounds, &same(asked)?);
    let shown = ShownParts::new(asked.has(WAIT.name));
    let out = if asked.has("--json") { json(&joined, names, shown) } else { text(&joined, names, shown) };
    print(out.as_bytes()).map_err(|error| error.to_string())?;
    most.map_or(Ok(()), |most| judge(&joined, shown, most))
}

/// Fails when even the lower end of the interval is more than `most` (of one) beyond A.
fn judge(joined: &JoinedNode, shown: ShownParts, most: f64) -> Result<(), String> {
    let a = joined.mean(crate::compare::ComparedSide::A, shown.time).unwrap_or(0.0);
    let estimate = joined.estimate(shown.time, joined);
    let percent = |ns: f64| ns * 100.0 / a;
    if estimate.low() > most * a {
        return Err(format!(
            "B takes {:.1}% more than A ({:.1}% at least), which is over {:.1}%",
            percent(estimate.difference),
            percent(estimate.low()),
            most * 100.0
        ));
    }
    if estimate.high() > most * a {
        eprintln!(
            "weir: whether it is over {:.1}% can't be told from so few requests: {:.1}% to {:.1}%",
            most * 100.0,
            percent(estimate.low()),
            percent(estimate.high())
        );
    }
    Ok(())
}

fn read(path: &str) -> Result<MeasuredNode, String> {
    let text = std::fs::read(path).map_err(|error| format!("\"{path}\": {error}"))?;
    let measured = MeasuredNode::parse(&text).map_err(|error| format!("\"{path}\": {error}"))?;
    if measured.requests() == 0 { Err(format!("\"{path}\" is of no request")) } else { Ok(measured) }
}

/// `3%`, or `3`: of one.
fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    let number = number.ok().filter(|number| (0.0..=1e6).contains(number));
    number.map(|number| number / 100.0).ok_or_else(|| format!("\"{text}\" is no share: 3% is"))
}

fn same(asked: &CommandLine) -> Result<Vec<(String, String)>, String> {
    let pairs = asked.value(SAME.name).unwrap_or("").split(',').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (a, b) = pair.split_once('=').ok_or_else(|| format!("\"{pair}\" are no two names: a=b are"))?;
        Ok((a.to_owned(), b.to_owned()))
    };
    pairs.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_pairs() {
        assert_eq!(
            (share("3%"), share("0.5"), share("-1").is_err(), share("x%").is_err()),
            (Ok(0.03), Ok(0.005), true, true)
        );
        let command = super::super::help::CommandHelp {
            name: "diff",
            words: "",
            about: "",
            options: CHOICES,
            asks_server: false,
            examples: &[],
        };
        let asked = |words: &[&str]| {
            CommandLine::parse(&words.iter().map(std::ffi::OsString::from).collect::<Vec<_>>(), &command)
                .expect("options")
        };
        let pairs = same(&asked(&["--same", "sub=subs,a=b"])).expect("pairs");
        assert_eq!(pairs, [("sub".to_owned(), "subs".to_owned()), ("a".to_owned(), "b".to_owned())]);
        assert!(same(&asked(&["--same", "sub"])).is_err() && same(&asked(&[])).expect("none").is_empty());
    }

    #[test]
    fn only_what_is_sure_fails() {
        use crate::compare::stats::SampleMoments;
        let of = |mean: f64, variance: f64| MeasuredNode {
            run: SampleMoments { count: 400.0, mean, variance },
            ..MeasuredNode::default()
        };
        let judged = |b: f64, variance: f64| {
            judge(
                &JoinedNode::new(&[(of(1000.0, variance), of(b, variance))], &[]),
                ShownParts::new(false),
                0.03,
            )
        };
        assert!(
            judged(1100.0, 100.0)
                .is_err_and(|text| text.starts_with("B takes 10.0% more than A (9.9% at least)"))
        );
        assert_eq!((judged(1100.0, 1e6), judged(1020.0, 1.0), judged(900.0, 1.0)), (Ok(()), Ok(()), Ok(())));
    }
}
