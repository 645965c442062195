-- SPDX-License-Identifier: MIT
--- query: reads the parameters of a request's query, as apiserver reads them.

local go_text = require "keywatch.kubernetes.go_text"
local status_error = require "keywatch.kubernetes.status_error"

local MAX_TIMEOUT = 86400 * 365 -- seconds
local VALIDATIONS = { Ignore = true, Warn = true, Strict = true }

--- Returns the boolean of a text; nil for nil. Everything but "0" and "false" is true, also the empty text.
local function boolean(text)
  if text == nil then return nil end
  return text ~= "0" and text:lower() ~= "false"
end

--- Returns a whole number of at least 0; nil for nil or an empty text; or nil and an error.
local function whole(query, name)
  local text = query[name]
  if text == nil or text == "" then return nil end
  local value = text:find("^%d+$") and #text < 16 and tonumber(text)
  if value then return value end
  return nil, status_error.bad_request(("strconv.ParseInt: parsing %s: invalid syntax (parameter %s)"):format(
    go_text.quoted(text:sub(1, 100)), name))
end

--- Returns the seconds after which a watch ends; nil if they are not given; or nil and an error.
local function timeout(query)
  local seconds, err = whole(query, "timeoutSeconds")
  if err or not seconds or seconds == 0 then return nil, err end
  return math.min(seconds, MAX_TIMEOUT)
end

--- Returns true if a list of values of dryRun asks for a dry run; or nil and an error.
local function dry_run(values)
  for _, value in ipairs(values) do
    if value ~= "All" then
      return nil, status_error.bad_request(("the dryRun value %s is not supported: it must be \"All\""):format(
        go_text.of(value)))
    end
  end
  return values[1] ~= nil
end

--- Returns the options of a write: { dry_run, field_validation }; or nil and an error.
local function write_options(query)
  local is_dry, err = dry_run { query.dryRun }
  if err then return nil, err end
  local validation = query.fieldValidation
  if validation ~= nil and validation ~= "" and not VALIDATIONS[validation] then
    return nil, status_error.bad_request(("fieldValidation must be Ignore, Warn or Strict, not %s"):format(
      go_text.quoted(validation)))
  end
  return { dry_run = is_dry, field_validation = validation ~= "" and validation or nil }
end

return { boolean = boolean, whole = whole, timeout = timeout, dry_run = dry_run, write_options = write_options }
