-- SPDX-License-Identifier: MIT
--- random_id: random identifiers: the UID of an object, and the end of a generated name. In virtual time they depend
-- only on the seed of the run. Otherwise they come from the system, so that servers that run side by side, and children
-- of a fork, do not make the same ones.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"

local SOURCE = "/dev/urandom"
local LETTERS = "bcdfghjklmnpqrstvwxz2456789" -- of generated names: no vowels, so that there are no words
local MAX_PREFIX, SUFFIX = 58, 5 -- characters of a generated name

local POOL = 512 -- bytes that are read at once

local source -- an open file, without a buffer
local pool, n_used, owner = "", 0, nil -- bytes of the source, how many of them are used, and the pid of their reader
local fallbacks = 0

--- Returns random bytes of a program without a source: a hash of the time and of a counter.
local function hashed(n)
  fallbacks = fallbacks + 1
  local seed = ("%d %s %s %d"):format(core.pid(), tostring(os.time()), tostring(os.clock()), fallbacks)
  return core.sha1(seed .. tostring(math.random())):sub(1, n)
end

--- Reads bytes of the source. Returns nil if there is none.
local function read(n)
  if source == nil then
    source = io.open(SOURCE, "rb") or false
    if source then source:setvbuf("no") end
  end
  return source and source:read(n) or nil
end

--- Returns random bytes of the system. A child of a fork does not use those that its parent has read.
local function of_system(n)
  local pid = core.pid()
  if owner ~= pid or n_used + n > #pool then pool, n_used, owner = read(POOL) or hashed(n), 0, pid end
  n_used = n_used + n
  return pool:sub(n_used - n + 1, n_used)
end

--- Returns n random bytes, at most 20.
local function bytes(n)
  if not driver.get().random then return of_system(n) end
  local list = {}
  for i = 1, n do list[i] = string.char(math.floor(driver.random() * 256)) end
  return table.concat(list)
end

--- Returns a UID: a random UUID (version 4).
local function uid()
  local a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p = bytes(16):byte(1, 16)
  return ("%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x"):format(a, b, c, d, e, f,
    g % 16 + 64, h, i % 64 + 128, j, k, l, m, n, o, p)
end

--- Returns a name that begins with `prefix`, the value of metadata.generateName.
local function name(prefix)
  local ends = {}
  for i, byte in ipairs { bytes(SUFFIX):byte(1, SUFFIX) } do
    local at = byte % #LETTERS + 1
    ends[i] = LETTERS:sub(at, at)
  end
  return prefix:sub(1, MAX_PREFIX) .. table.concat(ends)
end

return { uid = uid, name = name }
