-- SPDX-License-Identifier: MIT
--- exists: whether a key exists, in a store or at a client's server.

local check = require "keywatch.support.check"

local OPTIONS = { timeout = "any", deadline = "any", revision = "any", serializable = "any" } -- `get` checks the values

--- Returns true if a key exists, and false if not; or nil and an error. The value is not read.
local function exists(owner, key, opts)
  check.self(owner, "exists")
  check.argument(type(key) == "string", 1, "exists", "string", key)
  opts = check.options(opts, "exists", OPTIONS)
  local ok, kv, err = pcall(owner.get, owner, key, {
    keys_only = true,
    timeout = opts.timeout,
    deadline = opts.deadline,
    revision = opts.revision,
    serializable = opts.serializable,
  })
  if not ok then check.raise_again(kv, "exists", "get") end
  if err then return nil, err end
  return kv ~= nil
end

return exists
