-- SPDX-License-Identifier: MIT
--- refusal: the meaning of the statuses of failed calls. After a refusal a repetition is useless. After any other
-- status a repetition may succeed: the server is too busy, has no leader, is stopping, or is isolated.

local core = require "keywatch.core"
local grpc_status = require "keywatch.support.grpc_status"

--- Returns a set of statuses, which are given by their names.
local function set_of(...)
  local set = {}
  for _, name in ipairs { ... } do set[grpc_status[name]] = true end
  return set
end

local REFUSALS = set_of("INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "FAILED_PRECONDITION",
  "OUT_OF_RANGE", "UNIMPLEMENTED", "DATA_LOSS", "UNAUTHENTICATED")

-- Statuses of a call that the server may have executed.
local MAYBE_DONE = set_of("CANCELLED", "UNKNOWN", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE")

-- Statuses after which a read is repeated.
local TEMPORARY = set_of("CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE")

--- True if the status and text of a call mean a refusal. etcd refuses the password of a user without a password with
-- the status UNKNOWN.
local function is_refusal(status, text)
  return REFUSALS[status] or status == grpc_status.UNKNOWN and (text or ""):find("^auth: ") ~= nil
end

--- Returns the error of a call that a server has ended without a refusal. The server's CANCELLED must not look like the
-- cancellation of a task, and an empty status text must not look as if no server was reached.
local function trouble_of(status, text)
  if status == grpc_status.OK or status == grpc_status.CANCELLED then status = grpc_status.UNAVAILABLE end
  local is_silent = status == grpc_status.UNAVAILABLE and (text or "") == ""
  return core.error_of(status, is_silent and "keywatch: the server has ended the call" or text)
end

return { is_refusal = is_refusal, trouble_of = trouble_of, MAYBE_DONE = MAYBE_DONE, TEMPORARY = TEMPORARY }
