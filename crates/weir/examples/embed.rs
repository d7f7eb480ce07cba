//! A web server in ten lines. `cargo run --example embed`, then `curl http://127.0.0.1:8080/hello?you`.

fn main() -> Result<(), weir::Error> {
    let server = start("127.0.0.1:8080")?;
    println!("http://{}/hello?you", server.addresses()[0]);
    server.join();
    Ok(())
}

pub(crate) fn start(address: &str) -> Result<weir::Server, weir::Error> {
    let hello = |request: &weir::Request<'_>, response: &mut weir::Response| {
        response.body(format!("Hello, {}!\n", request.query()));
    };
    weir::Server::builder().listen(address).location("/hello", hello).start()
}
