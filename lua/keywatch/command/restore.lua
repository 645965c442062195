-- SPDX-License-Identifier: MIT
--- restore: the command `keywatch restore`: makes a data directory from a snapshot of keywatch or etcd.

local core = require "keywatch.core"
local flags = require "keywatch.command.flags"

local OK, FAILED, MISUSED = 0, 1, 2 -- exit statuses

local HELP = [[
keywatch restore SNAPSHOT --data-dir DIR [flags]

  Creates a data directory from SNAPSHOT, a file that `etcdctl snapshot save` has written from keywatch or from etcd 3.4
  to 3.6. Keys with their history and revisions, leases, users and roles are restored. Every lease gets its full TTL
  again. Members and alarms are not restored, and authentication is disabled.

  --data-dir DIR      directory to create; it must not exist, or must be empty (no default)
  --skip-hash-check   do not check the SHA-256 at the end of the file; required for a file without one, such as
                      member/snap/db of etcd (default: false)
  --help              print this text
]]

local FLAGS = {
  ["data-dir"] = "text",
  ["skip-hash-check"] = "boolean",
  ["help"] = "boolean",
  ["h"] = "boolean",
}

--- Returns the image, which is the first argument that is neither a flag nor a flag's value, or nil; and the other
-- arguments.
local function take_image(arguments)
  local image, rest = nil, {}
  for i, argument in ipairs(arguments) do
    local before = arguments[i - 1] or ""
    local is_value = before == "--data-dir" or before == "-data-dir"
    if not image and not is_value and argument:sub(1, 1) ~= "-" then
      image = argument
    else
      rest[#rest + 1] = argument
    end
  end
  return image, rest
end

--- Returns a sentence that names what is missing; or nil.
local function find_fault(image, values)
  if not image then return "the snapshot is missing: keywatch restore SNAPSHOT --data-dir DIR" end
  if not values["data-dir"] or values["data-dir"] == "" then return "--data-dir is missing" end
end

--- Runs the command. Returns the exit status.
local function main(arguments)
  local image, rest = take_image(arguments)
  local values, fault = flags.read(rest, FLAGS)
  if values and (values.help or values.h) then
    io.stdout:write(HELP)
    return OK
  end
  fault = fault or find_fault(image, values)
  if fault then
    io.stderr:write(("keywatch restore: %s\n"):format(fault))
    return MISUSED
  end
  local restored, err = core.restore(image, values["data-dir"], values["skip-hash-check"])
  if not restored then
    io.stderr:write(err.message, "\n")
    return FAILED
  end
  io.stdout:write(("restored %s: revision %.0f, %.0f records, %.0f leases\n"):format(values["data-dir"],
    restored.revision, restored.records, restored.leases))
  if restored.auth_was_enabled then
    io.stderr:write("keywatch restore: warning: authentication was enabled in the snapshot, and is disabled in the "
      .. "restored data: every client that can connect to its server can read and write all keys\n")
  end
  return OK
end

return { main = main }
