-- SPDX-License-Identifier: MIT
--- errors: creates error objects, and converts errors of any type to text.
--
-- An error object of keywatch is a table with a code, a message and a grpc_status, which the core creates. Any other
-- value that a program raises belongs to the program: keywatch never changes it.

local check = require "keywatch.support.check"
local core = require "keywatch.core"

local MAX_FIELDS, MAX_BYTES = 16, 100 -- in the text of a plain table: fields, and bytes of a name or a value

local error_mt = getmetatable(core.new_error("closed"))

--- Returns an error object with a code. If `message` is nil, the message is the standard text of the code.
local function new(code, message)
  local err = core.new_error(code)
  err.message = message or err.message
  return err
end

--- Returns the error of a call of a closed object. `noun` names the object: "client", "watch" or "stream".
local function closed(noun)
  return new("closed", ("keywatch: the %s is closed"):format(noun))
end

--- Returns the fields of a table as text, at most MAX_FIELDS of them: { code = 7, of = a table, reason = 'busy' }.
local function fields_of(found)
  local fields = {}
  for name, value in next, found do
    if #fields == MAX_FIELDS then break end
    local key = type(name) == "string" and name or "[" .. check.shown(name) .. "]"
    fields[#fields + 1] = ("%s = %s"):format(key:sub(1, MAX_BYTES), check.shown(value):sub(1, MAX_BYTES))
  end
  table.sort(fields)
  if not fields[1] then return "{}" end
  return ("{ %s%s }"):format(table.concat(fields, ", "), #fields == MAX_FIELDS and ", ..." or "")
end

--- True if an error is a table that tostring shows by its address.
local function is_plain(err)
  local mt = debug.getmetatable(err)
  return type(err) == "table" and not (mt and mt.__tostring)
end

--- Like tostring, except that a plain table is shown with its fields.
local function printed(err)
  return is_plain(err) and fields_of(err) or tostring(err)
end

--- Returns the text of an error of any type. If the error object has a traceback, it is part of the text. Never raises.
local function full_text_of(err)
  local ok, text = pcall(printed, err)
  return ok and type(text) == "string" and text or "an error that cannot be printed"
end

--- Returns the traceback of an error object of keywatch, see keep_traceback; nil if there is none.
local function traceback_of(err)
  return getmetatable(err) == error_mt and type(err.traceback) == "string" and err.traceback or nil
end

--- Returns the text of an error of any type, without a traceback. Never raises.
local function text_of(err)
  local text, traceback = full_text_of(err), traceback_of(err)
  return traceback and text:sub(1, -#traceback - 2) or text
end

--- Returns the code of an error of any type; nil if it has none. Never raises.
local function code_of(err)
  if type(err) ~= "table" then return nil end
  return rawget(err, "code")
end

--- The message handler of `attempt`. Returns { err = the raised value, traceback = its text and the traceback }.
local function with_traceback(err)
  return { err = err, traceback = full_text_of(err) .. debug.traceback("", 2) }
end

--- Returns what with_traceback returns, for an error that has ended the coroutine `co`.
local function raised_in(co, err)
  return { err = err, traceback = full_text_of(err) .. debug.traceback(co, "") }
end

--- Converts the results of xpcall to those of `attempt`. After a stack overflow with_traceback fails, too: then the
-- second result is not its table.
local function results_of(ok, ...)
  if ok then return true, ... end
  local found = (...)
  if type(found) == "table" and found.traceback then return false, found end
  local is_overflow = found == nil or found == "error in error handling" -- LuaJIT's text; Lua's if C's stack is full
  return false, { err = found, traceback = text_of(is_overflow and "stack overflow" or found) }
end

--- Calls fn(...). Returns true and its results; or false and { err =, traceback = }.
local function attempt(fn, ...)
  return results_of(xpcall(fn, with_traceback, ...))
end

--- Adds the traceback of the task that an error has ended to the error, if that is an error object of keywatch without
-- a traceback: the first traceback shows where the error was raised.
local function keep_traceback(err, traceback)
  if getmetatable(err) == error_mt and not err.traceback then err.traceback = traceback end
end

--- Raises an error of an iterator, which cannot return the error. In nginx raises the text of the error, since nginx
-- would log an error object as "unknown reason".
local function raise(err)
  error(rawget(_G, "ngx") and text_of(err) or err, 0)
end

return {
  new = new, closed = closed, text_of = text_of, full_text_of = full_text_of, is_plain = is_plain,
  traceback_of = traceback_of, code_of = code_of, raised_in = raised_in, attempt = attempt,
  keep_traceback = keep_traceback, raise = raise,
}
