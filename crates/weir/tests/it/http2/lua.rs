//! Scripts that receive a request's body over HTTP/2 as it comes (`ngx.req.socket`).

use weir_test::{Server, both_drivers};

use crate::http2::client::Client;

fn serve(script: &str) -> Server {
    Server::start(&format!(
        "http {{ server {{ listen 127.0.0.1:%%PORT%%; http2 on; location / {{ content_by_lua_block {{
            local sock, err = ngx.req.socket()
            if not sock then return ngx.say(err) end
            {script} }} }} }} }}"
    ))
}

both_drivers! {
    fn lines_counts_and_patterns_however_frames_are_cut(driver) {
        let server = serve("
            ngx.say(sock:receive(), ' ', sock:receive(3), ' ', sock:receiveuntil('--')())
            ngx.say(sock:receive(100)) ngx.say(sock:receive()) ngx.say(select(2, ngx.req.socket()))");
        let mut client = Client::connect(server.addr(0));
        for cut in [1, 5, 9, 16] {
            let body = b"line\nabcdef--end";
            let key = client.begin_body("/", &[]);
            client.send(key, &body[..cut], false);
            client.send(key, &body[cut..], true);
            let said = client.answer(key).text();
            assert_eq!(said, "line abc def\nnilclosedend\nnilclosed\nrequest body already exists\n", "cut at {cut}");
        }
        let key = client.open("POST", "/", &[], None);
        assert_eq!(client.answer(key).text(), "no body\n");
    }

    fn others_go_on_while_the_body_is_received(driver) {
        let server = serve("
            local thread = ngx.thread.spawn(function() return sock:receive(10) end)
            ngx.sleep(0.001)
            ngx.say('beside') ngx.flush(true)
            ngx.say(select(2, ngx.thread.wait(thread)))");
        let mut client = Client::connect(server.addr(0));
        let key = client.begin_body("/", &[]);
        client.send(key, b"01234", false);
        client.until("what is said beside it", |client| {
            client.answers.get(&key).is_some_and(|answer| answer.body == b"beside\n")
        });
        client.send(key, b"56789", true);
        assert_eq!(client.answer(key).text(), "beside\n0123456789\n");
    }

    fn a_client_that_gives_up_within_its_body_is_told(driver) {
        let server = serve("
            local data, err, part = sock:receive(10)
            ngx.log(ngx.WARN, 'received: ', data, ' ', err, ' ', part)");
        let mut client = Client::connect(server.addr(0));
        let key = client.begin_body("/", &[]);
        client.send(key, b"01234", false);
        client.reset(key);
        let _ = server.error_log_line("received: nil client aborted 01234");
    }
}
