-- SPDX-License-Identifier: MIT
--- restore: a snapshot, of keywatch or of etcd, becomes the data of a store.

local core = require "keywatch.core"
local flags = require "keywatch.command.flags"

local OK, FAILED, MISUSED = 0, 1, 2 -- exit statuses

local HELP = [[
keywatch restore IMAGE --data-dir DIR [flags]

  Makes a data directory of a snapshot that `etcdctl snapshot save` has taken, of a keywatch or of an etcd from 3.4 to
  3.6: keys, their history and revisions, leases, which have all of their time again, users and roles. Members and
  alarms are not taken over, and authentication is disabled.

  --data-dir         a directory that is not there, or is empty
  --skip-hash-check  take a file without SHA-256, such as member/snap/db of etcd's data, and do not look at one that
                     is there
  --help
]]

local FLAGS = {
  ["data-dir"] = "text",
  ["skip-hash-check"] = "boolean",
  ["help"] = "boolean",
  ["h"] = "boolean",
}

--- The one argument that is no flag, wherever it stands, and the others.
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

local function find_fault(image, values)
  if not image then return "which image? keywatch restore IMAGE --data-dir DIR" end
  if not values["data-dir"] or values["data-dir"] == "" then return "--data-dir is needed" end
end

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
  if restored.was_protected then
    io.stderr:write("keywatch restore: authentication was enabled in the image, and is not any more: anybody who "
      .. "reaches a server of this data can read and write it\n")
  end
  return OK
end

return { main = main }
