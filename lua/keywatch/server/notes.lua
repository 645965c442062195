-- SPDX-License-Identifier: MIT
--- notes: logs the notes of the core for a server: connections that are rejected or cannot be accepted, and failures of
-- the store; at level debug also connections, refused requests and slow requests, over HTTP, too.
--
-- The core drops the oldest notes if there are too many. Rejected connections are logged as warnings, at a limited
-- rate. Paths and texts come from clients, and are quoted.

local grpc_status = require "keywatch.support.grpc_status"
local log = require "keywatch.support.log"
local log_limit = require "keywatch.server.log_limit"
local trouble = require "keywatch.server.trouble"

local SLOW = 100 -- milliseconds; equal to KW_SLOW_MS in csrc/rpc/notes.h
local PATH = 160 -- bytes of a path that are logged; equal to KW_NOTE_PATH
local NAMES = {} -- of gRPC's statuses, by number
for name, number in pairs(grpc_status) do NAMES[number] = name end

--- Returns a request in words. The path is empty if the request had none, or if there was no memory for it.
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
  return ("%d notes were lost: more arrived than the queue holds"):format(n)
end

--- Logs an HTTP request that has ended, in the debug log: if the status of its answer is an error, or if its whole
-- answer took long.
local function log_request(server, request, seconds)
  local ms, status = math.floor(seconds * 1000), request.status
  local is_slow = ms > SLOW and not request.is_streamed
  if not is_slow and (status or 0) < 400 then return end
  local text = ("request %s %s from %s"):format(log.quote(request.method:sub(1, PATH)),
    log.quote(request.path:sub(1, PATH)), request.peer)
  if not status then return server.log.debug("%s cancelled after %d ms", text, ms) end
  if status < 400 then return server.log.debug("%s took %d ms", text, ms) end
  server.log.debug("%s refused%s: %d", text, is_slow and (" after %d ms"):format(ms) or "", status)
end

--- Logs all waiting notes.
local function drain(server)
  for kind, remote, path, status, text, amount in server.object.next_note, server.object do
    remote = remote ~= "" and remote or "an unknown address"
    if kind == "trouble" then
      trouble.update(server)
    elseif kind == "accept_failed" then
      trouble.accept_failed(server, text)
    elseif kind == "rejected" then
      server.rejections:line("connection from %s rejected: %s", remote, text)
    elseif kind == "lost" and not server.has_notes then
      server.rejections:skip(amount)
    else
      server.log.debug("%s", lines[kind](remote, path, status, text, amount))
    end
  end
end

--- Makes the limits for log lines. If the level is debug, makes the core take all notes.
local function start(server)
  server.rejections = log_limit.new(server.log, "warn", "further rejected connections: %d")
  server.failures = log_limit.new(server.log, "error", "further failures of handlers: %d")
  if not server.log.has("debug") then return end
  server.object:take_notes()
  server.has_notes = true
end

--- Logs the last notes of a server that is closed.
local function finish(server)
  drain(server)
  server.rejections:finish()
  server.failures:finish()
end

return { start = start, drain = drain, finish = finish, log_request = log_request }
