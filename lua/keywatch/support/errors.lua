-- SPDX-License-Identifier: MIT
--- errors: error objects of keywatch, and errors of any kind as text.
--
-- An error object has a code, a message and a grpc_status; the core makes it, with its metatable. Every other value
-- that a program raises belongs to that program, and is never changed.

local check = require "keywatch.support.check"
local core = require "keywatch.core"

local MAX_FIELDS, MAX_BYTES = 16, 100 -- of a plain table: the most fields in its text, and bytes of each

local error_mt = getmetatable(core.new_error("closed"))

--- Returns an error object of a code. Its message is `message`, or if that is nil, the usual one of the code.
local function new(code, message)
  local err = core.new_error(code)
  err.message = message or err.message
  return err
end

--- Returns the error of using a closed object. `noun` names the object: "client", "watch" or "stream".
local function closed(noun)
  return new("closed", ("keywatch: the %s is closed"):format(noun))
end

--- Returns the fields of a table as text: { code = 7, of = a table, reason = 'busy' }. Some of them if there are many.
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

--- Returns the text of an error of any type, with the traceback that an error object of keywatch may have. Never
-- raises.
local function full_text_of(err)
  local ok, text = pcall(printed, err)
  return ok and type(text) == "string" and text or "an error that cannot be printed"
end

--- Returns the traceback that an error object of keywatch has, see keep_traceback; or nil.
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

--- A message handler for xpcall. Returns { err = the error as it was raised, traceback = its text and the stack }.
local function with_traceback(err)
  return { err = err, traceback = full_text_of(err) .. debug.traceback("", 2) }
end

--- Returns the same for an error that has ended a coroutine.
local function raised_in(co, err)
  return { err = err, traceback = full_text_of(err) .. debug.traceback(co, "") }
end

--- Converts the results of xpcall to those of `attempt`. If the stack was full, with_traceback has failed, too, and the
-- result is not a table.
local function settle(ok, ...)
  if ok then return true, ... end
  local found = (...)
  if type(found) == "table" and found.traceback then return false, found end
  local is_overflow = found == nil or found == "error in error handling" -- of LuaJIT, and of Lua in a stack of C's
  return false, { err = found, traceback = text_of(is_overflow and "stack overflow" or found) }
end

--- Calls fn(...). Returns true and its results; or false and { err =, traceback = }.
local function attempt(fn, ...)
  return settle(xpcall(fn, with_traceback, ...))
end

--- Adds to an error object of keywatch the traceback of the task that the error has ended. An existing traceback is
-- kept, since the first one shows where the error was raised. Other values are not changed.
local function keep_traceback(err, traceback)
  if getmetatable(err) == error_mt and not err.traceback then err.traceback = traceback end
end

--- Raises an error from an iterator. In nginx raises the text, since nginx would log an object as "unknown reason".
local function raise(err)
  error(rawget(_G, "ngx") and text_of(err) or err, 0)
end

return {
  new = new, closed = closed, text_of = text_of, full_text_of = full_text_of, is_plain = is_plain,
  traceback_of = traceback_of, code_of = code_of, raised_in = raised_in, attempt = attempt,
  keep_traceback = keep_traceback, raise = raise,
}
