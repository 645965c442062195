-- SPDX-License-Identifier: MIT
--- path_text: the path of a field as Kubernetes writes it: "spec.ports[0].name".

local go_text = require "keywatch.kubernetes.go_text"

--- Returns the text of a path, a list of names and of indexes from 1 on. Long names are cut.
local function of(path)
  local parts = {}
  for i, step in ipairs(path) do
    if type(step) == "number" then
      parts[i] = ("[%d]"):format(step - 1)
    else
      local beginning, rest = go_text.cut(step)
      parts[i] = (i > 1 and "." or "") .. beginning .. rest
    end
  end
  return table.concat(parts)
end

return { of = of }
