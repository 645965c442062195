--- A cache answers as its server does: the specs of reads and watches of a store pass for a cache.
--
-- They run unchanged, with a cache in place of the store, except for the tests in spec/cache/differences.lua.

local getfenv = require("busted.compatibility").getfenv

local differences = require "spec.cache.differences"
local face_specs = require "spec.support.face_specs"
local faces = require "spec.support.faces"

local FILES = {
  "store/put", "store/exists", "store/range", "store/sort", "store/delete", "store/txn",
  "store/compaction", "store/each", "store/misuse", "watch/watch", "watch/watch_reading", "watch/watch_life",
  "watch/watch_misuse", "watch/watch_progress",
}

local globals = getfenv(1)

for _, file in ipairs(FILES) do
  face_specs.declare(globals, faces.cache, file, differences.of("keywatch", file), "#slow")
end

describe("etcd #once", function()
  for _, file in ipairs(FILES) do
    face_specs.declare(globals, faces.cache_of_etcd, file, differences.of("etcd", file), "")
  end

  teardown(faces.etcd.stop)
end)
