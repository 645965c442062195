-- SPDX-License-Identifier: MIT
--- thread_main: the main function of a thread that serves, see thread for the owner's side.
--
-- The thread gets its options as a text. It reports the outcome of the start to the owner, once: the addresses, or an
-- error. Then it serves, and answers the owner's questions for metrics, until the owner asks it to end.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local log = require "keywatch.support.log"
local literal = require "keywatch.support.literal"
local stores = require "keywatch.store.store"
local uv = require "keywatch.uv"

-- {====== Waiting for the owner ======

local asker_methods = {}
local asker_mt = { __index = asker_methods }

--- Answers the owner's questions for metrics; with an empty text if the server is closed.
local function answer(self)
  local question = self.thread:question()
  if question == self.answered then return end
  self.answered = question
  self.thread:give(question, self.server.is_closed and "" or self.server:metrics())
end

--- For the driver. The owner may ask for the end twice: for a graceful shutdown, and then for an immediate one.
function asker_methods:poll()
  answer(self)
  local grace = self.thread:asked()
  if grace == self.grace then return end
  self.grace = grace
  self.arrival:set()
  if grace < 0 then self.server:close() end
end

--- Waits until the owner asks for the end. Returns the grace in seconds; negative: at once.
local function wait_until_asked(thread, server)
  local d = driver.get()
  local asker = setmetatable({
    thread = thread,
    server = server,
    answered = 0, -- number of the last question that was answered
    grace = nil,
    arrival = d.event(),
  }, asker_mt)
  d.hear(thread)
  d.attach(asker)
  asker.arrival:wait()
  return asker.grace
end

-- }======

--- Returns the text that reports an error to the owner.
local function text_of(failed)
  return literal.write { failure = check.copy(failed) }
end

--- Calls the function that the module of the options returns, with the server and the store. Returns true; or nil and
-- the text for the owner.
local function set_up(module, server, store)
  local ok, raised = errors.attempt(function() require(module)(server, store) end)
  if ok then return true end
  local failed = core.new_error("thread_failed")
  failed.message = ("%s: the module '%s' has failed: %s"):format(failed.message, module, errors.text_of(raised.err))
  return nil, text_of(failed)
end

--- Returns the store and the server; or nil and the text for the owner.
local function open(opts)
  local ok, store, err = pcall(stores.open, opts.open)
  if not ok then return nil, literal.write { misuse = tostring(store) } end
  if not store then return nil, text_of(err) end
  local server
  local module = opts.module
  opts.open, opts.is_interpreted, opts.module, opts.store = nil, nil, nil, store
  ok, server, err = pcall(require("keywatch.server.server").serve, opts)
  if not ok then return nil, literal.write { misuse = tostring(server) } end
  if not server then return nil, text_of(err) end
  if not module then return store, server end
  ok, err = set_up(module, server, store)
  if ok then return store, server end
  server:close()
  store:close()
  return nil, err
end

local function serve(thread, opts)
  local store, server = open(opts)
  if not store then
    thread:report(server)
    return
  end
  local addresses, metrics_addresses = server:addresses()
  thread:report(literal.write { addresses = addresses, metrics_addresses = metrics_addresses })
  local grace = wait_until_asked(thread, server)
  if grace >= 0 then server:shutdown(grace) end
  store:close()
end

--- Runs the thread. An error ends the thread, and is logged at once, since the owner may ask for it much later.
local function main()
  local thread = uv.this_thread()
  local opts = literal.read(thread:text())
  if opts.is_interpreted then jit.off() end
  compat.collect_in_steps()
  local ok, raised = errors.attempt(driver.get().run, serve, thread, opts)
  if ok then return end
  log.error("a server's thread has failed: %s", raised.traceback)
  error(errors.text_of(raised.err), 0)
end

return { main = main }
