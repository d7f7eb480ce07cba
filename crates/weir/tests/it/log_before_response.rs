//! The error log is written before the response, as nginx writes it: a client that has its response finds there what was logged
//! before it.

use std::fs;

use weir_test::{Server, both_drivers};

use crate::http2::client::Client;

/// More lines for each request than the log thread ends its gathering for, and a body in two parts.
const CONF: &str = "error_log %%DIR%%/error.log debug; http { server { listen 127.0.0.1:%%PORT%%; http2 on;
    location / { content_by_lua_block {
        for at = 1, 9 do ngx.log(ngx.INFO, 'before ', ngx.var.uri, ' ', at) end
        ngx.say('whole') } }
    location /large/ { content_by_lua_block {
        for at = 1, 9 do ngx.log(ngx.INFO, 'before ', ngx.var.uri, ' ', at) end
        ngx.header.content_length = 20000 ngx.print(string.rep('x', 20000)) } }
    location /parts/ { content_by_lua_block {
        ngx.print('first') ngx.log(ngx.WARN, 'one ', ngx.var.uri) ngx.flush(true)
        ngx.log(ngx.WARN, 'two ', ngx.var.uri) ngx.print('second') } }
    location /fails/ { root %%DIR%%; } } }";

both_drivers! {
    fn lines_are_there_when_a_response_is(driver) {
        let server = Server::builder(CONF).driver(driver).start();
        let mut client = server.client();
        for n in 0..100 {
            assert_eq!(client.get(&format!("/{n}")).text(), "whole\n");
            assert!(errors(&server).contains(&format!("before /{n} 9")), "{n}");
        }
        let mut client = Client::connect(server.addr(0));
        for n in 100..200 {
            assert_eq!(client.fetch(&format!("/{n}")).text(), "whole\n");
            assert!(errors(&server).contains(&format!("before /{n} 9")), "{n}");
        }
        for n in 200..300 {
            assert_eq!(client.fetch(&format!("/fails/{n}")).status, 404);
            assert!(errors(&server).contains(&format!("/fails/{n}\" failed")), "{n}");
        }
    }

    fn lines_are_there_when_a_large_response_or_a_head_alone_is(driver) {
        let server = Server::builder(CONF).driver(driver).start();
        let mut client = server.client();
        for n in 0..100 {
            assert_eq!(client.get(&format!("/large/{n}")).text().len(), 20_000);
            assert!(errors(&server).contains(&format!("before /large/{n} 9")), "{n}");
            client.send(format!("HEAD /fails/{n} HTTP/1.1\r\nHost: x\r\n\r\n"));
            assert_eq!(client.response_to_head().status, 404);
            assert!(errors(&server).contains(&format!("/fails/{n}\" failed")), "{n}");
        }
        let mut client = Client::connect(server.addr(0));
        for n in 100..200 {
            assert_eq!(client.fetch(&format!("/large/{n}")).body.len(), 20_000);
            assert!(errors(&server).contains(&format!("before /large/{n} 9")), "{n}");
        }
    }

    fn lines_are_there_when_a_part_of_a_body_is(driver) {
        let server = Server::builder(CONF).driver(driver).start();
        let mut client = server.client();
        for n in 0..100 {
            client.send(format!("GET /parts/{n} HTTP/1.1\r\nHost: x\r\n\r\n"));
            client.until("first");
            assert!(errors(&server).contains(&format!("one /parts/{n},")), "{n}");
            assert_eq!(client.response().text(), "firstsecond");
            assert!(errors(&server).contains(&format!("two /parts/{n},")), "{n}");
        }
    }
}

fn errors(server: &Server) -> String {
    fs::read_to_string(server.dir().path().join("error.log")).expect("is there")
}
