-- SPDX-License-Identifier: MIT
--- call_hook: calls the function on_call for each request that has ended.
--
-- A transport without that function is not changed. A transport with it gets another method `unary`, which measures.
-- The function is called before the request returns, in a coroutine of its own: it must not wait. If it raises or
-- waits, that is logged, and the request returns its normal result. It is not called for requests that it makes itself:
-- since it must not wait, they can only fail at once, as on a closed client.

local compat = require "keywatch.support.compat"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local grpc_status = require "keywatch.support.grpc_status"
local log = require "keywatch.support.log"

local MUST_NOT_WAIT = "the function on_call of a client has waited, which it must not: spawn a task for that"

local report_methods = {}
local report_mt = { __index = report_methods }

--- Calls the function. Logs if it raises or waits.
local function call(owner, hook, record)
  local co = compat.create(hook)
  local ok, err = compat.resume(co, record)
  if not ok then
    log.error("%s", "the function on_call of a client has failed: "
      .. log.failure(owner, errors.raised_in(co, err)))
  elseif compat.status(co) ~= "dead" then
    log.error("%s", MUST_NOT_WAIT)
  end
end

--- Returns the report of a request that begins.
local function begin(owner, method)
  return setmetatable({ owner = owner, method = method, since = driver.get().now(), attempts = 0 }, report_mt)
end

--- Notes that the request was sent on a connection.
function report_methods:note(connection)
  self.attempts, self.endpoint = self.attempts + 1, connection.endpoint.url
end

--- Calls the function: the request has ended, with success or with an error.
function report_methods:finish(err)
  local owner = self.owner
  local hook = owner.hook[1]
  if not hook or owner.is_calling then return end
  local code, status = nil, grpc_status.OK
  if type(err) == "table" then
    code, status = err.code, err.grpc_status
  elseif err ~= nil then
    status = grpc_status.CANCELLED -- the program was interrupted
  end
  local record = {
    method = self.method,
    endpoint = self.endpoint,
    seconds = driver.get().now() - self.since,
    status = status,
    code = code,
    attempts = self.attempts,
    err = err,
  }
  owner.is_calling = true
  local ok, raised = pcall(call, owner, hook, record)
  owner.is_calling = false
  if not ok then error(raised, 0) end
end

--- Makes a transport call the function for each request. The caller must keep the function alive: the reference here is
-- weak, so that the function may refer to the client.
local function install(transport, fn)
  local owner = { hook = setmetatable({ fn }, { __mode = "v" }), is_calling = false }
  local unary = transport.unary
  function transport:unary(path, bytes, deadline, is_read, metadata)
    local report = begin(owner, path)
    local ok, back, err, connection = pcall(unary, self, path, bytes, deadline, is_read, metadata, report)
    if ok then
      report:finish(not back and err or nil)
      return back, err, connection
    end
    if type(back) == "table" or report.attempts > 0 then report:finish(back) end -- else it was a usage error
    error(back, 0)
  end
  function transport.new_report(path) return begin(owner, path) end -- for reads.lua and range_stream.lua
end

return { install = install }
