-- What is in every Lua from 5.1 on: the same files run on Lua 5.4 and LuaJIT.
std = "min"
max_line_length = 120
read_globals = { "jit" }

files["lua/keywatch/driver/ngx*.lua"].read_globals = { "ngx", "jit" }
files["bench/openresty_worker.lua"].read_globals = { "ngx", "jit" }
files["examples/openresty"].globals = { "ngx" }
files["spec"].std = "max+busted"
files["types"] = { unused = false, max_line_length = false }
files[".luacheckrc"].std = "luacheckrc"
