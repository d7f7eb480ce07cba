//! Tables with the same fields are walked in the same order by all workers: nginx's are copies of one VM, and programs make keys
//! of what they share out of a table's text. (APISIX' limit-count lets more requests pass where workers make different keys.)

use std::collections::BTreeMap;

use weir_test::{Client, Server, both_drivers};

/// Each worker makes other strings first, as many as its number says: numbers that were given in turn would differ after that.
const SCRIPT: &str = r#"
    local kept = {}
    for at = 1, 1000 * (ngx.worker.id() + 1) do kept[at] = "of " .. ngx.worker.id() .. " " .. at end
    local names = { "rejected_code", "policy", "allow_degradation", "show_limit_quota_header", "sync_interval", "count", "_meta",
        "key", "time_window", "window_type", "key_type", "", "a", "ab", "abc", "abcd", "abcde", "abcdefg", "abcdefgh", "abcdefghi",
        ("long"):rep(20), ("long"):rep(21), ("x"):rep(256) }
    local walks = {}
    for size = 1, #names do
        local t = {}
        for at = 1, size do t[names[at]] = at end
        local walk = {}
        for _, at in pairs(t) do walk[#walk + 1] = at end
        walks[size] = table.concat(walk, " ")
    end
    ngx.say(ngx.worker.id(), " ", table.concat(walks, "; "))"#;

fn conf(workers: usize) -> String {
    format!(
        "worker_processes {workers}; http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ content_by_lua_block {{ {SCRIPT} }} }} }} }}"
    )
}

fn get(client: &mut Client) -> String {
    client.request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").text()
}

/// The walks of each worker, once all were asked.
fn walks(server: &Server, workers: usize) -> BTreeMap<String, String> {
    let mut walks = BTreeMap::new();
    weir_test::wait_for("a response of each worker", || {
        let text = get(&mut server.client());
        let (worker, walk) = text.trim_end().split_once(' ').expect("a worker and its walks");
        let before = walks.insert(worker.to_owned(), walk.to_owned());
        assert!(before.is_none_or(|before| before == walk), "the second time in another order: {walk}");
        (walks.len() == workers).then_some(())
    });
    walks
}

both_drivers! {
    fn all_workers_walk_alike(driver) {
        let server = Server::start(&conf(3));
        let walks = walks(&server, 3);
        let first = walks.values().next().expect("a worker");
        assert!(walks.values().all(|walk| walk == first), "{walks:#?}");
        assert_ne!(first, &(1..=23).map(|to| (1..=to).map(|at| at.to_string()).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join("; "));
    }

    /// Which order it is is the process' secret, or texts that fall into one place could be chosen.
    fn another_server_walks_otherwise(driver) {
        let (one, other) = (Server::start(&conf(1)), Server::start(&conf(1)));
        assert_ne!(walks(&one, 1), walks(&other, 1));
    }
}
