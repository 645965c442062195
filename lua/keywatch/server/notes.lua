-- SPDX-License-Identifier: MIT
--- notes: what the core notes for the log of a server: connections that are rejected; and, if the level is debug,
-- connections, refused requests and slow requests.
--
-- The core drops the oldest notes when too many wait. Rejected connections are warnings: BURST of them at once, and one
-- for each PAUSE after that, so that nobody can fill a disk with them; the rest is counted. Paths and texts come from
-- clients, and are quoted.

local driver = require "keywatch.task.driver"
local grpc_status = require "keywatch.support.grpc_status"
local log = require "keywatch.support.log"

local BURST, PAUSE = 20, 1 -- lines, seconds
local SLOW = 100 -- milliseconds; as KW_SLOW_MS in csrc/rpc/notes.h
local NAMES = {} -- of gRPC's statuses, by number
for name, number in pairs(grpc_status) do NAMES[number] = name end

--- Returns a request in words. The path is empty if the request had none, or if memory was short for it.
local function request_of(path, remote)
  if path == "" then return ("a request from %s"):format(remote) end
  return ("request %s from %s"):format(log.quote(path), remote)
end

local lines = {} -- by kind: functions that return the line of a note

function lines.accepted(remote)
  return ("connection from %s accepted"):format(remote)
end

function lines.ended(remote, _, _, text)
  return ("connection from %s ended: %s"):format(remote, text)
end

function lines.refused(remote, path, status, text, ms)
  return ("%s refused%s: %s (%d)%s"):format(request_of(path, remote), ms > SLOW and (" after %d ms"):format(ms) or "",
    NAMES[status] or "status", status, text ~= "" and " " .. log.quote(text) or "")
end

function lines.slow(remote, path, status, _, ms)
  if status == grpc_status.CANCELLED then return ("%s cancelled after %d ms"):format(request_of(path, remote), ms) end
  return ("%s took %d ms"):format(request_of(path, remote), ms)
end

function lines.lost(_, _, _, _, n)
  return ("%d notes were lost here: more came than are held"):format(n)
end

-- {====== Rejected connections ======

--- Logs how many connections were rejected without a line.
local function tell_skipped(server)
  local rejections = server.rejections
  local n = rejections.skipped
  if n == 0 then return end
  rejections.skipped = 0
  server.log.warn("connections rejected meanwhile: %d", n)
end

--- True if there may be a line now. The time of the next one moves on with each line.
local function may_tell(rejections, now)
  local next_at = math.max(rejections.next_at, now - BURST * PAUSE)
  if next_at > now then return false end
  rejections.next_at = next_at + PAUSE
  return true
end

--- Logs that a connection was rejected, or counts it.
local function tell_rejected(server, remote, text)
  local rejections = server.rejections
  if may_tell(rejections, driver.get().now()) then
    tell_skipped(server)
    server.log.warn("connection from %s rejected: %s", remote, text)
  else
    rejections.skipped = rejections.skipped + 1
  end
end

-- }======

--- Logs the notes that wait.
local function drain(server)
  for kind, remote, path, status, text, amount in server.object.next_note, server.object do
    remote = remote ~= "" and remote or "an unknown address"
    if kind == "rejected" then
      tell_rejected(server, remote, text)
    elseif kind == "lost" and not server.has_notes then
      server.rejections.skipped = server.rejections.skipped + amount
    else
      server.log.debug("%s", lines[kind](remote, path, status, text, amount))
    end
  end
end

--- Lets the core take all notes, if the level is debug.
local function start(server)
  server.rejections = { next_at = 0, skipped = 0 } -- when the next line may come; rejections since the last one
  if not server.log.has("debug") then return end
  server.object:take_notes()
  server.has_notes = true
end

--- Logs the last notes of a server that is closed.
local function finish(server)
  drain(server)
  tell_skipped(server)
end

return { start = start, drain = drain, finish = finish }
