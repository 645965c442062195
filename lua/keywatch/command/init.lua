-- SPDX-License-Identifier: MIT
--- command: the program `keywatch`. Its first argument is the name of a command, and a module in command/.

local keywatch = require "keywatch"

local COMMANDS = { "restore", "serve" }

local USAGE_STATUS = 2 -- for what was not said right, as etcd and Go's flags have it

local HELP = [[
keywatch is a versioned key-value store that etcd's clients can talk to.

  keywatch serve [flags]              serve a store
  keywatch restore IMAGE [flags]      make data of a snapshot, of keywatch or of etcd
  keywatch serve --help, and so on    their flags
  keywatch --version
  keywatch --help
]]

local function is_command(name)
  for _, command in ipairs(COMMANDS) do
    if command == name then return true end
  end
  return false
end

--- Runs a command line; returns the exit status.
local function main(arguments)
  local name = arguments[1]
  if name == "--version" or name == "-version" or name == "version" then
    io.stdout:write(keywatch._VERSION, "\n")
    return 0
  elseif name == "--help" or name == "-help" or name == "-h" or name == "help" then
    io.stdout:write(HELP)
    return 0
  elseif name == nil then
    io.stderr:write(HELP)
    return USAGE_STATUS
  elseif not is_command(name) then
    io.stderr:write(("keywatch: there is no command '%s': see keywatch --help\n"):format(name))
    return USAGE_STATUS
  end
  local rest = {}
  for i = 2, #arguments do rest[i - 1] = arguments[i] end
  return require("keywatch.command." .. name).main(rest)
end

return { main = main }
