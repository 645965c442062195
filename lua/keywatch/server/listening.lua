-- SPDX-License-Identifier: MIT
--- listening: opens the listeners of a server, on all of its addresses or on none.
--
-- A host name may have several IP addresses. All listeners of one name have the same port, also where the kernel
-- chooses the port.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local url = require "keywatch.support.url"

local PORT_TRIES = 16 -- attempts to find a port that is free on every IP address of a name

--- Returns the error of a listener that could not be opened. `name` is the system's name of the cause.
local function failure(address, text, name)
  local err = core.new_error("listen_failed")
  err.message = ("keywatch: cannot listen on %s: %s"):format(url.format(address), text)
  err.errno = name
  return err
end

--- True if the machine lacks the address, or its whole family: such an address of a name is left out.
local function is_absent(name)
  return name == "EAFNOSUPPORT" or name == "EADDRNOTAVAIL"
end

--- Closes every listener of a list.
local function close_all(listeners)
  for _, listener in ipairs(listeners) do listener:close() end
end

--- Listens on each host, with the same port. Returns a list of listeners; or nil and an error.
local function listen_on_hosts(object, hosts, port)
  local d, listeners, absent = driver.get(), {}, nil
  for _, host in ipairs(hosts) do
    local address = { host = host, port = port }
    local listener, text, name = d.listen(object, address)
    if listener then
      listeners[#listeners + 1] = listener
      port = listener:address().port
    elseif is_absent(name) then
      absent = absent or failure(address, text, name)
    else
      close_all(listeners)
      return nil, failure(address, text, name)
    end
  end
  if #listeners == 0 then return nil, absent end
  return listeners
end

--- Listens on one address: a path, or a host and a port. Returns a list of listeners; or nil and an error.
local function listen_on(object, address)
  if address.path then
    local listener, text, name = driver.get().listen(object, address)
    if not listener then return nil, failure(address, text, name) end
    return { listener }
  end
  local hosts, text, name = driver.get().resolve(address.host)
  if not hosts then return nil, failure(address, text, name) end
  local listeners, err
  for _ = 1, address.port == 0 and PORT_TRIES or 1 do
    listeners, err = listen_on_hosts(object, hosts, address.port)
    if listeners or err.errno ~= "EADDRINUSE" then break end
  end
  return listeners, err
end

--- Listens on all addresses, for a server object of the core. Returns a list of listeners; or nil and an error: then no
-- listener is left open.
local function open_all(object, addresses)
  local all = {}
  for _, address in ipairs(addresses) do
    local listeners, err = listen_on(object, address)
    if not listeners then
      close_all(all)
      return nil, err
    end
    for _, listener in ipairs(listeners) do all[#all + 1] = listener end
  end
  return all
end

return { open_all = open_all, close_all = close_all }
