-- SPDX-License-Identifier: MIT
--- exists: whether a key exists, in a store or at a client's server.

local check = require "keywatch.support.check"

local OPTIONS = { timeout = true, deadline = true, revision = true, serializable = true }

--- Raises if an option is given that `exists` does not have. Their values are checked by `get`.
local function check_options(opts)
  for name in pairs(opts) do
    if not OPTIONS[name] then check.misuse("exists: there is no option '%s'", tostring(name)) end
  end
end

--- Returns true if a key exists, and false if not; or nil and an error. The value is not read.
local function exists(owner, key, opts)
  check.self(owner, "exists")
  check.argument(type(key) == "string", 1, "exists", "string", key)
  opts = check.options(opts, "exists")
  check_options(opts)
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
