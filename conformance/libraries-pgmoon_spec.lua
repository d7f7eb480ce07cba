-- pgmoon's own specs are in MoonScript: what its README shows, with a PostgreSQL on port 5432, over its cosockets.
local pgmoon = require "pgmoon"

local function connected(more)
    local options = { host = "127.0.0.1", port = "5432", database = "postgres", user = "postgres" }
    for name, value in pairs(more or {}) do options[name] = value end
    local pg = pgmoon.new(options)
    assert.truthy(pg:connect())
    return pg
end

-- A connection with the README's table of users, which nobody else sees.
local function users()
    local pg = connected()
    assert.truthy(pg:query([[
        create temporary table users (id serial primary key, name text, status text);
        insert into users (name, status) values ('Leafo', 'active'), ('Lee', null)
    ]]))
    return pg
end

describe("pgmoon", function()
    it("uses the server's sockets", function()
        assert.equal("nginx", connected().sock_type)
    end)

    it("gives rows by the names of their columns", function()
        assert.same({ { id = 1, name = "Leafo" }, { id = 2, name = "Lee" } }, (users():query("select id, name from users order by id")))
    end)

    it("tells how many rows were touched", function()
        local pg = users()
        assert.equal(1, pg:query("update users set name = $1 where id = $2", "leafo", 1).affected_rows)
        assert.equal(2, pg:query("delete from users").affected_rows)
        assert.equal(true, (pg:query("drop table users")))
    end)

    it("takes parameters of all kinds", function()
        local row = connected():query("select $1::text a, $2::int b, $3::bool c, $4::text d", "x'y", 12, true, pgmoon.Postgres.NULL)[1]
        assert.same({ a = "x'y", b = 12, c = true }, row)
    end)

    it("runs several queries at once", function()
        local res, count = users():query("select name from users where id = 1; select status from users where id = 1")
        assert.equal(2, count)
        assert.same({ { { name = "Leafo" } }, { { status = "active" } } }, res)
    end)

    it("tells errors, and what was done before them", function()
        local pg = users()
        local res, err, partial, count = pg:query("select 1 as one; select nothing from users")
        assert.is_nil(res)
        assert.match('column "nothing" does not exist', err)
        assert.same({ { one = 1 } }, partial)
        assert.equal(1, count)
        assert.same({ { two = 2 } }, (pg:query("select 2 as two")))
    end)

    it("gives notices", function()
        local _, _, _, notices = connected():query("drop table if exists nobody_made_this")
        assert.match("does not exist", notices[1].message or notices[1])
    end)

    it("escapes literals and identifiers", function()
        local pg = connected()
        assert.equal("'it''s'", pg:escape_literal("it's"))
        assert.equal('"a""b"', pg:escape_identifier('a"b'))
        assert.equal("TRUE", pg:escape_literal(true))
    end)

    it("gives NULL where that is wanted", function()
        local pg = users()
        pg.convert_null = true
        assert.same({ { status = pg.NULL } }, (pg:query("select status from users where id = 2")))
    end)

    it("reads and writes JSON", function()
        local pg = connected()
        assert.same({ { v = { a = { 1, 2 }, b = "c" } } }, (pg:query([[select '{"a":[1,2],"b":"c"}'::json v]])))
        local encode = require("pgmoon.json").encode_json
        assert.same({ { v = { hello = "world" } } }, (pg:query("select " .. encode({ hello = "world" }) .. "::jsonb v")))
    end)

    it("writes arrays", function()
        local encode = require("pgmoon.arrays").encode_array
        assert.same({ { n = 3, last = 9 } }, (connected():query(
            "select array_length(v, 1) n, v[3] last from (select " .. encode({ 5, 7, 9 }) .. " v) t")))
    end)

    it("waits for notifications", function()
        local listener, speaker = connected(), connected()
        assert.truthy(listener:query("listen hello"))
        local thread = ngx.thread.spawn(function() return listener:wait_for_notification() end)
        assert.truthy(speaker:query("notify hello, 'world'"))
        local _, said = ngx.thread.wait(thread)
        assert.same({ channel = "hello", payload = "world", operation = "notification", pid = said.pid }, said)
    end)

    it("moves large values", function()
        local text = ("0123456789abcdef"):rep(64 * 1024)
        assert.equal(text, connected():query("select $1::text t", text)[1].t)
    end)

    it("keeps connections", function()
        local pg = connected({ pool_name = "kept" })
        local backend = pg:query("select pg_backend_pid() pid")[1].pid
        assert.truthy(pg:keepalive())
        assert.equal(backend, connected({ pool_name = "kept" }):query("select pg_backend_pid() pid")[1].pid)
    end)

    it("goes on after a timeout of its own", function()
        local pg = connected()
        pg:settimeout(50)
        local res, err = pg:query("select pg_sleep(30)")
        assert.is_nil(res)
        assert.match("timeout", err)
        pg:disconnect()
        pg:settimeout(10000)
        assert.truthy(pg:connect())
        assert.same({ { one = 1 } }, (pg:query("select 1 one")))
    end)

    it("logs in with a password", function()
        local admin = connected()
        for _, method in ipairs { "md5", "scram-sha-256" } do
            admin:query("drop role if exists guest")
            assert.truthy(admin:query("set password_encryption = '" .. method .. "'"))
            assert.truthy(admin:query("create role guest login password 'secret'"))
            assert.same({ { me = "guest" } }, (connected({ user = "guest", password = "secret" }):query("select current_user me")))
        end
    end)

    it("tells why there is no connection", function()
        local ok, err = pgmoon.new({ host = "127.0.0.1", port = "1", database = "x" }):connect()
        assert.is_nil(ok)
        assert.match("refused", err)
        ok, err = pgmoon.new({ host = "127.0.0.1", port = "5432", database = "nobody", user = "postgres" }):connect()
        assert.is_nil(ok)
        assert.match('database "nobody" does not exist', err)
    end)
end)
