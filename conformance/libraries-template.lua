-- lua-resty-template has no tests: the calls its README shows, and what they must give.
local template = require "resty.template"
template.caching(true)
local render = template.process or template.compile
local function made(text, context)
    return template.compile(text, "no-cache", true)(context or {})
end
assert(made("Hello, {{name}}!", { name = "<World>" }) == "Hello, &lt;World&gt;!")
assert(made("Hello, {*name*}!", { name = "<World>" }) == "Hello, <World>!")
assert(made("{% for _, one in ipairs(list) do %}<li>{{one}}</li>{% end %}", { list = { 1, 2, "x" } }) == "<li>1</li><li>2</li><li>x</li>")
assert(made("{# not shown #}a{-raw-}{{raw}}{-raw-}") == "a{{raw}}")
assert(made("{[text]}", { text = "" }) ~= nil)
local view = template.new("{{greeting}} {{name}}", nil)
assert(view)
view.greeting, view.name = "Hello", "World"
assert(tostring(view) == "Hello World")
assert(template.compile("a\nb{{c}}", "k", true)({ c = 3 }) == "a\nb3")
assert(#template.parse("{{x}}", true) > 0)
assert(render)
