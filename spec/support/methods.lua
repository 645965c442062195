--- All methods of a server, as the server itself lists them, and the message that a request of each is.

--- A sorted list of { path =, request =, method = }; `method` is nil for those that C answers.
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
