//! The CPUs of `worker_cpu_affinity auto`, in the order in which workers get them.
//!
//! First one thread of each core, node by node: workers of neighbouring numbers have their memory in common, and no two
//! share a core while another core is free. Then the second threads of the cores, in the same order, and so on. Numbers
//! say neither: firmware numbers CPUs of two sockets in turn (0, 2, 4 … and 1, 3, 5 …), or all siblings after all cores.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Which CPUs belong together, as the kernel says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTopology {
    /// The CPUs of each NUMA node, in the order of their numbers.
    pub(super) nodes: Vec<Vec<usize>>,
    /// The CPUs of each core that has several.
    pub(super) cores: Vec<Vec<usize>>,
}

impl CpuTopology {
    /// Reads what `/sys/devices/system` (`root`) says of these CPUs. What cannot be read (a container without it, a kernel
    /// without NUMA) is absent: then the numbers are the order.
    pub(super) fn read(root: &Path, cpus: &[usize]) -> CpuTopology {
        let list = |path: &str| parse_list(&fs::read_to_string(root.join(path)).unwrap_or_default());
        let nodes = list("node/online").into_iter().map(|node| list(&format!("node/node{node}/cpulist")));
        let siblings = cpus.iter().map(|cpu| list(&format!("cpu/cpu{cpu}/topology/thread_siblings_list")));
        let cores: BTreeSet<Vec<usize>> = siblings.filter(|core| core.len() > 1).collect();
        CpuTopology { nodes: nodes.collect(), cores: cores.into_iter().collect() }
    }

    /// Those of `allowed` in the order in which workers get them. A sibling that is not allowed does not count: the first
    /// allowed thread of a core is its first.
    pub(super) fn order(&self, allowed: &[usize]) -> Vec<usize> {
        let allowed: BTreeSet<usize> = allowed.iter().copied().collect();
        let mut order: Vec<usize> = allowed.iter().copied().collect();
        order.sort_by_key(|cpu| (self.rank(*cpu, &allowed), self.node(*cpu), *cpu));
        order
    }

    /// How many allowed threads of the same core come before.
    fn rank(&self, cpu: usize, allowed: &BTreeSet<usize>) -> usize {
        let core = self.cores.iter().find(|core| core.contains(&cpu));
        core.map_or(0, |core| core.iter().filter(|other| **other < cpu && allowed.contains(other)).count())
    }

    /// The place of its node; CPUs of no node come last.
    fn node(&self, cpu: usize) -> usize {
        self.nodes.iter().position(|node| node.contains(&cpu)).unwrap_or(usize::MAX)
    }
}

/// The kernel's way to write sets: `0-3,8,10-11`. What is not written so is left out.
fn parse_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let [first, last] = [first, last].map(|number| number.trim().parse::<usize>().ok());
        Some(first?..=last?.min(MOST_CPU))
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// No kernel has so many (CONFIG_NR_CPUS is 8,192 at most): a wrong file does not fill the memory.
const MOST_CPU: usize = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(nodes: &[&str], cores: &[&str]) -> CpuTopology {
        let lists = |texts: &[&str]| texts.iter().map(|text| parse_list(text)).collect();
        CpuTopology { nodes: lists(nodes), cores: lists(cores) }
    }

    #[test]
    fn sets_are_written_as_the_kernel_does() {
        assert_eq!(parse_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!((parse_list("\n"), parse_list("x,1-y,2")), (vec![], vec![2]));
        assert!(parse_list("0-18446744073709551615").len() <= MOST_CPU + 1);
    }

    #[test]
    fn on_one_node_the_numbers_are_the_order() {
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(topology(&["0-7"], &[]).order(&all), all);
        assert_eq!(CpuTopology::default().order(&[3, 1, 2, 1]), [1, 2, 3]);
    }

    #[test]
    fn a_node_is_filled_before_the_next_though_numbers_alternate() {
        let two = topology(&["0,2,4,6", "1,3,5,7"], &[]);
        assert_eq!(two.order(&(0..8).collect::<Vec<_>>()), [0, 2, 4, 6, 1, 3, 5, 7]);
    }

    #[test]
    fn siblings_come_after_all_cores_of_all_nodes() {
        // As two sockets of two cores with two threads each are numbered by most firmware.
        let two = topology(&["0,2,4,6", "1,3,5,7"], &["0,4", "1,5", "2,6", "3,7"]);
        assert_eq!(two.order(&(0..8).collect::<Vec<_>>()), [0, 2, 1, 3, 4, 6, 5, 7]);
        // And as virtual machines do it.
        let adjacent = topology(&["0-7"], &["0-1", "2-3", "4-5", "6-7"]);
        assert_eq!(adjacent.order(&(0..8).collect::<Vec<_>>()), [0, 2, 4, 6, 1, 3, 5, 7]);
    }

    #[test]
    fn only_allowed_cpus_count() {
        let two = topology(&["0,2,4,6", "1,3,5,7"], &["0,4", "1,5", "2,6", "3,7"]);
        // A cpuset of the second node's cores with one sibling whose core is not in it.
        assert_eq!(two.order(&[7, 5, 1, 4]), [4, 1, 7, 5]);
        assert_eq!(two.order(&[]), Vec::<usize>::new());
    }

    #[test]
    fn the_kernel_s_files_are_read() {
        let top = std::env::temp_dir().join(format!("weir-cpus-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = top.join(path);
            fs::create_dir_all(path.parent().expect("below the folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("node/online", "0-1\n");
        write("node/node0/cpulist", "0,2\n");
        write("node/node1/cpulist", "1,3\n");
        for (cpu, siblings) in ["0,2", "1,3", "0,2", "1,3"].iter().enumerate() {
            write(&format!("cpu/cpu{cpu}/topology/thread_siblings_list"), siblings);
        }
        let read = CpuTopology::read(&top, &[0, 1, 2, 3]);
        fs::remove_dir_all(&top).expect("removed");
        assert_eq!(read, topology(&["0,2", "1,3"], &["0,2", "1,3"]));
        assert_eq!(read.order(&[0, 1, 2, 3]), [0, 1, 2, 3]);
        assert_eq!(CpuTopology::read(&top, &[0, 1]), CpuTopology::default());
    }
}
