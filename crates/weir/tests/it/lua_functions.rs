//! Functions that need nothing of the request: encoders, digests, dictionaries, patterns, JSON.

use weir_test::{Server, both_drivers};

/// A server whose locations are `locations`.
fn serve(locations: &str) -> Server {
    serve_with("", locations)
}

fn serve_with(http: &str, locations: &str) -> Server {
    let conf = format!(
        "events {{}}\nhttp {{ access_log logs/access.log; {http}\nserver {{ listen 127.0.0.1:%%PORT%%; \
         default_type text/plain;\n{locations}\n}} }}\n"
    );
    Server::builder(&conf).file("html/a.txt", "file\n").start()
}

/// A content script at `/`, and what it says.
fn say(script: &str) -> String {
    let server = serve(&format!("location / {{ content_by_lua_block {{ {script} }} }}"));
    server.client().get("/?x=1&y=a%20b&y=2").text()
}

both_drivers! {
    fn encoders_and_digests(driver) {
        assert_eq!(say("ngx.say(ngx.escape_uri('a b/c~'), ngx.unescape_uri('a%20b+c%zz'))"), "a%20b%2Fc~a b c%zz\n");
        assert_eq!(say("ngx.say(ngx.encode_base64('foob'), ngx.decode_base64('Zm9vYg=='), ngx.encode_base64('f', true))"), "Zm9vYg==foobZg\n");
        assert_eq!(say("ngx.say(ngx.md5('hello'))"), "5d41402abc4b2a76b9719d911017c592\n");
        assert_eq!(say("ngx.say(ngx.encode_base64(ngx.sha1_bin('hello')))"), "qvTGHdzF6KLavt4PO0gs2a6pQ00=\n");
        assert_eq!(say("ngx.say(ngx.encode_base64(ngx.hmac_sha1('k', 'hello')))"), "C3k40aLNyvqUZFpcNQj3I2rkV6k=\n");
        assert_eq!(say("ngx.say(ngx.crc32_short('hello'), ' ', ngx.quote_sql_str([['a\\]]))"), "907060870 '\\'a\\\\'\n");
        assert_eq!(say("ngx.say(ngx.http_time(1290079655), ' ', ngx.cookie_time(1290079655))"),
            "Thu, 18 Nov 2010 11:27:35 GMT Thu, 18-Nov-10 11:27:35 GMT\n");
        assert_eq!(say("ngx.say(ngx.parse_http_time('Thu, 18 Nov 2010 11:27:35 GMT'), #ngx.localtime(), #ngx.today())"), "12900796551910\n");
    }

    fn groups_that_did_not_match_are_absent_from_lists_of_names(driver) {
        let groups = "local m = ngx.re.match('test', '(?<a>foo)?(?<b>test)', 'D') ngx.say(type(m.a), m.b[1])";
        assert_eq!(say(groups), "niltest\n");
        let alike = "local m = ngx.re.gmatch('xy', '(?<a>x)(?<a>y)', 'D')() ngx.say(m.a[1], m.a[2], #m.a)";
        assert_eq!(say(alike), "xy2\n");
        assert_eq!(say("local it = ngx.re.gmatch('1', '2') ngx.say(select('#', it()), select('#', it()))"), "11\n");
    }

    fn dictionaries_are_shared(driver) {
        let server = serve_with(
            "lua_shared_dict d 1m; lua_shared_dict tiny 8k; init_by_lua_block { ngx.shared.d:incr('starts', 1, 0) }",
            "location /basic { content_by_lua_block { local d = ngx.shared.d
                ngx.say(d:set('a', 'x'), d:get('a'))
                ngx.say(d:set('a', 5, 0, 7), d:get('a'))
                ngx.say(d:add('a', 1)) ngx.say(d:replace('none', 1)) ngx.say(d:get('none'))
                ngx.say(d:incr('a', 2), d:incr('none', 1)) ngx.say(d:incr('n', 1, 10), d:get('n'))
                ngx.say(d:set('t', true, 0.001), d:ttl('a'), d:ttl('none')) repeat ngx.sleep(0.01) until d:get('t') == nil
                ngx.say(d:get('t')) ngx.say(d:get_stale('t'))
                ngx.say(d:delete('a'), d:get('a')) ngx.say(d:get(nil)) ngx.say(d:get('')) ngx.say(d:get(('x'):rep(65536)))
                ngx.say(pcall(d.get)) ngx.say(d:get('starts'), #d:get_keys(), d:capacity()) } }
             location /lists { content_by_lua_block { local d = ngx.shared.d
                ngx.say(d:rpush('l', 1), d:lpush('l', 'a'), d:llen('l'), d:get('l'))
                ngx.say(d:lpop('l'), d:rpop('l'), d:lpop('l'), d:llen('l')) ngx.say(d:set('s', 's'), d:lpush('s', 1)) } }
             location /full { content_by_lua_block { local d = ngx.shared.tiny
                local forced for i = 1, 100 do local ok, err, f = d:set('k' .. i, ('x'):rep(100)) forced = forced or f end
                ngx.say(forced, d:get('k1'), d:get('k100') ~= nil, d:safe_set('new', ('x'):rep(100)))
                ngx.say(d:set('large', ('x'):rep(10000))) d:flush_all() ngx.say(d:flush_expired() > 10, d:get('k100')) } }",
        );
        let mut client = server.client();
        let basic = client.get("/basic").text();
        let wanted = "truex\ntrue57\nfalseexistsfalse\nfalsenot foundfalse\nnil\n7nilnot found\n1111\ntrue0nilnot found\nnil\n\
                      trueniltrue\ntruenil\nnilnil key\nnilempty key\nnilkey too long\nfalsebad \"zone\" argument\n121048576\n";
        assert_eq!(basic, wanted);
        assert_eq!(client.get("/lists").text(), "122nilvalue is a list\na1nil0\ntruenilvalue not a list\n");
        assert_eq!(client.get("/full").text(), "trueniltruefalseno memoryfalse\nfalseno memoryfalse\ntruenil\n");
    }

    /// As OpenResty: what has expired and is still there has a time to live below nothing, and lives again with `expire`. Kong's client of
    /// name servers knows by it how stale a record is.
    fn what_has_expired_has_a_time_and_may_live_again(driver) {
        let server = serve_with(
            "lua_shared_dict d 1m;",
            "location / { content_by_lua_block { local d = ngx.shared.d
                local function over(key, ...) d:set(key, ...) repeat ngx.sleep(0.01) until d:get(key) == nil end
                for _, value in ipairs { 'v', ('v'):rep(500), 5, true } do
                    over('b', value, 0.02)
                    ngx.print(d:ttl('b') <= 0, ' ', d:get_stale('b') == value, ' ', d:expire('b', 10), ' ', d:get('b') == value, ' ', math.ceil(d:ttl('b')), '; ')
                end
                over('c', 'v', 0.02) ngx.print(d:expire('c', 0), ' ', d:get('c'), ' ', d:ttl('c'), '; ')
                over('e', 'v', 0.02) d:flush_expired() ngx.print(tostring(d:ttl('e')), ' ', tostring(d:expire('e', 1)), '; ')
                d:rpush('l', 1) d:expire('l', 0.02) repeat ngx.sleep(0.01) until d:llen('l') == 0
                ngx.print(d:ttl('l') <= 0, ' ', d:expire('l', 5), ' ', d:llen('l'), '; ')
                over('n', 1, 0.02) ngx.print(tostring((d:incr('n', 1))), ' ', (d:incr('n', 1, 5)), ' ', d:ttl('n')) } }",
        );
        let wanted = "true true true true 10; ".repeat(4) + "true v 0; nil nil; true true 1; nil 6 0";
        assert_eq!(server.get("/").text(), wanted);
    }

    fn patterns_match_and_replace(driver) {
        assert_eq!(say("local m = ngx.re.match('hello 1234', '([a-z]+) (?<n>[0-9]+)(x)?', 'jo') ngx.say(m[0], m[1], m.n, m[3])"),
            "hello 1234hello1234false\n");
        assert_eq!(say("local c = {pos = 2} local m = ngx.re.match('1234', '[0-9]', '', c) ngx.say(m[0], c.pos, ngx.re.match('a', 'b'))"), "23nil\n");
        assert_eq!(say("ngx.say(ngx.re.find('hello 1234', '([0-9])([0-9])', 'jo', nil, 2))"), "88\n");
        assert_eq!(say("for m in ngx.re.gmatch('a1b22', '[0-9]+') do ngx.print(m[0], ';') end"), "1;22;");
        assert_eq!(say("ngx.say(ngx.re.gsub('hello', '[aeiou]', '[$0]', 'i'))"), "h[e]ll[o]2\n");
        assert_eq!(say("ngx.say(ngx.re.sub('hello', '(l)', '${1}$$'))"), "hel$lo1\n");
        assert_eq!(say("ngx.say(ngx.re.gsub('abc', '', '-'))"), "-a-b-c-4\n");
        assert_eq!(say("ngx.say(ngx.re.gsub('a1', '[0-9]', function(m) return m[0] + 1 end))"), "a21\n");
        assert_eq!(say("ngx.say(ngx.re.match('a', '(a'))"), "nilpcre2_compile() failed: missing closing parenthesis in \"(a\"\n");
        assert_eq!(say("ngx.say(ngx.re.sub('a', 'a', '$x'))"),
            "nilnilfailed to compile the replacement template\n");
        assert_eq!(say("ngx.say(table.concat(require('ngx.re').split('a,b;c', '[,;]'), '|'))"), "a|b|c\n");
    }

    fn json_is_that_of_cjson(driver) {
        assert_eq!(say("local c = require 'cjson' ngx.print(c.encode({1, 'a/b', {x = true}, c.null, 1.5, {}}))"),
            "[1,\"a\\/b\",{\"x\":true},null,1.5,{}]");
        assert_eq!(say("local c = require 'cjson' ngx.print(c.encode(setmetatable({}, c.empty_array_mt)), c.encode({[1] = 1, [3] = 3}), c.encode(c.empty_array))"),
            "[][1,null,3][]");
        assert_eq!(say("ngx.print(require('cjson').encode('\\n\\t\\1\"'))"), "\"\\n\\t\\u0001\\\"\"");
        assert_eq!(say("local t = require('cjson').decode('{\"a\": [1, 2.5e1, \"x\\\\u00e9\\\\ud83d\\\\ude00\", null], \"b\": {}}') ngx.print(t.a[2], t.a[3], t.a[4] == ngx.null, next(t.b))"),
            "25xé😀truenil");
        for (text, words) in [
            ("", "Expected value but found T_END at character 1"),
            ("{\"a\" 1}", "Expected colon but found T_NUMBER at character 6"),
            ("[1 2]", "Expected comma or array end but found T_NUMBER at character 4"),
            ("{1:2}", "Expected object key string but found T_NUMBER at character 2"),
            ("[1]x", "Expected the end but found invalid token at character 4"),
            ("hello", "Expected value but found invalid token at character 1"),
        ] {
            assert_eq!(say(&format!("ngx.print(select(2, require('cjson.safe').decode('{text}')))")), words);
        }
        assert_eq!(say("ngx.print(select(2, require('cjson.safe').encode({print})))"), "Cannot serialise function: type not supported");
        assert_eq!(say("ngx.print(select(2, require('cjson.safe').encode({[1] = 1, [100] = 1})))"), "Cannot serialise table: excessively sparse array");
        assert_eq!(say("local t = {} t[1] = t ngx.print(select(2, require('cjson.safe').encode(t)))"), "Cannot serialise, excessive depth (1001)");
        assert_eq!(say("ngx.print(select(2, require('cjson.safe').decode(('['):rep(1001))))"), "Found too many nested data structures (1001) at character 1001");
    }
}
