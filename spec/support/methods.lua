--- All methods of a server, as the server lists them, and the request message of each.

--- A sorted list of { path =, request =, method = }; `method` is nil for methods that C answers.
local function of(server)
  local list = {}
  for path, request in pairs(server.object:methods()) do
    local method = server.methods[path]
    list[#list + 1] = { path = path, request = method and method.request or request, method = method }
  end
  table.sort(list, function(a, b) return a.path < b.path end)
  return list
end

return { of = of }
