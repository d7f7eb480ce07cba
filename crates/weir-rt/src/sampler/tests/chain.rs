//! Walks of known chains of calls; they need the frame pointers that `.cargo/config.toml` asks for.

use super::*;

#[inline(never)]
fn called_by_outer(ns: u64) {
    burn_in_leaf(ns);
    black_box(());
}

#[inline(never)]
fn outer(ns: u64) {
    called_by_outer(ns);
    black_box(());
}

/// Whether a frame lies in the function, or within the first `size` bytes from its address.
fn is_in(frame: u64, function: usize) -> bool {
    (function as u64..function as u64 + 2048).contains(&frame)
}

/// The functions in a stack, by the first that its address could belong to.
fn has_chain(sample: &StackSample, functions: &[usize]) -> bool {
    let nearest = |frame: u64| {
        let below = functions.iter().filter(|&&f| is_in(frame, f));
        below.max().copied()
    };
    let mut found: Vec<usize> = sample.frames.iter().filter_map(|&frame| nearest(frame)).collect();
    found.dedup();
    found.windows(functions.len()).any(|window| window == functions)
}

#[test]
fn the_walk_finds_the_known_chain() {
    let attached = attach(3).expect("attaches");
    let probe = attached.probe();
    current().set(SitePlace { site: 77, route: 5 });
    current().set_request(1 << 100 | 3);
    probe.arm(SampleSource::Cpu, 99).expect("armed");
    outer(300_000_000);
    probe.arm(SampleSource::Cpu, 0).expect("disarmed");
    let samples = samples(probe);
    let chain = [
        burn_in_leaf as *const () as usize,
        called_by_outer as *const () as usize,
        outer as *const () as usize,
    ];
    let right = samples.iter().filter(|sample| has_chain(sample, &chain)).count();
    assert!(samples.len() >= 10, "{} samples", samples.len());
    // A sample in the first instructions of a function misses its caller.
    assert!(right * 10 >= samples.len() * 8, "{right} of {}", samples.len());
    for sample in &samples {
        assert_eq!((sample.source, sample.place), (SampleSource::Cpu, SitePlace { site: 77, route: 5 }));
        assert_eq!(sample.request, 1 << 100 | 3);
    }
    let weight: u64 = samples.iter().map(|sample| sample.weight_ns).sum();
    assert!((200_000_000..400_000_000).contains(&weight), "{weight} ns of 300 ms");
    assert_eq!((probe.faults(), probe.lost()), (0, 0));
}

#[test]
fn stacks_through_the_c_library_are_whole() {
    let attached = attach(0).expect("attaches");
    let probe = attached.probe();
    probe.arm(SampleSource::Wall, 997).expect("armed");
    burn_inside_sort(100_000_000);
    let sorting = samples(probe);
    burn_in_system_calls(100_000_000);
    probe.arm(SampleSource::Wall, 0).expect("disarmed");
    let calling = samples(probe);
    let share = |samples: &[StackSample], function: usize| {
        let with = |sample: &&StackSample| sample.frames.iter().any(|&frame| is_in(frame, function));
        (samples.iter().filter(with).count(), samples.len())
    };
    for (samples, function) in [
        (sorting, burn_inside_sort as *const () as usize),
        (calling, burn_in_system_calls as *const () as usize),
    ] {
        let (with, all) = share(&samples, function);
        assert!(all >= 20 && with * 10 >= all * 8, "{with} of {all}");
    }
    assert_eq!(probe.faults(), 0);
}
