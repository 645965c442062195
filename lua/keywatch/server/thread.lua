-- SPDX-License-Identifier: MIT
--- thread: the handle of a server that runs in a separate thread, with its own Lua state and store.
--
-- The handle has the methods of a server. Options are passed to the thread, and addresses or an error are returned, as
-- Lua literals; see thread_main for the other side. The owner waits for the thread in C, without turning a loop.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local literal = require "keywatch.support.literal"
local uv = require "keywatch.uv"

local MODULE = "keywatch.server.thread_main"
local START_SECONDS = 30 -- longer than the timeout of a resolver
local GRACE = 5 -- seconds
local ANSWER_SECONDS = 10 -- longer than any turn of the thread's loop
local AT_ONCE = -1 -- a grace that asks the thread to close without waiting

local server_methods, server_mt = check.class "keywatch.server"

function server_mt:__tostring()
  return ("keywatch.server<%s>"):format(self.is_closed and "closed" or table.concat(self.urls, ","))
end

--- Returns the error of a thread that failed.
local function failure(text)
  local err = core.new_error("thread_failed")
  err.message = ("%s: %s"):format(err.message, text)
  return err
end

--- Returns the error whose fields the thread has sent.
local function error_of(fields)
  local err = core.new_error(fields.code)
  for name, value in pairs(fields) do err[name] = value end
  return err
end

-- {====== Waiting for the thread ======

local poller_methods = {}
local poller_mt = { __index = poller_methods }

local function has_ended(server)
  return server.is_closed or server.thread:has_ended()
end

--- For the driver.
function poller_methods:poll()
  if has_ended(self.server) or self.is_over() then self.over:set() end
end

--- For the driver, in a child process: the thread and the waiting task stay in the parent.
function poller_methods:after_fork()
  driver.get().detach(self)
end

--- Parks the task until the thread has ended, or is_over() returns a true value; at most `seconds`, if given.
local function park_until(server, is_over, seconds)
  local d = driver.get()
  local poller = setmetatable({ server = server, is_over = is_over, over = d.event() }, poller_mt)
  d.hear(server.thread)
  d.attach(poller)
  local ok, err = pcall(poller.over.wait, poller.over, seconds)
  d.detach(poller)
  if not ok then error(err, 0) end
end

local function never() return false end

-- }======

--- Returns the results of close and shutdown, the same at every call: true; or nil and the error of the thread.
local function outcome(server)
  if server.failure then return nil, server.failure end
  return true
end

--- Waits in C until the thread has ended.
local function join(server)
  local ok, text = server.thread:join()
  server.is_closed = true
  server.urls = {}
  server.failure = not ok and failure(text) or nil
  server.thread:close()
  return outcome(server)
end

--- Returns the URLs that the server listens on, and those of `listen_metrics`; none once the thread has ended.
function server_methods:addresses()
  if has_ended(self) then return {}, {} end
  return check.copy(self.urls), check.copy(self.metrics_urls)
end

--- Closes every connection, and ends the thread. Does nothing in a child process, which does not have the thread.
function server_methods:close()
  if self.is_closed then return outcome(self) end
  if not self.thread:is_here() then return true end
  self.thread:stop(AT_ONCE)
  return join(self)
end

--- Shuts down like a server without a thread. In a task, other tasks keep running; otherwise the program blocks.
function server_methods:shutdown(grace)
  check.timeout(grace, "shutdown")
  if self.is_closed then return outcome(self) end
  self.thread:stop(math.max(0, grace or GRACE))
  if driver.get().can_park() then park_until(self, never) end
  if self.is_closed then return outcome(self) end -- another task has closed the server
  return join(self)
end

--- Returns the text of the metrics, which the thread makes; or nil and an error. In a task, other tasks keep running;
-- otherwise the program blocks.
function server_methods:metrics()
  if self.is_closed then check.misuse("metrics: the server is closed") end
  local question, text = self.thread:ask(), nil
  if driver.get().can_park() then
    park_until(self, function()
      text = self.thread:answer(question, 0)
      return text
    end, ANSWER_SECONDS)
  else
    text = self.thread:answer(question, ANSWER_SECONDS)
  end
  if text and text ~= "" then return text end
  if has_ended(self) then return nil, failure "it has ended" end
  return nil, failure(("it does not answer within %d seconds"):format(ANSWER_SECONDS))
end

--- Returns a method that raises: functions cannot be passed to another thread.
local function refuse(name)
  return function()
    check.misuse("%s: a function cannot go to another thread: name a module that calls %s there as the option 'module' "
      .. "of serve", name, name)
  end
end

for _, name in ipairs { "mount", "use", "handle" } do server_methods[name] = refuse(name) end

-- {====== Starting ======

--- Returns the options as a text that the thread can read.
local function options_text(opts)
  local given = check.copy(opts, "thread")
  given.is_interpreted = jit and not jit.status() or nil
  local ok, text = pcall(literal.write, given)
  if not ok then check.misuse("serve: option 'open' cannot go to another thread: %s", text) end
  return text
end

--- Returns the error of a thread that failed to start its server.
local function failed_start(thread)
  if not thread:has_ended() then
    thread:abandon()
    return failure(("it has not started within %d seconds"):format(START_SECONDS))
  end
  local _, text = thread:join()
  thread:close()
  return failure(text)
end

--- Starts a server with the options of keywatch.serve, which were checked already. Waits until the server listens.
local function start(opts)
  local thread, text = uv.start_thread(MODULE, package.path, package.cpath, options_text(opts))
  if not thread then return nil, failure(text) end
  text = thread:wait(START_SECONDS)
  if not text then return nil, failed_start(thread) end
  local report = literal.read(text)
  if report.addresses then
    return setmetatable({
      thread = thread,
      urls = report.addresses,
      metrics_urls = report.metrics_addresses,
      failure = nil, -- the error with which the thread has ended
      is_closed = false,
    }, server_mt)
  end
  thread:close()
  if report.misuse then check.misuse("serve: %s", (report.misuse:gsub("^serve: ", ""))) end
  return nil, error_of(report.failure)
end

-- }======

return { start = start, methods = server_methods }
