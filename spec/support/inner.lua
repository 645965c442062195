--- Makes methods of the functions that only keywatch calls with a store: specs move manual clocks and fill replicas.
-- busted loads keywatch.core anew for each file of specs.

local function add_methods(core)
  for name, fn in pairs(core.inner) do core.store_methods[name] = fn end
  return core
end

package.preload["keywatch.core"] = function(name)
  local path = assert(package.searchpath(name, package.cpath))
  return add_methods(assert(package.loadlib(path, "luaopen_keywatch_core"))(name, path))
end

if package.loaded["keywatch.core"] then add_methods(package.loaded["keywatch.core"]) end
