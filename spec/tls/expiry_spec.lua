--- Certificates that expire, and keys of tickets that grow old, between two connections: a process whose clock jumps.

local certificates = require "spec.support.certificates"
local files = require "spec.support.files"
local shell = require "spec.support.shell"

-- luaopen_clock moves the clock, by more than the certificate `brief` is valid, and less than a session is; and back.
local CLOCK = [[
#include <time.h>
static time_t moved;
time_t time(time_t *to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec += moved;
  if (to != NULL) *to = now.tv_sec;
  return now.tv_sec;
}
int luaopen_clock(void *L) { (void)L; moved = 70 * 60 - moved; return 0; }
]]

local PROGRAM = [[
local directory = ...
package.loaded["spec.support.certificates"] = {
  paths = function(name) return directory .. "/" .. name .. ".pem", directory .. "/" .. name .. ".key" end,
}
local pair = dofile "spec/support/tls_pair.lua"
local jump = assert(package.loadlib(os.getenv("LD_PRELOAD"), "luaopen_clock"))

--- Prints the results of connections: of the first one, of another one at once, and of one after the clock's jump.
local function try(client_context, server_context)
  local words = {}
  for i = 1, 4 do
    if i == 3 then jump() end
    local client, server = pair.shake(client_context, server_context)
    words[i] = (server:error() or client:error() or client:info().is_resumed and "resumed" or "whole"):match("^[^(]*")
    client:close()
    server:close()
  end
  jump()
  print(table.concat(words, ", "))
end

local cert, key = directory .. "/brief.pem", directory .. "/brief.key"
local ca = directory .. "/ca.pem"
for _, version in ipairs { "TLS1.2", "TLS1.3" } do
%s
end
]]

describe("after time has passed #once", function()
  local scratch

  setup(function()
    scratch = shell.must("mktemp -d")
    files.compile(scratch, "clock", CLOCK)
  end)

  teardown(function() shell.must("rm -rf " .. scratch) end)

  local function expect(line, trial)
    files.write(scratch .. "/main.lua", (PROGRAM:gsub("%%s", trial)))
    local printed = shell.must(([[LUA_PATH="$PWD/build/lua5.4/share/lua/5.4/?.lua" \
      LUA_CPATH="$PWD/build/lua5.4/lib/lua/5.4/?.so" LD_PRELOAD=%s/clock.so lua5.4 %s/main.lua %s]])
      :format(scratch, scratch, certificates.directory()))
    assert.equal(line .. "\n" .. line, (printed:gsub(" on 20[%d: -]+UTC ", "")))
  end

  it("a client whose certificate has expired is refused at the next connection", function()
    local refused = "the certificate of the client has expired"
    expect(("whole, whole, %s, %s"):format(refused, refused), [[
      try(pair.client { cert = cert, key = key, max_version = version }, pair.server("server", { ca = ca }))]])
  end)

  it("a server whose certificate has expired is refused at the next connection", function()
    local refused = "the client has refused the connection: our certificate has expired "
    expect(("whole, resumed, %s, %s"):format(refused, refused), [[
      try(pair.client { max_version = version }, pair.server "brief")]])
  end)

  it("a server has new keys for its tickets", function()
    expect("whole, resumed, whole, resumed", "try(pair.client { max_version = version }, pair.server())")
  end)
end)
