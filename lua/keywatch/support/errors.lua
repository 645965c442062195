-- SPDX-License-Identifier: MIT
--- errors: error objects of keywatch, and errors of any kind as text.
--
-- An error object has a code, a message and a grpc_status; the core makes it, with its metatable. Every other value
-- that a program raises belongs to that program, and is never changed.

local core = require "keywatch.core"

local error_mt = getmetatable(core.new_error("closed"))

--- Returns an error object of a code. Its message is `message`, or the usual one of the code if that is nil.
local function new(code, message)
  local err = core.new_error(code)
  err.message = message or err.message
  return err
end

--- Returns the error of using a closed object. `noun` names the object: "client", "watch" or "stream".
local function closed(noun)
  return new("closed", ("keywatch: the %s is closed"):format(noun))
end

--- Returns the text of an error of any type. Never raises.
local function text_of(err)
  local ok, text = pcall(tostring, err)
  return ok and type(text) == "string" and text or "an error that cannot be printed"
end

--- Returns the code of an error of any type; nil if it has none. Never raises.
local function code_of(err)
  if type(err) ~= "table" then return nil end
  return rawget(err, "code")
end

--- A message handler for xpcall. Returns { err = the error as it was raised, traceback = its text and the stack }.
local function with_traceback(err)
  return { err = err, traceback = debug.traceback(text_of(err), 2) }
end

--- Returns what xpcall has returned for a function that has failed, with with_traceback, as a table with `err` and
-- `traceback`. If the stack was full with_traceback has failed, too, and there is something else.
local function raised(found)
  if type(found) == "table" and found.traceback then return found end
  local is_overflow = found == nil or found == "error in error handling" -- of LuaJIT, and of Lua in a stack of C's
  return { err = found, traceback = text_of(is_overflow and "stack overflow" or found) }
end

--- Gives an error object of keywatch the traceback of the task that it has ended. An error object that has a traceback
-- keeps it: the first one shows where the error was raised. Other values stay as they are.
local function keep_traceback(err, traceback)
  if getmetatable(err) == error_mt and not err.traceback then err.traceback = traceback end
end

--- Raises an error out of an iterator. In nginx its text: nginx would log an object as "unknown reason".
local function raise(err)
  error(rawget(_G, "ngx") and text_of(err) or err, 0)
end

return {
  new = new, closed = closed, text_of = text_of, code_of = code_of, with_traceback = with_traceback, raised = raised,
  keep_traceback = keep_traceback, raise = raise,
}
