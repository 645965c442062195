-- SPDX-License-Identifier: MIT
--- reason: why a server has ended a watch, in its own words.

local FROM_STATUS = { -- the names that etcd puts before some of them
  Canceled = 1, Unknown = 2, InvalidArgument = 3, DeadlineExceeded = 4, NotFound = 5, AlreadyExists = 6,
  PermissionDenied = 7, ResourceExhausted = 8, FailedPrecondition = 9, Aborted = 10, OutOfRange = 11,
  Unimplemented = 12, Internal = 13, Unavailable = 14, DataLoss = 15, Unauthenticated = 16,
}

--- The status of gRPC that stands in them, FAILED_PRECONDITION unless one does, and the words themselves.
local function parse(text)
  local name, rest = text:match("^rpc error: code = (%a+) desc = (.*)$")
  return FROM_STATUS[name] or 9, rest or text
end

return { parse = parse }
