-- SPDX-License-Identifier: MIT
--- listening: opens the listeners of a server, on all of its addresses or on none.
--
-- A host name may have several IP addresses. All listeners of one name have the same port, even if the kernel chooses
-- the port.
--
-- A list of listeners is { { listener = the driver's, is_tls = }, ... }.

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

--- True if the machine lacks the address, or its whole family: such an address of a name is skipped.
local function is_absent(name)
  return name == "EAFNOSUPPORT" or name == "EADDRNOTAVAIL"
end

--- Closes every listener of a list.
local function close_all(listeners)
  for _, item in ipairs(listeners) do item.listener:close() end
end

--- Returns the URLs of a list of listeners, with the ports that the kernel chose.
local function urls(listeners)
  local list = {}
  for i, item in ipairs(listeners) do
    local address = item.listener:address()
    address.is_tls = item.is_tls
    list[i] = url.format(address)
  end
  return list
end

--- Listens on one address. Returns an item of a list of listeners; or nil, the text and the name of the error.
local function listen(object, address, context)
  local listener, text, name = driver.get().listen(object, address, address.is_tls and assert(context) or nil)
  if not listener then return nil, text, name end
  return { listener = listener, is_tls = address.is_tls }
end

--- Listens on each host, with the port of `address`. Returns a list of listeners; or nil and an error.
local function listen_on_hosts(object, hosts, address, context)
  local port, listeners, absent = address.port, {}, nil
  for _, host in ipairs(hosts) do
    local at = { host = host, port = port, is_tls = address.is_tls }
    local item, text, name = listen(object, at, context)
    if item then
      listeners[#listeners + 1] = item
      port = item.listener:address().port
    elseif is_absent(name) then
      absent = absent or failure(at, text, name)
    else
      close_all(listeners)
      return nil, failure(at, text, name)
    end
  end
  if #listeners == 0 then return nil, absent end
  return listeners
end

--- Listens on one address: a path, or a host and a port. Returns a list of listeners; or nil and an error.
local function listen_on(object, address, context)
  if address.path then
    local item, text, name = listen(object, address, context)
    if not item then return nil, failure(address, text, name) end
    return { item }
  end
  local hosts, text, name = driver.get().resolve(address.host)
  if not hosts then return nil, failure(address, text, name) end
  local listeners, err
  for _ = 1, address.port == 0 and PORT_TRIES or 1 do
    listeners, err = listen_on_hosts(object, hosts, address, context)
    if listeners or err.errno ~= "EADDRINUSE" then break end
  end
  return listeners, err
end

--- Listens on all addresses, for a server object of the core. `context` is the TLS context for those with TLS. Returns
-- a list of listeners; or nil and an error, with no listener left open.
local function open_all(object, addresses, context)
  local all = {}
  for _, address in ipairs(addresses) do
    local listeners, err = listen_on(object, address, context)
    if not listeners then
      close_all(all)
      return nil, err
    end
    for _, item in ipairs(listeners) do all[#all + 1] = item end
  end
  return all
end

return { open_all = open_all, close_all = close_all, urls = urls }
