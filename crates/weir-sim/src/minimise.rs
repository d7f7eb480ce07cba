//! Makes a seed with a fault smaller: fewer clients, requests, reloads, falls, and settings as they are without a line,
//! as long as the same fault is found.

use weir_sim::cut::{PlanCut, SETTINGS};
use weir_sim::plan::Plan;

/// The smallest cut that was found of `seed`, and how many runs it took; `has_fault` runs one.
pub(crate) fn minimised(seed: u64, mut has_fault: impl FnMut(&PlanCut) -> bool) -> (PlanCut, usize) {
    let plan = Plan::new(seed);
    let mut runs = 0;
    let mut try_cut = |best: &mut PlanCut, cut: PlanCut| {
        runs += 1;
        let is_smaller = has_fault(&cut);
        if is_smaller {
            *best = cut;
        }
        is_smaller
    };
    let mut best = PlanCut::default();
    // Without clients nothing ends the simulation.
    let stream = &plan.stream;
    let of_stream = stream.sessions.len() + stream.flows.clients.len();
    let clients = plan.clients.len() + plan.http2.clients.len() + of_stream + plan.tunnels.tunnels.len();
    let downs = plan.downs.len() + stream.downs.len() + stream.flows.downs.len() + plan.tunnels.downs.len();
    let lists: [(usize, usize, PlacesOf); 3] = [
        (clients, 1, |cut| &mut cut.clients),
        (plan.reloads.len(), 0, |cut| &mut cut.reloads),
        (downs, 0, |cut| &mut cut.downs),
    ];
    for (count, least, places_of) in lists {
        fewer(count, |places| {
            if places.len() < least {
                return false;
            }
            let mut cut = best.clone();
            *places_of(&mut cut) = Some(places.to_vec());
            try_cut(&mut best, cut)
        });
    }
    for most in 1..plan.clients.iter().map(|client| client.requests.len()).max().unwrap_or(1) {
        if try_cut(&mut best.clone(), PlanCut { requests: Some(most), ..best.clone() }) {
            best.requests = Some(most);
            break;
        }
    }
    if plan.accept_faults > 0 {
        let cut = PlanCut { accepts: true, ..best.clone() };
        try_cut(&mut best, cut);
    }
    if !plan.files.is_idle() {
        let cut = PlanCut { files: true, ..best.clone() };
        try_cut(&mut best, cut);
    }
    if plan.crash.is_some() {
        let cut = PlanCut { crash: true, ..best.clone() };
        try_cut(&mut best, cut);
    }
    for place in 0..SETTINGS.len() {
        let mut cut = best.clone();
        cut.settings.push(place);
        try_cut(&mut best, cut);
    }
    (best, runs)
}

/// One of a cut's lists.
type PlacesOf = fn(&mut PlanCut) -> &mut Option<Vec<usize>>;

/// Takes parts of the places away, halves first, then smaller ones, as long as `is_enough` of what is left.
fn fewer(count: usize, mut is_enough: impl FnMut(&[usize]) -> bool) {
    let mut left: Vec<usize> = (0..count).collect();
    let mut size = count.div_ceil(2).max(1);
    while !left.is_empty() {
        let mut at = 0;
        let mut is_changed = false;
        while at < left.len() {
            let end = (at + size).min(left.len());
            let rest = [&left[..at], &left[end..]].concat();
            if is_enough(&rest) {
                left = rest;
                is_changed = true;
            } else {
                at = end;
            }
        }
        if size == 1 && !is_changed {
            return;
        }
        size = size.div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_fault_does_not_need_goes() {
        let seed = (0..)
            .find(|seed| {
                let plan = Plan::new(*seed);
                plan.clients.len() >= 30 && plan.reloads.len() == 2 && plan.accept_faults > 0
            })
            .unwrap_or(0);
        // The fault needs two clients and a reload.
        let needs = |cut: &PlanCut| {
            let has = |places: &Option<Vec<usize>>, one| places.as_ref().is_none_or(|all| all.contains(&one));
            has(&cut.clients, 7) && has(&cut.clients, 22) && has(&cut.reloads, 1)
        };
        let (cut, runs) = minimised(seed, needs);
        assert_eq!((cut.clients, cut.reloads), (Some(vec![7, 22]), Some(vec![1])));
        assert!(cut.accepts && cut.settings.len() == SETTINGS.len() && runs < 60, "{runs}");
    }

    #[test]
    fn a_client_stays_even_where_the_fault_needs_none() {
        let (cut, _) = minimised(3, |_| true);
        assert_eq!(cut.clients.map(|places| places.len()), Some(1));
    }

    #[test]
    fn a_fault_that_needs_all_keeps_all() {
        let (cut, _) = minimised(3, |cut| *cut == PlanCut::default());
        assert_eq!(cut, PlanCut::default());
    }
}
