-- SPDX-License-Identifier: MIT
--- path_text: the path of a field as Kubernetes writes it: "spec.ports[0].name".

--- Returns the text of a path, a list of names and of indexes from 1 on.
local function of(path)
  local parts = {}
  for i, step in ipairs(path) do
    if type(step) == "number" then
      parts[i] = ("[%d]"):format(step - 1)
    else
      parts[i] = (i > 1 and "." or "") .. step
    end
  end
  return table.concat(parts)
end

return { of = of }
