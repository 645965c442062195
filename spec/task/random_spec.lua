--- Random programs of tasks that send, receive and select over channels, wait for events and for each other, and are
-- cancelled at any time, on virtual time. After each step the invariants of the scheduler hold.
--
-- Rules for all programs: a value whose sending succeeded is received once, or still in its channel at the end;
-- one whose sending failed never is. A receiver gets the values of a sender in the order in which they were sent. No
-- wait ends too early or without reason, and no task waits for a value that is there. Finalizers may act at any
-- time.

local compat = require "keywatch.support.compat"
local virtual = require "keywatch.driver.virtual"

local dose = require "spec.support.dose"
local new_random = require("spec.support.random").new
local occurrences = require "spec.support.occurrences"
local scheduler = require "spec.support.scheduler"

local seed = tonumber(os.getenv("KW_SEED")) or os.time()

local ROUNDS = dose.of(8, 60)
local TASKS, STEPS = 8, 40

local CHOICES = {
  { 5, "send" }, { 5, "receive" }, { 4, "select" }, { 2, "send or receive" }, { 1, "cancel" }, { 1, "sleep" },
  { 1, "join" }, { 3, "spawn" }, { 3, "wait" }, { 3, "set" },
}
local EVENTS = 4
local TIMEOUTS = { 0, 1, 3 }

local counts = {} -- how often each thing happened, in a program

local function count(what) counts[what] = (counts[what] or 0) + 1 end

--- Returns which task waits for a value that is there, or nil.
local function vain_wait(channel)
  local is_empty, is_full = channel:count() == 0, channel:count() >= channel.capacity
  if channel:count() > channel.capacity then return "a channel holds more than it may" end
  local function has_parked(event)
    for _, waiter in ipairs(event) do
      local is_parked = waiter and (waiter.state == "parked" or waiter.target and waiter.target[1])
      if is_parked then return true end
    end
  end
  local receives, sends = has_parked(channel), channel.senders and has_parked(channel.senders)
  if receives and not is_empty then return "a receiver waits, and there is a value" end
  if sends and not is_full then return "a sender waits, and there is room" end
  if channel.is_closed and (receives or sends) then return "a task waits for a closed channel" end
end

local Program = {}
Program.__index = Program

--- With garbage, finalizers act at some time, so that the program is not the same each time.
local function new_program(number, has_garbage)
  local self = setmetatable({
    random = new_random(number),
    driver = virtual.new(),
    channels = {},
    events = {},   -- { event =, sets = how often it was set }
    tasks = {},
    spawned = 0,
    sent = {},     -- by value: "under way", "sent" or "failed"
    received = {}, -- by value: how often
    newest = {},   -- by receiver, sender and channel: the number of the last value
    lines = {},
    count = 0,
    has_garbage = has_garbage,
    is_over = false,
  }, Program)
  for i = 1, EVENTS do self.events[i] = { event = self.driver.event(), sets = 0 } end
  for i, capacity in ipairs { 0, 0, 1, 3 } do self.channels[i] = self.driver.channel(capacity) end
  return self
end

function Program:note(name, what, ...)
  self.lines[#self.lines + 1] = ("%g %s %s"):format(self.driver.now(), name, what:format(...))
  assert.is_nil(scheduler.check(self.driver))
  for _, channel in ipairs(self.channels) do assert.is_nil(vain_wait(channel)) end
end

function Program:new_value(name)
  self.count = self.count + 1
  local value = { sender = name, number = self.count }
  self.sent[value] = "under way"
  return value
end

function Program:has_sent(value, ok, err)
  count(ok and "sent" or err.code)
  self.sent[value] = ok and "sent" or "failed"
end

function Program:has_received(name, i, value)
  count "received"
  self.received[value] = (self.received[value] or 0) + 1
  local way = ("%s to %s by %d"):format(value.sender, name, i)
  assert.is_true((self.newest[way] or 0) < value.number)
  self.newest[way] = value.number
end

--- Calls fn. A value whose sending was cancelled was not sent.
function Program:careful(values, fn, ...)
  local function after(ok, ...)
    if ok then return ... end
    local err = ...
    if type(err) ~= "table" then error(err, 0) end
    count(err.code)
    for _, value in ipairs(values) do self:has_sent(value, nil, err) end
    error(err, 0)
  end
  return after(pcall(fn, ...))
end

--- Selects over random channels, in random directions.
function Program:select(name, may_send)
  local objects, values, index = { timeout = self.random:pick(TIMEOUTS) }, {}, {}
  for i, channel in ipairs(self.channels) do
    local is_sending = may_send and self.random:one_in(2)
    if is_sending then
      values[#values + 1] = self:new_value(name)
      objects[#objects + 1] = channel:sending(values[#values])
      index[objects[#objects]] = values[#values]
    end
    if not is_sending or self.random:one_in(3) then
      objects[#objects + 1] = channel
      index[channel] = i
    end
  end
  local which, result, err = self:careful(values, self.driver.select, objects)
  for _, value in ipairs(values) do
    local is_chosen = which and index[which] == value
    self:has_sent(value, is_chosen and result, is_chosen and err or { code = "not chosen" })
  end
  local i = which and index[which]
  if type(i) == "number" and result ~= nil then self:has_received(name, i, result) end
  self:note(name, "selects %s", tostring(type(i) == "number" and i or i and i.number))
end

local does = {}

function does.send(self, name)
  local i, value = self.random:between(1, #self.channels), self:new_value(name)
  self:has_sent(value, self:careful({ value }, self.channels[i].send, self.channels[i], value,
    self.random:pick(TIMEOUTS)))
  self:note(name, "sends %d by %d", value.number, i)
end

function does.receive(self, name)
  local i = self.random:between(1, #self.channels)
  local value = self:careful({}, self.channels[i].receive, self.channels[i], self.random:pick(TIMEOUTS))
  if value then self:has_received(name, i, value) end
  self:note(name, "receives %s by %d", tostring(value and value.number), i)
end

function does.select(self, name) self:select(name, false) end
does["send or receive"] = function(self, name) self:select(name, true) end

function does.cancel(self, name)
  local other = self.tasks[self.random:between(1, #self.tasks)]
  other:cancel()
  self:note(name, "cancels one")
end

function does.sleep(self) self.driver.sleep(self.random:pick { 0, 0, 1 }) end

function does.join(self, name)
  local list = { timeout = self.random:pick { 0, 1 } }
  for i, task in ipairs(self.tasks) do
    if self.random:one_in(3) and self.tasks[name] ~= task then list[#list + 1] = self.tasks[i] end
  end
  self:note(name, "joins: %s", tostring((self.driver.join(list))))
end

function does.spawn(self) self:spawn() end

--- A wait succeeds only if the event was set, and a timeout does not end early.
function does.wait(self, name)
  local i, timeout = self.random:between(1, EVENTS), self.random:pick(TIMEOUTS)
  local one, ends_at = self.events[i], self.driver.now() + timeout
  local sets, was_set = one.sets, one.event.is_set
  local came = self:careful({}, one.event.wait, one.event, timeout)
  if came then assert(was_set or one.sets > sets) else assert(self.driver.now() >= ends_at) end
  count(came and "came" or "late")
  self:note(name, "waits for %d: %s", i, tostring(came))
end

function does.set(self, name)
  local i = self.random:between(1, EVENTS)
  self.events[i].sets = self.events[i].sets + 1
  self:note(name, "sets %d: %s", i, tostring(self.events[i].event:set()))
end

--- What a finalizer does that comes at some time, in whatever it interrupts. A wait is refused.
function Program:leave_garbage()
  local act = self.random:pick { "set", "spawn", "cancel", "sleep" }
  compat.sentinel(function()
    if self.is_over then return end
    count "finalized"
    if act == "set" then
      self.events[1].sets = self.events[1].sets + 1
      self.events[1].event:set()
    elseif act == "spawn" then
      self:spawn()
    elseif act == "cancel" then
      self.tasks[1]:cancel()
    else
      local ok, err = pcall(self.driver.sleep, 1)
      if not ok and tostring(err):find(" waits, but the ", 1, true) then count "refused" end
    end
  end)
  if self.random:one_in(8) then collectgarbage("step", 50) end
end

function Program:spawn()
  if self.spawned >= 3 * TASKS then return end
  self.spawned = self.spawned + 1
  local name = "t" .. self.spawned
  local task = self.driver.spawn(function()
    for _ = 1, STEPS do
      does[self.random:weighted(CHOICES)](self, name)
      if self.has_garbage then self:leave_garbage() end
    end
  end)
  self.tasks[self.spawned], self.tasks[name] = task, task
end

--- Runs the program. Returns what happened, line by line.
function Program:play()
  self.driver.run(function()
    for _ = 1, TASKS do self:spawn() end
    self.driver.sleep(self.random:between(0, 8))
    local is_closing = self.random:one_in(2)
    if is_closing then self.channels[self.random:between(1, #self.channels)]:close() end
    for i = 1, 3 * TASKS do
      local task = self.tasks[i]
      if task then
        local ok, err = task:join()
        if not ok and err.code ~= "cancelled" then error(err, 0) end
      end
    end
    self.is_over = true
    for i, channel in ipairs(self.channels) do
      for value in function() return channel:receive(0) end do self:has_received("end", i, value) end
    end
  end)
  for value, state in pairs(self.sent) do
    assert.equal(state == "sent" and 1 or 0, self.received[value] or 0)
    assert.not_equal("under way", state)
  end
  return table.concat(self.lines, "\n")
end

describe("random programs of tasks", function()
  local outcomes = { "sent", "received", "timeout", "cancelled", "closed", "not chosen", "came", "late" }

  it("lose nothing, repeat nothing and wake all waiters", function()
    occurrences.await(outcomes, ROUNDS, function(i)
      counts = {}
      new_program(seed + i):play()
      return counts
    end)
  end)

  it("do so though finalizers act in the middle of anything", function()
    occurrences.await({ "finalized", "refused", "came" }, math.ceil(ROUNDS / 6), function(i)
      counts = {}
      new_program(seed + i, true):play()
      return counts
    end)
  end)

  it("do the same in every run of one program, and differ between programs", function()
    local first = new_program(seed):play()
    assert.equal(first, new_program(seed):play())
    assert.not_equal(first, new_program(seed + 1):play())
  end)
end)
