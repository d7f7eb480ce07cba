describe("a dictionary", function()
    local cache = ngx.shared.cache
    before_each(function() cache:flush_all() end)

    it("counts", function()
        assert.is_nil(cache:get("visits"))
        assert.are.equal(5, cache:incr("visits", 5, 0))
    end)

    it("is shared by light threads", function()
        local thread = ngx.thread.spawn(function()
            ngx.sleep(0.01)
            return (cache:incr("visits", 1, 0))
        end)
        assert.are.same({ true, 1 }, { ngx.thread.wait(thread) })
    end)
end)
