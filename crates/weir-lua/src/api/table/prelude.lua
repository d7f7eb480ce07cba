-- `table.clone` and others of OpenResty's LuaJIT (`luajit/tables.h`) are in `table` from the start.
for _, name in ipairs { "new", "clear", "clone", "isarray", "isempty", "nkeys" } do table[name] = require("table." .. name) end
