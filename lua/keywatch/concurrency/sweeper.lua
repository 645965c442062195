-- SPDX-License-Identifier: MIT
--- sweeper: deletes the keys of a session that are no longer needed, in the background: of a call that was cancelled
-- or has timed out, of a lock that could not be released.
--
-- The sweeper tries until the key is deleted, or the session is lost, whose end deletes the key. It works in a task.
-- `poll`, which the driver calls while there are keys, starts the task, also after an earlier one was cancelled at the
-- end of a run.
--
-- A request to create a key that has failed with `maybe_done` may still be executed later. The entry of the key (see
-- entry.lua) counts such requests in `late_creates`. The sweeper deletes the key again and again, until it has found
-- the key that many times, or MAX_LATE seconds have passed since the last of these requests. Another call may take the
-- entry between two deletions.

local lock_requests = require "keywatch.concurrency.lock_requests"
local driver = require "keywatch.task.driver"

local MAX_LATE = 10     -- seconds: longer than an etcd works on an abandoned request
local REQUEST = 10      -- seconds for one deletion
local FIRST_PAUSE = 0.05 -- seconds between two rounds, doubled each time
local LONGEST_PAUSE = 2

local sweeper_methods = {}
local sweeper_mt = { __index = sweeper_methods }

--- Returns the sweeper of a session. leave(entry) is called when the key of an entry is gone.
local function new(leave)
  return setmetatable({
    leave = leave,
    list = {},  -- entries whose keys are to be deleted
    task = nil, -- the task that does that
    changed = nil, -- driver event: set when an entry was added
  }, sweeper_mt)
end

--- Notes a request whose key may still be created later.
local function expect_create(entry)
  entry.late_creates, entry.late_until = entry.late_creates + 1, driver.get().now() + MAX_LATE
end

--- True if a failed request may still create a key.
local function may_be_created(entry)
  if entry.late_creates > 0 and driver.get().now() >= entry.late_until then entry.late_creates = 0 end
  return entry.late_creates > 0
end

-- {====== Sweeping ======

--- Wakes the callers that wait for the deletion of an entry's key.
local function announce(entry)
  local swept = entry.swept
  entry.swept = nil
  if swept then swept:set() end
end

--- Removes an entry from the list, and wakes the callers that wait for that.
local function remove(self, entry)
  for i = #self.list, 1, -1 do
    if self.list[i] == entry then table.remove(self.list, i) end
  end
  entry.is_listed = false
  announce(entry)
end

--- Reads a key, and deletes it. Returns true, or false if it did not exist; or nil and an error.
local function find_and_delete(root, key)
  local result, err = root:range(key, { keys_only = true, timeout = REQUEST })
  if not result then return nil, err end
  local kv = result.kvs[1]
  if not kv then return false end
  return lock_requests.delete(root, key, kv.create_revision, { timeout = REQUEST })
end

--- Deletes the key of an entry. Returns true if there is nothing left to do now. A key that is known to exist is not
-- that of a late request.
local function delete(entry)
  local session = entry.session
  entry.state = "sweeping"
  local ok, is_deleted, err = driver.attempt(find_and_delete, session.root, entry.key)
  if not ok then
    err = is_deleted -- a usage error: the store was closed
  elseif is_deleted ~= nil then
    if is_deleted and not entry.is_known and entry.late_creates > 0 then entry.late_creates = entry.late_creates - 1 end
    entry.is_known = false
    return true
  end
  return session:error() ~= nil or type(err) ~= "table" or err.code == "closed"
end

--- Processes all entries once. Returns true if there is work left. Between two rounds an entry with late requests may
-- be taken.
local function sweep(self)
  local entries = {}
  for i, entry in ipairs(self.list) do entries[i] = entry end
  for _, entry in ipairs(entries) do
    if entry.state == "taken" or entry.state == "gone" then
      remove(self, entry) -- the call that has the entry deletes the key
    elseif entry.session:error() then
      entry.late_creates = 0
      remove(self, entry)
      self.leave(entry)
    elseif delete(entry) then
      if not may_be_created(entry) or entry.session:error() then
        entry.late_creates = 0
        remove(self, entry)
        self.leave(entry)
      else
        announce(entry)
        self.leave(entry) -- an entry with late requests becomes free, and stays in the session
      end
    end
  end
  return self.list[1] ~= nil
end

--- The function of the task.
local function work(self)
  local pause = FIRST_PAUSE
  while sweep(self) do
    if self.changed:wait(pause) then pause = FIRST_PAUSE else pause = math.min(2 * pause, LONGEST_PAUSE) end
  end
end

-- }======

--- Starts the task, if there is work and no such task. The driver calls this while there is work.
function sweeper_methods:poll()
  if not self.list[1] then
    driver.get().detach(self)
  elseif not self.task or self.task.state == "done" then
    self.task = driver.get().spawn_own(work, self)
  end
end

--- Adds an entry whose key must be deleted.
function sweeper_methods:add(entry)
  self.changed = self.changed or driver.get().event()
  entry.state = "sweeping"
  if not entry.is_listed then
    entry.is_listed = true
    self.list[#self.list + 1] = entry
  end
  driver.get().attach(self)
  self:poll()
  self.changed:set()
end

--- Waits until the key of an entry was deleted, `seconds` at most.
function sweeper_methods.await(_, entry, seconds)
  if entry.state ~= "sweeping" then return end
  entry.swept = entry.swept or driver.get().event()
  entry.swept:wait(seconds)
end

--- In the child after a fork, called by the driver: the keys stay with the parent.
function sweeper_methods:after_fork()
  for i = #self.list, 1, -1 do
    self.list[i].is_listed = false
    self.list[i] = nil
  end
  driver.get().detach(self)
end

return { new = new, expect_create = expect_create, may_be_created = may_be_created }
