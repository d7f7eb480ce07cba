//! The trees of both sides, over one round or many, as one tree.

use super::measured::Measured;
use super::stats::{Estimate, Moments, paired, welch};

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// What is compared with.
    A,
    /// What is compared.
    B,
}

/// What of a node is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Time {
    Run,
    Wait,
}

/// A node of either side; its children are those of both.
#[derive(Clone, Debug, Default)]
pub(crate) struct Joined {
    pub(crate) kind: String,
    /// The name in A, then that in B where it is another ([`Joined::new`]).
    pub(crate) names: (String, String),
    /// One a round; what did not pass here in a round took no time.
    rounds: Vec<Round>,
    pub(crate) children: Vec<Joined>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Round {
    a: Option<[Moments; 2]>,
    b: Option<[Moments; 2]>,
}

impl Joined {
    /// Of these rounds. `same` says which names of B stand for which of A, `(a, b)`: they are one line.
    pub(crate) fn new(rounds: &[(Measured, Measured)], same: &[(String, String)]) -> Joined {
        let mut joined = Joined { rounds: vec![Round::default(); rounds.len()], ..Joined::default() };
        for (round, (a, b)) in rounds.iter().enumerate() {
            joined.take(a, Side::A, round, same);
            joined.take(b, Side::B, round, same);
        }
        joined
    }

    /// The mean of a side in nanoseconds a request; `None` if none of its requests came here.
    pub(crate) fn mean(&self, side: Side, time: Time) -> Option<f64> {
        let of = |round: &Round| match side {
            Side::A => round.a,
            Side::B => round.b,
        };
        if self.rounds.iter().all(|round| of(round).is_none()) {
            return None;
        }
        let sum: f64 = self.rounds.iter().map(|round| mean(of(round), time)).sum();
        Some(sum / self.rounds.len() as f64)
    }

    /// B's time less A's: in pairs if there are several rounds, else by Welch, for which `whole` is the request.
    pub(crate) fn estimate(&self, time: Time, whole: &Joined) -> Estimate {
        match (&self.rounds[..], &whole.rounds[..]) {
            ([round], [all]) => {
                let of = |here: Option<[Moments; 2]>, all: Option<[Moments; 2]>| {
                    let none = Moments { count: all.map_or(0.0, |all| all[0].count), ..Moments::default() };
                    here.map_or(none, |here| here[time as usize])
                };
                welch(of(round.a, all.a), of(round.b, all.b))
            }
            (rounds, _) => {
                let differences: Vec<f64> =
                    rounds.iter().map(|round| mean(round.b, time) - mean(round.a, time)).collect();
                paired(&differences)
            }
        }
    }

    fn take(&mut self, node: &Measured, side: Side, round: usize, same: &[(String, String)]) {
        let moments = Some([node.run, node.wait]);
        match side {
            Side::A => self.rounds[round].a = moments,
            Side::B => self.rounds[round].b = moments,
        }
        let mut at = 0;
        for child in &node.children {
            at = self.child(child, side, at, same) + 1;
            self.children[at - 1].take(child, side, round, same);
        }
    }

    /// The number of the child that stands for `node`; a new one comes where `node` has it, behind its elder sibling.
    fn child(&mut self, node: &Measured, side: Side, behind: usize, same: &[(String, String)]) -> usize {
        let pair = same.iter().find(|(a, b)| node.name == *if side == Side::A { a } else { b });
        let names = pair.cloned().unwrap_or_else(|| (node.name.clone(), node.name.clone()));
        let is_it = |child: &Joined| child.kind == node.kind && child.names == names;
        if let Some(at) = self.children.iter().position(is_it) {
            return at;
        }
        let at = behind.min(self.children.len());
        let rounds = vec![Round::default(); self.rounds.len()];
        self.children.insert(at, Joined { kind: node.kind.clone(), names, rounds, children: Vec::new() });
        at
    }
}

fn mean(moments: Option<[Moments; 2]>, time: Time) -> f64 {
    moments.map_or(0.0, |moments| moments[time as usize].mean)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::measured::tests::tree;
    use super::*;

    pub(crate) fn sides() -> (Measured, Measured) {
        let filters = |name: &str, mean: f64| {
            tree("body_filter", "", mean + 10.0, vec![tree("body_filter", name, mean, vec![])])
        };
        let parse = || tree("connection", "parse", 5.0, vec![]);
        let access = tree("phase", "access", 20.0, vec![]);
        (
            tree("request", "", 100.0, vec![parse(), filters("sub", 40.0)]),
            tree("request", "", 110.0, vec![parse(), access, filters("subs", 30.0)]),
        )
    }

    #[test]
    fn nodes_of_either_side_stand_in_order() {
        let joined = Joined::new(&[sides()], &[]);
        let names: Vec<&str> = joined.children.iter().map(|child| child.names.0.as_str()).collect();
        assert_eq!(names, ["parse", "access", ""]);
        let access = &joined.children[1];
        assert_eq!((access.mean(Side::A, Time::Run), access.mean(Side::B, Time::Run)), (None, Some(20.0)));
        let estimate = access.estimate(Time::Run, &joined);
        assert!(estimate.difference == 20.0 && estimate.is_seen(), "{estimate:?}");
        assert_eq!(joined.children[2].children.len(), 2);
        let filter = Joined::new(&[sides()], &[("sub".to_owned(), "subs".to_owned())]).children.remove(2);
        assert_eq!(filter.children[0].names, ("sub".to_owned(), "subs".to_owned()));
        assert_eq!(filter.children[0].estimate(Time::Run, &joined).difference, -10.0);
    }

    #[test]
    fn what_is_missing_in_a_round_took_no_time_there() {
        let (a, b) = sides();
        let joined = Joined::new(&[(a.clone(), b.clone()), (a.clone(), a)], &[]);
        let access = &joined.children[1];
        assert_eq!(access.mean(Side::B, Time::Run), Some(10.0));
        let estimate = access.estimate(Time::Run, &joined);
        assert!(estimate.difference == 10.0 && !estimate.is_seen(), "{estimate:?}");
    }
}
