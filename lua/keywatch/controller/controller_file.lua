-- SPDX-License-Identifier: MIT
--- controller_file: a file of Lua that returns a function. The function is called with a manager, and adds components
-- to it. So the same file runs in a program of any kind, and in the program `keywatch run`.

local check = require "keywatch.support.check"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"

--- Returns the error of a file.
local function new_error(path, text)
  return errors.new("failed_precondition", ("keywatch: the controller file '%s' %s"):format(path, text))
end

--- Calls a function of the file. Returns true and its first two results; or false and a traceback. A cancellation of
-- the task is raised again.
local function call(fn, ...)
  local ok, first, second = driver.attempt(fn, ...)
  if ok then return true, first, second end
  return false, first.traceback
end

--- Runs a file: calls the function that it returns with the arguments. Returns true, or nil and an error.
local function run(path, ...)
  local chunk, text = loadfile(path)
  if not chunk then return nil, new_error(path, "does not load: " .. text) end
  local ok, fn = call(chunk)
  if not ok then return nil, new_error(path, "has failed: " .. fn) end
  if not check.is_callable(fn) then
    return nil, new_error(path, "must return a function, which is called with the manager, and has returned "
      .. (fn == nil and "nothing" or "a " .. type(fn)))
  end
  local called, result, err = call(fn, ...)
  if not called then return nil, new_error(path, "has failed: " .. result) end
  if result == false or result == nil and err ~= nil then
    if err == nil then err = "its function has returned false" end
    return nil, new_error(path, "has failed: " .. errors.text_of(err))
  end
  return true
end

return { run = run, error = new_error }
