-- SPDX-License-Identifier: MIT
--- staleness: logs once when the content of a client's cache is stale, and once when it has caught up.
--
-- The content is stale if the server was silent for WARN_AFTER seconds, and there is an error, or the cache does not
-- follow a watch; or if a server that answers progress requests was silent for QUIET_WARN_AFTER seconds. An idle prefix
-- does not make the content stale: the server then answers progress requests.

local log = require "keywatch.support.log"

local WARN_AFTER = 10       -- seconds of silence of the server, if there is an error, or the cache follows no watch
local QUIET_WARN_AFTER = 30 -- the same without an error: progress is requested every ten seconds
local MIN_INTERVAL = 1      -- seconds between two checks

local staleness_methods = {}
local staleness_mt = { __index = staleness_methods }

--- Converts a time of the driver's clock to a text: the date and the time in UTC. `now` is the present time of that
-- clock.
local function date_of(time, now)
  return os.date("!%Y-%m-%dT%H:%M:%SZ", math.floor(os.time() - (now - time)))
end

--- Returns why the content is stale, or nil. `seconds` is how long the server has been silent.
local function reason_of(seconds, state)
  if seconds < WARN_AFTER then return nil end
  if state.trouble then return (state.trouble.message:gsub("^keywatch: ", "")) end
  local is_quiet = seconds >= QUIET_WARN_AFTER and state.is_trusted
  if state.phase ~= "following" or is_quiet then return "the server does not answer" end
end

--- Logs that the content is stale since `confirmed_at`. `text` is the predicate, whose subject is the cache.
local function warn(self, text, confirmed_at)
  self.stale_since = confirmed_at
  log.warn({ prefix = self.prefix }, "%s", ("the cache of %s %s"):format(log.quote(self.prefix), text))
end

--- Logs that the cache begins with the content of a file: the state of the server at `confirmed_at`.
function staleness_methods:begin_with_file(path, confirmed_at, trouble, now)
  local why = trouble and trouble.message:gsub("^keywatch: ", "") or "the server does not answer"
  warn(self, ("begins with the content of the file %s, as of %s: %s"):format(log.quote(path),
    date_of(confirmed_at, now), why), confirmed_at)
end

--- True if the cache has caught up. `seconds` is how long the server has been silent. A server that does not answer
-- progress requests gets none: then an open watch is enough.
local function has_caught_up(seconds, state)
  if state.phase ~= "following" or not state.is_open then return false end
  return seconds < WARN_AFTER or state.is_trusted == false
end

--- Checks the state of a feed, and logs a change. Returns the seconds until the next check. Fields of `state`:
--   phase         of the feed: "following" while the cache follows a watch
--   trouble       the error because of which the feed does not work; or nil
--   is_trusted    the server answers progress requests; nil: unknown
--   is_open       the watch is open
--   has_content   the cache has content
--   confirmed_at  when the last message of the server was received; nil: never
function staleness_methods:check(now, state)
  local confirmed_at = math.max(state.confirmed_at or self.opened_at, self.opened_at)
  local seconds = now - confirmed_at
  local why = reason_of(seconds, state)
  if self.stale_since and has_caught_up(seconds, state) then
    log.info({ prefix = self.prefix }, "the cache of %s is up to date again, after %d seconds", log.quote(self.prefix),
      math.floor(now - self.stale_since))
    self.stale_since = nil
  elseif not self.stale_since and why then
    local content = state.has_content and "content that may be stale" or "no content yet"
    warn(self, ("has %s, and has received nothing from its server since %s: %s"):format(content,
      date_of(confirmed_at, now), why), confirmed_at)
  end
  if self.stale_since then return MIN_INTERVAL end
  return math.max(MIN_INTERVAL, confirmed_at + WARN_AFTER - now)
end

--- Returns the staleness checker of a cache that is being opened.
local function new(prefix, now)
  return setmetatable({
    prefix = prefix,
    opened_at = now,   -- counts as the last message until there is one
    stale_since = nil, -- since when the content is stale; nil: not stale, or not logged
  }, staleness_mt)
end

return { new = new }
