-- SPDX-License-Identifier: MIT
--- thread: a server in a thread of its own, with a Lua state and a store of its own.
--
-- start() is called by whoever wants one, and main() in the thread. Between them goes plain data: options there,
-- addresses or an error back. The owner waits for the thread in C, and never turns a loop for it.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local log = require "keywatch.support.log"
local plain = require "keywatch.support.plain"
local stores = require "keywatch.store.store"
local uv = require "keywatch.uv"

local MODULE = "keywatch.server.thread"
local START_SECONDS = 30 -- a resolver that gets no answer gives up before
local GRACE = 5
local AT_ONCE = -1

-- {====== The owner ======

local server_methods = {}
local server_mt = { __name = "keywatch.server", __index = server_methods }

function server_mt:__tostring()
  return ("keywatch.server<%s>"):format(self.is_closed and "closed" or table.concat(self.urls, ","))
end

local function failure(text)
  local err = core.new_error("thread_failed")
  err.message = ("%s: %s"):format(err.message, text)
  return err
end

--- An error that was told, as it was.
local function error_of(told)
  local err = core.new_error(told.code)
  for name, value in pairs(told) do err[name] = value end
  return err
end

local source_methods = {}
local source_mt = { __index = source_methods }

local function has_ended(server)
  return server.is_closed or server.thread:has_ended()
end

function source_methods:poll()
  if has_ended(self.server) then self.ended:set() end
end

--- The thread is in the parent, and so is who waits for its end.
function source_methods:after_fork()
  driver.get().detach(self)
end

--- Parks the task until the thread has ended.
local function park_until_ended(server)
  local d = driver.get()
  local source = setmetatable({ server = server, ended = d.event() }, source_mt)
  d.hear(server.thread)
  d.attach(source)
  local ok, err = pcall(source.ended.wait, source.ended)
  d.detach(source)
  if not ok then error(err, 0) end
end

--- What there is to say at the end, the first time and whenever it is asked for again.
local function outcome(server)
  if server.failure then return nil, server.failure end
  return true
end

local function close(server)
  local ok, text = server.thread:join()
  server.is_closed = true
  server.urls = {}
  server.failure = not ok and failure(text) or nil
  server.thread:close()
  return outcome(server)
end

--- The URLs that it listens on; none, once it has ended.
function server_methods:addresses()
  check.self(self, "addresses", server_mt)
  local list = {}
  if has_ended(self) then return list end
  for i, address in ipairs(self.urls) do list[i] = address end
  return list
end

function server_methods:close()
  check.self(self, "close", server_mt)
  if self.is_closed then return outcome(self) end
  if not self.thread:is_here() then return true end
  self.thread:stop(AT_ONCE)
  return close(self)
end

--- In a task others go on meanwhile; elsewhere the program waits.
function server_methods:shutdown(grace)
  check.self(self, "shutdown", server_mt)
  check.timeout(grace, "shutdown")
  if self.is_closed then return outcome(self) end
  self.thread:stop(math.max(0, grace or GRACE))
  if driver.get().can_park() then park_until_ended(self) end
  if self.is_closed then return outcome(self) end -- by somebody else
  return close(self)
end

--- Functions stay in the thread that they were made in.
local function refuse(name)
  return function(self)
    check.self(self, name, server_mt)
    check.misuse("%s: a function cannot go to another thread: serve without 'thread' for that", name)
  end
end

server_methods.mount = refuse "mount"
server_methods.use = refuse "use"

local function options_text(opts)
  local given = { is_interpreted = jit and not jit.status() or nil }
  for name, value in pairs(opts) do given[name] = value end
  given.thread = nil
  local ok, text = pcall(plain.write, given)
  if not ok then check.misuse("serve: option 'open' cannot go to another thread: %s", text) end
  return text
end

--- Its thread has not come to serve: the reason.
local function end_of_start(thread)
  if not thread:has_ended() then
    thread:abandon()
    return failure(("it does not start within %d seconds"):format(START_SECONDS))
  end
  local _, text = thread:join()
  thread:close()
  return failure(text)
end

--- Starts a server with the options of keywatch.serve, which are checked already. Waits until it listens.
local function start(opts)
  local thread, text = uv.start_thread(MODULE, package.path, package.cpath, options_text(opts))
  if not thread then return nil, failure(text) end
  text = thread:wait(START_SECONDS)
  if not text then return nil, end_of_start(thread) end
  local told = plain.read(text)
  if told.addresses then
    return setmetatable({
      thread = thread,
      urls = told.addresses,
      failure = nil, -- what the thread has failed with
      is_closed = false,
    }, server_mt)
  end
  thread:close()
  if told.misuse then check.misuse("serve: %s", told.misuse) end
  return nil, error_of(told.failure)
end

-- }======

-- {====== The thread ======

local asker_methods = {}
local asker_mt = { __index = asker_methods }

--- Whoever has asked for an end in order may lose patience.
function asker_methods:poll()
  local grace = self.thread:asked()
  if grace == self.grace then return end
  self.grace = grace
  self.arrival:set()
  if grace < 0 then self.server:close() end
end

local function wait_until_asked(thread, server)
  local d = driver.get()
  local asker = setmetatable({ thread = thread, server = server, grace = nil, arrival = d.event() }, asker_mt)
  d.hear(thread)
  d.attach(asker)
  asker.arrival:wait()
  return asker.grace
end

local function text_of(failed)
  local fields = {}
  for name, value in pairs(failed) do fields[name] = value end
  return plain.write { failure = fields }
end

--- The store and the server; or nil, and the text for the owner.
local function open(opts)
  local ok, store, err = pcall(stores.open, opts.open)
  if not ok then return nil, plain.write { misuse = tostring(store) } end
  if not store then return nil, text_of(err) end
  local server
  opts.open, opts.is_interpreted, opts.store = nil, nil, store
  ok, server, err = pcall(require("keywatch.server.server").serve, opts)
  if not ok then return nil, plain.write { misuse = tostring(server) } end
  if not server then return nil, text_of(err) end
  return store, server
end

local function serve(thread, opts)
  local store, server = open(opts)
  if not store then
    thread:tell(server)
    return
  end
  thread:tell(plain.write { addresses = server:addresses() })
  local grace = wait_until_asked(thread, server)
  if grace >= 0 then server:shutdown(grace) end
  store:close()
end

local function with_traceback(err)
  return { err = err, traceback = debug.traceback(tostring(err), 2) }
end

--- What fails here ends the thread: it is said at once, since the owner may not ask for long.
local function main()
  local thread = uv.this_thread()
  local opts = plain.read(thread:text())
  if opts.is_interpreted then jit.off() end
  local ok, trouble = xpcall(function()
    driver.get().run(serve, thread, opts)
  end, with_traceback)
  if ok then return end
  log.error("a server's thread has failed: %s", trouble.traceback)
  error(tostring(trouble.err), 0)
end

-- }======

return { start = start, main = main, methods = server_methods }
