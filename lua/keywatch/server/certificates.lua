-- SPDX-License-Identifier: MIT
--- certificates: the TLS context of a server, and its log lines.
--
-- The context checks its files whenever a client connects, and reloads changed ones. A poller of the driver logs that,
-- and checks the files periodically if no client connects. The poller warns of certificates that will expire soon, and
-- replaces a self-made one in time.

local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local tls = require "keywatch.support.tls"
local url = require "keywatch.support.url"

local DAY = 86400 -- seconds
local LOOK_INTERVAL = 60 -- seconds between two checks of the files and the dates
local EXPIRY_NOTICE = 30 * DAY -- the log warns this long before the end of a certificate...
local EXPIRY_PART = 1 / 3      -- ...or in this part of its life, if that is shorter
local RENEWAL = DAY -- a self-made certificate is replaced this long before its end
local LOOPBACK = { "localhost", "127.0.0.1", "::1" }
local ANY = { ["0.0.0.0"] = true, ["::"] = true } -- addresses that clients cannot connect to

local certificates_methods = {}
local certificates_mt = { __name = "keywatch.certificates", __index = certificates_methods }

local function date_of(seconds)
  return os.date("!%Y-%m-%d %H:%M:%S UTC", math.floor(seconds))
end

--- Returns the certificate for new connections; nil if everything is closed. A finalizer, or the function for log
-- lines, may close the server at any time.
local function current(self)
  return not self.is_closed and self.context:certificate() or nil
end

--- Returns the description of a certificate.
local function describe(certificate)
  return ("certificate of %s for %s, valid until %s"):format(certificate.subject, certificate.names,
    date_of(certificate.not_after))
end

-- {====== Self-made certificates ======

--- Returns the hosts to which clients connect, each once: those of the addresses with TLS, the announced ones, and the
-- names of this machine.
local function hosts_of(addresses, advertise)
  local list, is_known = {}, {}

  local function add(host)
    if not host or ANY[host] or is_known[host] then return end
    is_known[host] = true
    list[#list + 1] = host
  end

  for _, address in ipairs(addresses) do
    if address.is_tls then add(address.host) end
  end
  for _, text in ipairs(advertise or {}) do
    local address = url.parse(text)
    if address and address.is_tls then add(address.host) end
  end
  for _, host in ipairs(LOOPBACK) do add(host) end
  return list
end

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

--- Returns why a new pair of files has to be made; nil if the existing pair is good.
local function why_made(module, cert, key)
  local context, text = module.server { cert = cert, key = key }
  if not context then return text end
  local certificate = context:certificate()
  context:close()
  if certificate.not_after - os.time() > RENEWAL then return nil end
  return ("the %s, expires"):format(describe(certificate))
end

--- Writes a new pair of files. Returns true; or nil and an error.
local function make_files(self, module)
  local ok, text, fault = module.self_sign { hosts = table.concat(self.hosts, ","), years = self.years,
    directory = self.directory }
  if ok then return true end
  return nil, errors.new(fault == "memory" and "out_of_memory" or "failed_precondition",
    "keywatch: no certificate can be made: " .. text)
end

--- Makes the pair in the directory, unless there is a good one. Returns true; or nil and an error.
local function ensure_files(self, module)
  local cert, key = self.directory .. "/cert.pem", self.directory .. "/key.pem"
  local why = why_made(module, cert, key)
  if not why then return true end
  local was_there = exists(cert) and exists(key)
  local ok, err = make_files(self, module)
  if not ok then return nil, err end
  if was_there then
    self.log.warn("TLS: made another certificate in %s: %s", self.directory, why)
  else
    self.log.info("TLS: made a certificate in %s, for %s", self.directory, table.concat(self.hosts, ", "))
  end
  return true
end

--- Adds the certificate and the key to the options of a context. Returns the options; or nil and an error.
local function add_own(self, options)
  local module = tls.load() -- the module has checked the options
  if self.directory then
    local ok, err = ensure_files(self, module)
    if not ok then return nil, err end
    options.cert, options.key = self.directory .. "/cert.pem", self.directory .. "/key.pem"
    return options
  end
  local cert, key, fault = module.self_sign { hosts = table.concat(self.hosts, ","), years = self.years }
  if not cert then
    return nil, errors.new(fault == "memory" and "out_of_memory" or "failed_precondition",
      "keywatch: no certificate can be made: " .. key)
  end
  options.cert, options.key = cert, key
  return options
end

--- Warns of addresses that the certificate of an earlier start does not cover.
local function check_hosts(self)
  for _, host in ipairs(self.directory and self.hosts or {}) do
    if not self.is_closed and not self.context:is_for(host) then
      self.log.warn("TLS: the certificate in %s is not for %s: remove it to have a new one made",
        self.directory, host)
    end
  end
end

-- }======

-- {====== The log ======

--- Returns the name and the text of a warning about the dates of a certificate, or nil.
local function date_problem(certificate, now)
  local left = certificate.not_after - now
  if certificate.not_before > now then
    return "early", ("is not valid before %s"):format(date_of(certificate.not_before))
  elseif left <= 0 then
    return "expired", ("has expired on %s"):format(date_of(certificate.not_after))
  elseif left < math.min(EXPIRY_NOTICE, EXPIRY_PART * (certificate.not_after - certificate.not_before)) then
    return "late", ("expires on %s"):format(date_of(certificate.not_after))
  end
end

--- Warns about the dates of the certificate, once for each problem.
local function check_dates(self)
  local certificate = current(self)
  if not certificate then return end
  local name, text = date_problem(certificate, os.time())
  local known = name and name .. certificate.not_after
  if known and known ~= self.known_dates then
    self.log.warn("TLS: the certificate of %s %s", certificate.subject, text)
  end
  self.known_dates = known
end

--- Logs whether changed files are used.
local function log_news(self)
  if self.is_closed then return end
  local news, text = self.context:news()
  if news == "changed" then
    self.log.info("TLS: files have changed, and are used for new connections: %s", self:describe())
    check_dates(self)
  elseif news == "trouble" then
    self.log.warn("TLS: files have changed, but cannot be used, and new connections are made with the old ones: %s",
      text)
  end
end

--- Returns the description of the certificate, and whether clients need one.
function certificates_methods:describe()
  local certificate = current(self)
  if not certificate then return "closed" end
  return describe(certificate) .. (self.are_clients_checked and "; clients need a certificate" or "")
end

-- }======

--- Replaces a self-made certificate that will expire soon. A failure is logged once.
local function renew(self)
  local certificate = current(self)
  if not self.directory or not certificate or certificate.not_after - os.time() > RENEWAL then return end
  local _, err = ensure_files(self, (tls.load()))
  local text = err and err.message:gsub("^keywatch: ", "")
  if text and text ~= self.known_failure then self.log.warn("TLS: %s", text) end
  self.known_failure = text
end

--- Checks files and dates.
local function look(self)
  renew(self)
  if not self.is_closed then self.context:refresh() end
  log_news(self)
  check_dates(self)
end

--- For the driver.
function certificates_methods:poll()
  local now = driver.get().now()
  log_news(self)
  if now >= self.deadline then
    self.deadline = now + LOOK_INTERVAL
    look(self)
  end
  return self.deadline - now
end

--- For the driver, in a child process: the server and its files belong to the parent.
function certificates_methods:after_fork()
  driver.get().detach(self)
end

--- Begins to check the files.
function certificates_methods:start()
  driver.get().attach(self)
end

--- Stops checking. Open connections stay usable. Idempotent.
function certificates_methods:close()
  self.is_closed = true
  driver.get().detach(self)
  self.context:close()
end

--- Returns the certificates of a server that will listen on `addresses`, for the option `tls` of serve, which was
-- checked; or nil and an error. `advertise` is the list of announced URLs, or nil.
local function open(given, addresses, advertise, logger)
  local self = setmetatable({
    log = logger,
    context = nil,
    are_clients_checked = given.client_cert_auth or given.ca ~= nil,

    hosts = given.auto and hosts_of(addresses, advertise) or nil,
    directory = given.directory,       -- of the server's own files; nil: in memory
    years = given.validity_years or 1, -- validity of such a certificate

    deadline = driver.get().now() + LOOK_INTERVAL, -- time of the next check
    known_dates = nil,   -- the warning about the dates that was logged last
    known_failure = nil, -- text of the failure to make a certificate that was logged last
    is_closed = false,
  }, certificates_mt)
  local options, err = {}, nil
  for name, value in pairs(given) do options[name] = value end
  if given.auto then options, err = add_own(self, options) end
  if not options then return nil, err end
  self.context, err = tls.new("server", options, "serve", "option 'tls'")
  if not self.context then return nil, err end
  if given.client_cert_auth and not given.ca then
    self.log.warn("TLS: clients may have a certificate of any authority that this system trusts: to accept only those "
      .. "of your own authority, set ca or --trusted-ca-file")
  end
  check_hosts(self)
  check_dates(self)
  return self
end

return { open = open }
