-- SPDX-License-Identifier: MIT
--- staleness: logs once when the content of a client's cache is stale, and once when it has caught up.
--
-- The content is stale if the server was silent for some time and there is an error, or if a server that answers
-- progress requests has not answered several of them. The content of an idle prefix is not stale.

local log = require "keywatch.support.log"

local TROUBLED = 10 -- seconds of silence of the server, while there is trouble
local SILENT = 30   -- seconds of silence of a server that is asked every ten seconds, and answers
local INTERVAL = 1  -- the least seconds between two checks

local staleness_methods = {}
local staleness_mt = { __index = staleness_methods }

--- Returns a time of the driver's clock as a text: the time of day.
local function time_of_day(then_, now)
  return os.date("!%Y-%m-%dT%H:%M:%SZ", math.floor(os.time() - (now - then_)))
end

--- Returns why the content is stale, or nil. `seconds` is how long the server was silent.
local function reason_of(seconds, state)
  if seconds < TROUBLED then return nil end
  if state.trouble then return (state.trouble.message:gsub("^keywatch: ", "")) end
  if state.phase ~= "following" or seconds >= SILENT and state.is_trusted then return "the server does not answer" end
end

--- Logs that the content is stale. `text` follows the name of the cache.
local function warn(self, text, heard_at)
  self.stale_since = heard_at
  log.warn({ prefix = self.prefix }, "%s", ("the cache of %s %s"):format(log.quote(self.prefix), text))
end

--- Logs that the cache begins with the content of a file, which the server had at `heard_at`.
function staleness_methods:begin_with_file(path, heard_at, trouble, now)
  local why = trouble and trouble.message:gsub("^keywatch: ", "") or "the server does not answer"
  warn(self, ("begins with the content of the file %s, which is of %s: %s"):format(log.quote(path),
    time_of_day(heard_at, now), why), heard_at)
end

--- True if a cache whose server was heard so many seconds ago has caught up. A server whose progress cannot be trusted
-- is not asked: then an open watch is enough.
local function has_caught_up(seconds, state)
  if state.phase ~= "following" or not state.is_open then return false end
  return seconds < TROUBLED or state.is_trusted == false
end

--- Checks the state of a feed: its phase; trouble, an error or nil; is_trusted, whether its server answers progress
-- requests, nil if unknown; is_open, whether its watch is open; has_content; and heard_at, when its server was last
-- heard, nil if never. Returns the seconds until the next check.
function staleness_methods:look(now, state)
  local heard_at = math.max(state.heard_at or self.opened_at, self.opened_at)
  local seconds = now - heard_at
  local why = reason_of(seconds, state)
  if self.stale_since and has_caught_up(seconds, state) then
    log.info({ prefix = self.prefix }, "the cache of %s is up to date again, after %d seconds", log.quote(self.prefix),
      math.floor(now - self.stale_since))
    self.stale_since = nil
  elseif not self.stale_since and why then
    warn(self, ("has %s, and has heard nothing from its server since %s: %s"):format(
      state.has_content and "content that may be stale" or "no content yet", time_of_day(heard_at, now), why), heard_at)
  end
  if self.stale_since then return INTERVAL end
  return math.max(INTERVAL, heard_at + TROUBLED - now)
end

--- Returns the staleness of a cache that is being opened.
local function new(prefix, now)
  return setmetatable({
    prefix = prefix,
    opened_at = now,
    stale_since = nil, -- since when the content is stale; nil: not stale, or not logged
  }, staleness_mt)
end

return { new = new }
