//! The trees of both sides, over one round or many, as one tree.

use super::measured::MeasuredNode;
use super::stats::{DifferenceEstimate, SampleMoments, paired, welch};

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ComparedSide {
    /// What is compared with.
    A,
    /// What is compared.
    B,
}

/// What of a node is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodeTime {
    Run,
    Wait,
}

/// A node of either side; its children are those of both.
#[derive(Clone, Debug, Default)]
pub(crate) struct JoinedNode {
    pub(crate) kind: String,
    /// The name in A, then that in B where it is another ([`JoinedNode::new`]).
    pub(crate) names: (String, String),
    /// One a round; what did not pass here in a round took no time.
    rounds: Vec<JoinedRound>,
    pub(crate) children: Vec<JoinedNode>,
}

#[derive(Clone, Copy, Debug, Default)]
struct JoinedRound {
    a: Option<[SampleMoments; 2]>,
    b: Option<[SampleMoments; 2]>,
}

impl JoinedNode {
    /// Of these rounds. `same` says which names of B correspond to which of A, `(a, b)`: they are one line.
    pub(crate) fn new(rounds: &[(MeasuredNode, MeasuredNode)], same: &[(String, String)]) -> JoinedNode {
        let mut joined =
            JoinedNode { rounds: vec![JoinedRound::default(); rounds.len()], ..JoinedNode::default() };
        for (round, (a, b)) in rounds.iter().enumerate() {
            joined.take(a, ComparedSide::A, round, same);
            joined.take(b, ComparedSide::B, round, same);
        }
        joined
    }

    /// The mean of a side in nanoseconds a request; `None` if none of its requests came here.
    pub(crate) fn mean(&self, side: ComparedSide, time: NodeTime) -> Option<f64> {
        let of = |round: &JoinedRound| match side {
            ComparedSide::A => round.a,
            ComparedSide::B => round.b,
        };
        if self.rounds.iter().all(|round| of(round).is_none()) {
            return None;
        }
        let sum: f64 = self.rounds.iter().map(|round| mean(of(round), time)).sum();
        Some(sum / self.rounds.len() as f64)
    }

    /// B's time less A's: in pairs if there are several rounds, else by Welch, for which `whole` is the request.
    pub(crate) fn estimate(&self, time: NodeTime, whole: &JoinedNode) -> DifferenceEstimate {
        match (&self.rounds[..], &whole.rounds[..]) {
            ([round], [all]) => {
                let of = |here: Option<[SampleMoments; 2]>, all: Option<[SampleMoments; 2]>| {
                    let none = SampleMoments {
                        count: all.map_or(0.0, |all| all[0].count),
                        ..SampleMoments::default()
                    };
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

    fn take(&mut self, node: &MeasuredNode, side: ComparedSide, round: usize, same: &[(String, String)]) {
        let moments = Some([node.run, node.wait]);
        match side {
            ComparedSide::A => self.rounds[round].a = moments,
            ComparedSide::B => self.rounds[round].b = moments,
        }
        let mut at = 0;
        for child in &node.children {
            at = self.child(child, side, at, same) + 1;
            self.children[at - 1].take(child, side, round, same);
        }
    }

    /// The index of the child that corresponds to `node`; a new one is inserted where `node` has it, after its elder
    /// sibling.
    fn child(
        &mut self,
        node: &MeasuredNode,
        side: ComparedSide,
        after: usize,
        same: &[(String, String)],
    ) -> usize {
        let pair = same.iter().find(|(a, b)| node.name == *if side == ComparedSide::A { a } else { b });
        let names = pair.cloned().unwrap_or_else(|| (node.name.clone(), node.name.clone()));
        let is_it = |child: &JoinedNode| child.kind == node.kind && child.names == names;
        if let Some(at) = self.children.iter().position(is_it) {
            return at;
        }
        let at = after.min(self.children.len());
        let rounds = vec![JoinedRound::default(); self.rounds.len()];
        self.children.insert(at, JoinedNode { kind: node.kind.clone(), names, rounds, children: Vec::new() });
        at
    }
}

fn mean(moments: Option<[SampleMoments; 2]>, time: NodeTime) -> f64 {
    moments.map_or(0.0, |moments| moments[time as usize].mean)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::measured::tests::tree;
    use super::*;

    pub(crate) fn sides() -> (MeasuredNode, MeasuredNode) {
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
        let joined = JoinedNode::new(&[sides()], &[]);
        let names: Vec<&str> = joined.children.iter().map(|child| child.names.0.as_str()).collect();
        assert_eq!(names, ["parse", "access", ""]);
        let access = &joined.children[1];
        assert_eq!(
            (access.mean(ComparedSide::A, NodeTime::Run), access.mean(ComparedSide::B, NodeTime::Run)),
            (None, Some(20.0))
        );
        let estimate = access.estimate(NodeTime::Run, &joined);
        assert!(estimate.difference == 20.0 && estimate.is_seen(), "{estimate:?}");
        assert_eq!(joined.children[2].children.len(), 2);
        let filter = JoinedNode::new(&[sides()], &[("sub".to_owned(), "subs".to_owned())]).children.remove(2);
        assert_eq!(filter.children[0].names, ("sub".to_owned(), "subs".to_owned()));
        assert_eq!(filter.children[0].estimate(NodeTime::Run, &joined).difference, -10.0);
    }

    #[test]
    fn what_is_missing_in_a_round_took_no_time_there() {
        let (a, b) = sides();
        let joined = JoinedNode::new(&[(a.clone(), b.clone()), (a.clone(), a)], &[]);
        let access = &joined.children[1];
        assert_eq!(access.mean(ComparedSide::B, NodeTime::Run), Some(10.0));
        let estimate = access.estimate(NodeTime::Run, &joined);
        assert!(estimate.difference == 10.0 && !estimate.is_seen(), "{estimate:?}");
    }
}
