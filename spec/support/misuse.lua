--- Checks that calls raise errors with helpful texts.

local show = require("spec.support.difference").show

-- Texts of Lua's own errors, for a function that does not check its arguments.
local slips = { "attempt to", "for iterator", "to 'pairs'", "to 'format'", "stack overflow" }

local function show_all(...)
  local shown = {}
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if type(value) == "table" then
      for name, field in pairs(value) do shown[#shown + 1] = tostring(name) .. " = " .. show(field) end
    else
      shown[#shown + 1] = show(value)
    end
  end
  return table.concat(shown, ", ")
end

--- Makes a call, which must raise one of keywatch's texts. Returns the text.
local function raises(call, ...)
  local ok, err = pcall(call, ...)
  if ok then error("nothing was raised for " .. show_all(...), 2) end
  if type(err) ~= "string" then error("what was raised is not a text, but " .. tostring(err), 2) end
  for _, slip in ipairs(slips) do
    if err:find(slip, 1, true) then error(("raised for %s: %s"):format(show_all(...), err), 2) end
  end
  return err
end

return { raises = raises }
