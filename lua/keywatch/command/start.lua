-- SPDX-License-Identifier: MIT
--- start: reads and checks the command line of a command that runs until a signal arrives.

local keywatch = require "keywatch"
local log = require "keywatch.support.log"

local OK, MISUSED = 0, 2 -- exit statuses

--- Runs a command: calls run(given) in a task, with the given settings, unless the command line is wrong or requests
-- help. `flags` is the module of the command's flags: read, find_fault, HELP. Returns the exit status.
local function main(name, flags, run, arguments)
  local given, fault = flags.read(arguments)
  if given and (given.values.help or given.values.h) then
    io.stdout:write(flags.HELP)
    return OK
  end
  fault = fault or flags.find_fault(given)
  if fault then
    io.stderr:write(("keywatch %s: %s\n"):format(name, fault))
    return MISUSED
  end
  log.set_level(given.values["log-level"])
  return keywatch.run(run, given)
end

--- Returns the text of an error without "keywatch: ", and with the names of flags instead of the TLS options.
-- `flags` has the name of the flag for each option.
local function with_flags(text, flags)
  return (text:gsub("^keywatch: ", ""):gsub("the option ([%l_]+)", function(name)
    return flags[name] and "the flag --" .. flags[name]
  end))
end

return { main = main, with_flags = with_flags }
