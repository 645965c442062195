--- Names of all lengths, of all named objects: a name that the server accepts exists after the restore of a snapshot,
-- too; other names are refused with an error.

local core = require "keywatch.core"

local directories = require "spec.support.directory"
local dose = require "spec.support.dose"
local image = require "spec.support.image"
local new_random = require("spec.support.random").new
local serving = require "spec.support.serving"

local AUTH, KV = "/etcdserverpb.Auth/", "/etcdserverpb.KV/"
local INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 3, 8, 9
local LONGEST = 70000
local EDGES = { 0, 1, 31, 32, 33, 255, 256, 500, 501, 502, 511, 512, 4000, 4096, 32768, 32769, 65535, 65536, LONGEST }

describe("names of all lengths", function()
  if serving.is_etcd then return end -- which ends at a name of 32,769 bytes

  local scratch, remove, peers, random

  before_each(function()
    scratch, remove = image.scratch()
    peers = {}
    random = new_random(tonumber(os.getenv("KW_SEED")))
  end)

  after_each(function()
    for _, peer in ipairs(peers) do peer:stop() end
    remove()
    directories.remove_all()
  end)

  local function start(options)
    local peer = serving.start(options)
    table.insert(peers, peer)
    return peer, peer:client()
  end

  --- Bytes that distinguish names of one length, before a repeated byte.
  local function name_of(len)
    return (random:bytes(4) .. random:pick { "x", "\0", "\255" }:rep(LONGEST)):sub(1, len)
  end

  local function any_length()
    return random:one_in(2) and random:pick(EDGES) or random:between(0, random:pick { 40, 600, 5000, LONGEST })
  end

  --- Asks for something that has names; counts what comes of it.
  local function try(client, outcomes, method, request)
    local answer, status, text = client:ask(method, request)
    local outcome = answer and "done" or text
    local is_taken = status == FAILED_PRECONDITION and text:find("name already exists", 1, true) -- short names repeat
    local is_too_long = status == RESOURCE_EXHAUSTED and text:find("larger than max", 1, true)
    if not (answer or is_taken or is_too_long) then assert.equal(INVALID_ARGUMENT, status, text) end
    outcomes[outcome] = (outcomes[outcome] or 0) + 1
    return answer ~= nil
  end

  --- Makes users, roles, permissions and keys with names of a length.
  local function make(client, outcomes, len)
    local user, role = name_of(len), name_of(len)
    local has_user = try(client, outcomes, AUTH .. "UserAdd", { name = user, options = { no_password = true } })
    local has_role = try(client, outcomes, AUTH .. "RoleAdd", { name = role })
    if has_user and has_role then try(client, outcomes, AUTH .. "UserGrantRole", { user = user, role = role }) end
    if has_role then
      local permission = { permType = random:pick { "READ", "WRITE" }, key = name_of(any_length()),
        range_end = name_of(any_length()) }
      client:ask(AUTH .. "RoleGrantPermission", { name = role, perm = permission })
    end
    try(client, outcomes, KV .. "Put", { key = name_of(len), value = name_of(any_length()) })
    try(client, outcomes, KV .. "DeleteRange", { key = name_of(len), range_end = name_of(any_length()) })
  end

  --- All that a server says of what has a name.
  local function all_of(client)
    local all = { users = {}, roles = {} }
    all.user_names = assert(client:ask(AUTH .. "UserList")).users or {}
    all.role_names = assert(client:ask(AUTH .. "RoleList")).roles or {}
    for i, name in ipairs(all.user_names) do all.users[i] = assert(client:ask(AUTH .. "UserGet", { name = name })) end
    for i, name in ipairs(all.role_names) do all.roles[i] = assert(client:ask(AUTH .. "RoleGet", { role = name })) end
    for _, list in ipairs { all.users, all.roles } do
      for _, item in ipairs(list) do item.header = nil end
    end
    all.kvs = assert(client:ask(KV .. "Range", { key = "\0", range_end = "\0" })).kvs
    return all
  end

  for kind, path in pairs { ["in memory"] = false, ["that is durable"] = true } do
    it("are restored from a snapshot of a store " .. kind, function()
      local peer, client = start { path = path and directories.new() or nil }
      local outcomes = {}
      for _, len in ipairs(EDGES) do make(client, outcomes, len) end
      for _ = 1, dose.of(10, 40) do make(client, outcomes, any_length()) end
      for _, refusal in ipairs { "done", "etcdserver: user name is empty", "etcdserver: role name is empty",
        core.errors.empty_key.message, core.errors.request_too_large.message } do
        assert.is_true((outcomes[refusal] or 0) > 0, refusal)
      end
      image.write(scratch .. "/image", image.take(peer.store))
      assert(core.restore(scratch .. "/image", scratch .. "/data"))
      local back, of_back = start { path = scratch .. "/data" }
      assert.same(all_of(client), all_of(of_back))
      assert.equal(peer.store:hash_kv().hash, back.store:hash_kv().hash)
    end)
  end
end)
