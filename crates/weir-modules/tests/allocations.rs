//! What a request on a warm keep-alive connection allocates: the heap is counted while a client that allocates nothing
//! asks a server in this process.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_modules::{Index, Static};
use weir_rt::DriverChoice;
use weir_server::{Server, ServerOptions};
use weir_sys::heap::CountingHeap;
use weir_test::{Driver, TempDir, both_drivers};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap::new();

static MODULES: [ModuleDef; CORE_MODULES.len() + 2] =
    with_core(&[ModuleDef::of::<Index>(), ModuleDef::of::<Static>()]);

/// Enough that what happens once in a while (a timer, a histogram's first use) does not matter.
const REQUESTS: u64 = 2000;
const REQUEST: &[u8] = b"GET /f.txt HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Allocations per request of a small file, with `inside` in the server block.
fn allocations(driver: Driver, inside: &str) -> (f64, Vec<usize>) {
    let directory = TempDir::new();
    let address = SocketAddr::from(([127, 0, 0, 1], weir_test::free_port()));
    let root = directory.path().display();
    std::fs::write(directory.path().join("f.txt"), "hello\n").expect("a fresh folder");
    let text = format!(
        "error_log {root}/error.log info; worker_processes 1; events {{ }}
        http {{ server {{ listen {address}; root {root}; keepalive_requests 100000; {inside} }} }}"
    );
    let configuration = weir_engine::conf::test::load(&text, &MODULES).unwrap_or_else(|e| panic!("{e}"));
    let driver = match driver {
        Driver::Epoll => DriverChoice::Epoll,
        Driver::IoUring => DriverChoice::IoUring,
    };
    let options = ServerOptions { driver: Some(driver), ..ServerOptions::default() };
    let _server = Server::start(Arc::new(configuration), options).expect("starts");
    let mut client = TcpStream::connect(address).expect("listens");
    client.set_read_timeout(Some(weir_test::DEADLINE)).expect("a socket");
    let mut answer = [0; 4096];
    let length = ask(&mut client, &mut answer, None);
    for _ in 0..REQUESTS {
        ask(&mut client, &mut answer, Some(length));
    }
    let batch = |_| {
        let before = HEAP.calls();
        for _ in 0..REQUESTS {
            ask(&mut client, &mut answer, Some(length));
        }
        HEAP.calls() - before
    };
    // The least of some: other threads of the process allocate now and then, and a slow machine gives them time.
    let calls = (0..5).map(batch).min().expect("there were five");
    let last = HEAP.sizes().to_vec();
    (calls as f64 / REQUESTS as f64, last)
}

/// Asks once; the length of the response, where it is not known by the end of the file's text.
fn ask(client: &mut TcpStream, answer: &mut [u8], length: Option<usize>) -> usize {
    client.write_all(REQUEST).expect("the server reads");
    let mut read = 0;
    while !length.map_or(answer[..read].ends_with(b"\r\n\r\nhello\n"), |length| read == length) {
        let n = match client.read(&mut answer[read..]) {
            // The server is in this process, and so are the signals of its profiler.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other.expect("the server answers"),
        };
        assert!(n > 0, "closed after {:?}", answer[..read].escape_ascii().to_string());
        read += n;
    }
    read
}

both_drivers! {
    fn a_static_request_on_a_warm_connection(driver) {
        // One is the boxed future of a connection that is busy (`conn::h1::finish_requests`). A file that no cache holds is five
        // more, once for all requests whose bytes came together; here every request comes alone.
        //
        // One after the other: the heap that is counted is the whole process's.
        static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (inside, most) in [("open_file_cache max=10;", 1.1), ("", 6.1)] {
            let (found, sizes) = allocations(driver, inside);
            assert!(found <= most, "{inside:?}: {found} allocations a request, of {sizes:?} bytes");
        }
    }
}
