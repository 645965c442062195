--- Clients and namespaces have the methods of a store: the specs of stores and of their watches pass for clients of
-- keywatch and of etcd, and for namespaces.
--
-- These specs run unchanged, with a client or a namespace instead of a store, except for the tests in
-- spec/client/differences.lua.

local getfenv = require("busted.compatibility").getfenv

local differences = require "spec.client.differences"
local face_specs = require "spec.support.face_specs"
local faces = require "spec.support.faces"
local secure = require "spec.support.secure"

local FILES = {
  "store/put", "store/exists", "store/range", "store/sort", "store/delete", "store/txn", "store/txn_rules",
  "store/txn_misuse", "store/compare", "store/lease", "store/compaction", "store/each", "store/error",
  "store/misuse", "store/ids", "store/hash_kv", "watch/watch", "watch/watch_reading", "watch/watch_life",
  "watch/watch_misuse", "watch/watch_progress",
}

local globals = getfenv(1)

local function specs_of(face, file, tag)
  face_specs.declare(globals, face, file, differences.of(face.name, file), tag)
end

for _, file in ipairs(FILES) do
  specs_of(secure.is_on and faces.keywatch or faces.testing, file, "#slow") -- there is no TLS in virtual time
  specs_of(faces.namespace, file, "#slow")
end

describe("etcd #once", function()
  for _, file in ipairs(FILES) do specs_of(faces.etcd, file, "") end

  teardown(faces.etcd.stop)
end)
