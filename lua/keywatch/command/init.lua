-- SPDX-License-Identifier: MIT
--- command: the program `keywatch`. Its first argument is the name of a command; every command is a module in command/.

local keywatch = require "keywatch"

local COMMANDS = { "kubernetes", "restore", "run", "serve" }

local MISUSED = 2 -- exit status for a wrong command line, as in etcd and other programs in Go

local HELP = [[
keywatch is a versioned key-value store for etcd's clients.

  keywatch serve [flags]              serve a store
  keywatch run FILE [flags]           run the controllers of a file
  keywatch kubernetes FILE [flags]    serve the resources of a file by Kubernetes' API
  keywatch restore SNAPSHOT [flags]   create a data directory from a snapshot of keywatch or etcd
  keywatch COMMAND --help             print the flags of a command
  keywatch --version                  print the version
  keywatch --help                     print this text
]]

--- True if there is such a command.
local function is_command(name)
  for _, command in ipairs(COMMANDS) do
    if command == name then return true end
  end
  return false
end

--- Runs a command line. Returns the exit status.
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
    return MISUSED
  elseif not is_command(name) then
    io.stderr:write(("keywatch: there is no command '%s': see keywatch --help\n"):format(name))
    return MISUSED
  end
  local rest = {}
  for i = 2, #arguments do rest[i - 1] = arguments[i] end
  return require("keywatch.command." .. name).main(rest)
end

return { main = main }
