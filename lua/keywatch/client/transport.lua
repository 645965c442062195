-- SPDX-License-Identifier: MIT
--- channel: the way of a client to its servers. One connection is in use at a time; it is opened when it is first
-- needed, and anew when it has ended, or in another process.
--
-- All that happens by itself happens in `poll`, which the driver calls while somebody waits, or watches: there are no
-- tasks beneath a client, so it works at top level, too.
--
-- What has not reached a server is tried again until the deadline. Of what may have reached one, only reads are.

local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local dialer = require "keywatch.client.dialer"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local grpc_status = require "keywatch.support.grpc_status"
local methods = require "keywatch.client.methods"
local streams = require "keywatch.client.watch_calls"

local AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"
local LONGEST = 99999999 -- of a timeout on the wire
local FRESH = 0.001      -- seconds, after which a connection may have ended, and nobody have looked

local channel_methods = {}
local channel_mt = { __index = channel_methods }

local function new(endpoints, opts)
  local self = setmetatable({
    opts = opts,
    dialer = dialer.new(endpoints, {
      handshake_timeout = opts.connect_timeout,
      keepalive = opts.keepalive,
      keepalive_timeout = opts.keepalive_timeout,
      max_message = opts.max_message,
    }),
    pid = core.pid(),
    line = nil,      -- that calls go to
    lines = {},      -- all that are open
    opened = nil,    -- one whose user is being authenticated
    opened_until = 0,
    uses = 0,        -- calls under way, and those who wait for a connection
    waiting = 0,     -- of them, the latter
    top = { uses = 0, waiting = 0 }, -- of both, those at top level: they go on after a fork
    is_attached = false,
    is_closed = false,
    polled_at = 0,   -- when all was looked at last
    changed = nil,   -- an event: there is a connection, or there will be none
    closing = nil,   -- the same: it is closed
    guarded = setmetatable({}, { __mode = "v" }),
    sentinel = nil,  -- while there are calls
    refusal = nil,   -- an error: why the server does not take the user
  }, channel_mt)
  self.streams = streams.new(self)
  return self
end

-- {====== The driver ======

--- The driver polls it while there is something to wait for, or something may come that nobody waits for: the loop
-- would not rest before that was taken.
function channel_methods:update()
  local has_lines = next(self.lines) ~= nil or self.dialer.line ~= nil
  local is_wanted = not self.is_closed and (self.uses > 0 or has_lines or self.streams:has_watches())
  if is_wanted == self.is_attached then return end
  self.is_attached = is_wanted
  local d = driver.get()
  if is_wanted then d.attach(self) else d.detach(self) end
end

--- It is closed when the sentinel of its client is collected, which does not happen while calls are under way.
function channel_methods:guard(sentinel)
  self.guarded[1] = sentinel
end

local function count(self, what, n)
  self[what] = self[what] + n
  if compat.is_main() then self.top[what] = self.top[what] + n end
end

function channel_methods:retain()
  count(self, "uses", 1)
  self.sentinel = self.guarded[1]
  self:update()
end

function channel_methods:release()
  count(self, "uses", -1)
  if self.uses == 0 then self.sentinel = nil end
  self:update()
end

--- What was opened in another process is not ours, and what was asked there is not answered here.
function channel_methods:check_process()
  local pid = core.pid()
  if pid == self.pid then return end
  self.pid = pid
  local lines = self.lines
  self.line, self.lines, self.opened = nil, {}, nil
  self.uses, self.waiting = self.top.uses, self.top.waiting
  driver.get().look() -- which ends the connections
  for line in pairs(lines) do line:poll() end
  self.dialer.line, self.dialer.lookup, self.dialer.addresses = nil, nil, nil
  self.streams:restart()
end

-- }======

-- {====== Connections ======

local function tell(self)
  if self.changed then self.changed:set() end
end

local function adopt(self, line)
  self.opened, self.line, self.refusal = nil, line, nil
  tell(self)
end

--- A connection ends, and so does what is under way on it.
local function drop(self, line, now, text)
  self.lines[line] = nil
  if self.line == line or self.opened == line then self.dialer:lost(line, now, text) end
  if self.line == line then self.line = nil end
  if self.opened == line then self.opened = nil end
  if not line.is_over then
    line:close()
    line:poll() -- calls are told
    self.streams:poll_line(line)
  end
  tell(self)
end

--- Whoever waits for a connection is told.
local function refuse(self, line, err)
  if self.waiting > 0 then self.refusal = err end
  self.streams:fail_idle(err)
  drop(self, line, driver.get().now(), err.message)
end

local function take_token(self, line, message)
  local answer, err = methods.decode("AuthenticateResponse", message or "\255")
  if not answer then return refuse(self, line, err) end
  line.metadata = { token = answer.token }
  adopt(self, line)
end

--- Everybody's calls wait for one authentication.
local function authenticate(self, line)
  local now = driver.get().now()
  self.opened, self.opened_until = line, now + self.opts.timeout
  local bytes = core.encode("AuthenticateRequest", { name = self.opts.user, password = self.opts.password })
  local number = line:ask(AUTHENTICATE, bytes, function(message, status, text)
    if self.opened ~= line then return end
    if status == grpc_status.OK then
      take_token(self, line, message)
    elseif text == "etcdserver: authentication is not enabled" then
      line.metadata = {}
      adopt(self, line)
    elseif status == grpc_status.UNAVAILABLE then
      drop(self, line, driver.get().now(), text)
    else
      refuse(self, line, core.error_of(status, text))
    end
  end, {}) -- etcd looks at an old token, and refuses it
  if not number then drop(self, line, now) end
end

local function take_opened(self, line)
  self.lines[line] = true
  if self.opts.user then authenticate(self, line) else adopt(self, line) end
end

--- One that takes no more calls is kept as long as some are under way.
local function poll_line(self, line, now)
  local is_ready, is_over, why, is_pestered = line:poll()
  self.streams:poll_line(line)
  if is_pestered and not line.was_pestered then
    line.was_pestered = true
    self.dialer.options.keepalive = self.dialer.options.keepalive * 2
  end
  if is_over then
    drop(self, line, now, why or "the connection has ended")
  elseif not is_ready and self.line == line then
    self.line = nil
    self.dialer:lost(line, now, why)
    tell(self)
  end
  if not is_over and self.line ~= line and self.opened ~= line and line.count == 0 then drop(self, line, now) end
end

--- Moves everything on: the seconds until it wants to be called again, or nil.
function channel_methods:poll()
  self:check_process()
  local now = driver.get().now()
  self.polled_at = now
  for line in pairs(self.lines) do poll_line(self, line, now) end
  local wait = self.streams:poll(now)
  if self.opened and now >= self.opened_until then
    drop(self, self.opened, now, "it does not answer to Authenticate in time")
  elseif self.opened then
    wait = math.min(wait or math.huge, self.opened_until - now)
  end
  local is_asked = self.waiting > 0 or self.dialer.line ~= nil or self.streams:wants_line(now)
  if not self.line and not self.opened and is_asked then
    local line, seconds = self.dialer:poll(now)
    if line then
      take_opened(self, line)
      wait = 0
    elseif seconds and (not wait or seconds < wait) then
      wait = seconds
    end
  end
  self:update()
  return wait
end

--- Looks at everything once, without waiting.
function channel_methods:look()
  self:check_process()
  self:poll()
  driver.get().look()
  self:poll()
end

local function await_change(self, deadline)
  return self.changed:wait(deadline and math.max(0, deadline - driver.get().now()))
end

--- A connection that takes calls, which is waited for; or nil and an error.
function channel_methods:await_line(deadline)
  self:check_process()
  if self.is_closed then return nil, errors.closed("client") end
  if self.line and driver.get().now() - self.polled_at > FRESH then
    self:look() -- at what was said last
    self:look() -- at the end, if one came after it
  end
  if self.line then return self.line end
  self.changed = self.changed or driver.get().event() -- before the look: a finalizer may close the channel meanwhile
  count(self, "waiting", 1)
  self:retain()
  local ok, came = true, true
  while ok and came and not (self.line or self.refusal or self.is_closed) do
    ok, came = pcall(await_change, self, deadline)
  end
  count(self, "waiting", -1)
  self:release()
  if not ok then error(came, 0) end
  if self.is_closed then return nil, errors.closed("client") end
  if self.line then return self.line end
  local refusal = self.refusal
  if self.waiting == 0 then self.refusal = nil end
  return nil, refusal or self.dialer:error()
end

-- }======

-- {====== Calls ======

--- When a call has to be over.
function channel_methods:deadline_of(timeout, deadline)
  if deadline then return deadline end
  return driver.get().now() + (timeout or self.opts.timeout)
end

--- A deadline as a header line has it.
local function timeout_of(deadline, now)
  local ms = math.max(1, math.ceil((deadline - now) * 1000))
  if ms <= LONGEST then return ("%dm"):format(ms) end
  return ("%dS"):format(math.min(LONGEST, math.ceil(ms / 1000)))
end

--- The lines of a call: those of the connection, of the caller, and the deadline.
local function metadata_of(line, deadline, now, own)
  local metadata = {}
  for name, value in pairs(line.metadata) do metadata[name] = value end
  if own then
    for name, value in pairs(own) do metadata[name] = value end
  end
  if deadline and deadline < math.huge then metadata["grpc-timeout"] = timeout_of(deadline, now) end
  return metadata
end

local waiter_methods = {}
local waiter_mt = { __index = waiter_methods }

function waiter_methods:on_ready(line, number)
  self.message, self.status, self.text, self.is_refused = line:finish(number)
  self.is_done = true
  self.event:set()
end

local function await_answer(who, deadline)
  local d = driver.get()
  while not who.is_done do
    if not who.event:wait(deadline and math.max(0, deadline - d.now())) then return false end
  end
  return true
end

--- An error of a call that was sent, which says so if a write may have been made.
local function doubt(err, is_read)
  if not is_read then err.maybe_done = true end
  return err
end

--- One try on one connection: a waiter that is done; or nil, if it could not begin, or false, if time is over.
local function try(self, line, path, bytes, deadline, is_read, metadata)
  local d = driver.get()
  local who = setmetatable({ event = d.event(), is_done = false, token = line.metadata.token }, waiter_mt)
  local number = line:begin(path, bytes, metadata_of(line, deadline, d.now(), metadata), who)
  if not number then return nil end
  self:retain()
  local ok, came = pcall(await_answer, who, deadline)
  self:release()
  if not who.is_done then line:cancel(number) end
  if not ok then error(type(came) == "table" and doubt(came, is_read) or came, 0) end
  return came and who
end

--- Whether the server wants another token than the one that it was given, or one at all.
local function wants_token(status, text)
  return status == grpc_status.UNAUTHENTICATED or text == "etcdserver: user name is empty"
    or text == "etcdserver: revision of auth store is old"
end

--- Whether a failure may be one of the token that was sent. Then everybody waits for another, unless there is one now.
function channel_methods:renew(line, token, status, text)
  if not self.opts.user or not wants_token(status, text) then return false end
  if self.line == line and line.metadata.token == token then
    self.line = nil
    authenticate(self, line)
  end
  return true
end

local function is_worth_another(who, is_read)
  return who.is_refused or is_read and who.status == grpc_status.UNAVAILABLE
end

--- The server of a connection is of no use: others are tried first.
function channel_methods:turn_away(line)
  if self.line ~= line or #self.dialer.endpoints == 1 then return end
  self.line = nil
  self.dialer:turn_away()
end

--- After a server has refused, it is given some time.
local function pause(self, line, failures, deadline)
  local d = driver.get()
  self:turn_away(line)
  local seconds = dialer.backoff(failures)
  if deadline and d.now() + seconds > deadline then return false end
  self.closing = self.closing or d.event()
  if self.is_closed then return true end -- a finalizer was before the event
  self:retain()
  local ok, err = pcall(self.closing.wait, self.closing, seconds)
  self:release()
  if not ok then error(err, 0) end
  return true
end

-- Statuses of a call that the server may have carried out.
local IN_DOUBT = {
  [grpc_status.CANCELLED] = true,
  [grpc_status.UNKNOWN] = true,
  [grpc_status.DEADLINE_EXCEEDED] = true,
  [grpc_status.INTERNAL] = true,
  [grpc_status.UNAVAILABLE] = true,
}

local function error_of(who, is_read)
  local err = core.error_of(who.status, who.text)
  local is_done = err.code == "answer_too_large"
  return doubt(err, is_read or not is_done and (who.is_refused or not IN_DOUBT[who.status]))
end

--- A call with one message and one answer: its bytes, or nil and an error. `is_read`: it may be made more than once.
function channel_methods:unary(path, bytes, deadline, is_read, metadata)
  local failures, renewals = 0, 0
  local d = driver.get()
  local may_wait = not self.is_closed and (not deadline or deadline > d.now())
  if may_wait then d.check_wait() end -- before anything is sent
  while true do
    local line, err = self:await_line(deadline)
    if not line then return nil, err end
    local who = try(self, line, path, bytes, deadline, is_read, metadata)
    if who == false then return nil, doubt(core.new_error("deadline_exceeded"), is_read) end
    if who and who.status == grpc_status.OK and who.message then return who.message end
    if self.is_closed then return nil, doubt(errors.closed("client"), is_read or not who) end
    if who and who.status == grpc_status.OK then
      return nil, doubt(core.error_of(grpc_status.INTERNAL, "keywatch: an answer without a message"), is_read)
    end
    if who and renewals == 0 and self:renew(line, who.token, who.status, who.text) then
      renewals = 1
    elseif who and not is_worth_another(who, is_read) then
      return nil, error_of(who, is_read)
    elseif not who and self.line == line then
      self.line = nil
    elseif who then
      failures = failures + 1
      if self.line == line and not pause(self, line, failures, deadline) then
        return nil, error_of(who, is_read)
      end
    end
  end
end

-- }======

--- Ends everything: calls that are under way fail, and watches.
function channel_methods:close()
  if self.is_closed then return end
  self:check_process()
  self.is_closed = true
  self.streams:close()
  for line in pairs(self.lines) do
    line.core:close() -- its calls end
    line:poll()
    line:close()
  end
  self.dialer:stop()
  self.lines, self.line, self.opened = {}, nil, nil
  tell(self)
  if self.closing then self.closing:set() end
  self:update()
  driver.get().look() -- the servers hear of it, though nobody may wait for anything any more
end

return { new = new, metadata_of = metadata_of }
