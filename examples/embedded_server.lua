-- SPDX-License-Identifier: MIT
--- A server in a thread of the program: it serves clients whatever the program does.
--
-- The program counts prime numbers and never waits for clients. The client is etcdctl, the client program of etcd.

local keywatch = require "keywatch"

local LIMIT = 200000 -- largest number that is tested

local server = assert(keywatch.serve {
  thread = true,
  listen = "http://127.0.0.1:0", -- the kernel chooses a port
  open = { max_txn_ops = 1024 },  -- options of the store, which the thread opens
})
local url = server:addresses()[1]

--- Starts a client and does not wait for its end. Returns a file from which the output can be read.
local function start_client(script)
  return assert(io.popen(("export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=%s\n%s"):format(url, script)))
end

--- Returns the number of primes up to LIMIT, by the sieve of Eratosthenes.
local function count_primes()
  local is_composite, n = {}, 0
  for i = 2, LIMIT do
    if not is_composite[i] then
      n = n + 1
      for j = i * i, LIMIT, i do is_composite[j] = true end
    end
  end
  return n
end

local client = start_client [[
  etcdctl put greeting hello
  etcdctl get greeting
  etcdctl del greeting
]]
print(("%d primes up to %d"):format(count_primes(), LIMIT))
io.write("in the same time, etcdctl:\n", client:read("*a"))
client:close()

-- A second server cannot listen on the same address.
local second, err = keywatch.serve { thread = true, listen = url }
print(second, err.code, err.errno)

print("it has ended well:", server:shutdown())
