-- SPDX-License-Identifier: MIT
--- snapshot_reader: a client that reads a snapshot of a store, and its speed.
--
-- A store has few snapshots at a time, each a file as large as the store. If there is none left for a new reader, the
-- slowest reader is ended, provided that it reads slower than SLOW. So readers that stop, or read only a little now and
-- then, cannot block backups. A reader at a usual speed is never ended for another one, however many arrive: an
-- attacker would have to read all snapshots at that speed. A new reader has WINDOW seconds to begin.

local driver = require "keywatch.task.driver"

local SLOW = 256 * 1024 -- bytes in a second
local WINDOW = 10       -- seconds over which a speed is measured; up to twice as many

local readers_of = setmetatable({}, { __mode = "k" }) -- sets of readers, by store

local reader_methods = {}
local reader_mt = { __index = reader_methods }

--- Counts bytes that the client has taken. Called with 0 when the client can begin to read.
function reader_methods:note(bytes)
  local now = driver.get().now()
  self.taken = self.taken + bytes
  if not self.last then
    self.before = { at = now, taken = 0 }
    self.last = self.before
  elseif now - self.last.at >= WINDOW then
    self.before, self.last = self.last, { at = now, taken = self.taken }
  end
end

--- Returns how many bytes the client takes per second; nil if it has just begun, or has nothing to read yet.
local function speed_of(reader, now)
  local since = reader.before
  if not since or now - since.at < WINDOW then return nil end
  return (reader.taken - since.taken) / (now - since.at)
end

--- Closes the snapshot.
function reader_methods:close()
  readers_of[self.store][self] = nil
  self.image:close()
end

--- Ends the slowest reader of a store. Returns false if none is slow.
local function end_slowest(store)
  local now, slowest, least = driver.get().now(), nil, SLOW
  for reader in pairs(readers_of[store] or {}) do
    local speed = speed_of(reader, now)
    if speed and speed < least then slowest, least = reader, speed end
  end
  if not slowest then return false end
  slowest.is_ended = true
  slowest:close()
  slowest.call.has_room:set()
  return true
end

--- Opens a snapshot for a call. Returns its reader; or nil and an error.
local function open(store, call)
  local image, err
  repeat
    image, err = store:open_snapshot()
  until image or err.code ~= "too_many_snapshots" or not end_slowest(store)
  if not image then return nil, err end
  local reader = setmetatable({
    store = store,
    call = call,
    image = image,
    taken = 0,        -- bytes that the client has taken
    before = nil,     -- { at =, taken = }: the bytes taken WINDOW ago or earlier
    last = nil,       -- the same, at a later time
    is_ended = false, -- ended for another reader: the snapshot is closed
  }, reader_mt)
  readers_of[store] = readers_of[store] or {}
  readers_of[store][reader] = true
  return reader
end

return { open = open, readers_of = readers_of }
