--- A durable store whose journal has lost frames, or is missing: the store is refused with a sentence, or reports what
-- it lacks. spec/store/journal_spec.lua flips every bit of a journal, and cuts it off everywhere.

local keywatch = require "keywatch"
local log = require "keywatch.support.log"

local directory = require "spec.support.directory"
local durable = require "spec.support.durable"
local state = require "spec.support.state"
local store_files = require "spec.support.store_files"

local SMALL_JOURNAL = 65536
local BLOCK = 4096
local JOURNAL = "journal-0"

local STEPS = {
  { "put", "a", "1" },
  { "grant", 7, 60 },
  { "txn", { success = { { put = "b", value = ("x"):rep(500) }, { put = "c", value = "", lease = 7 } } } },
  { "delete", "a" },
  { "put", "b", ("y"):rep(1000) },
  { "arm", "no_space" },
  { "disarm", "no_space" },
  { "put", "last", "z" },
}
local FRAMES = BLOCK -- offset of the first frame
local USED = FRAMES + #STEPS * BLOCK

local files, expected, path

--- Returns the files of a store whose steps are only in the journal, and its visible state.
setup(function()
  local original = directory.new()
  local subject = durable.new(original, SMALL_JOURNAL)
  assert(subject:open())
  for _, step in ipairs(STEPS) do assert(subject:ask(step)) end
  files, expected = store_files.take(original), state.of(subject.store)
  subject:close()
  assert.is_nil(files["journal-1"])
end)

before_each(function() path = directory.new() end)
after_each(directory.remove_all)

--- Opens a store that has these bytes as its journal. Returns "whole" or "refused".
local function try(bytes)
  store_files.put(path, { ["data.mdb"] = files["data.mdb"], [JOURNAL] = bytes })
  local store, err = keywatch.open { path = path, now = 0 }
  if not store then
    assert.equal("corrupt", err.code)
    assert.matches("^keywatch: cannot open " .. path:gsub("%p", "%%%0") .. ": " .. JOURNAL:gsub("%p", "%%%0") .. " %a",
      err.message)
    return "refused"
  end
  local ok, words = pcall(state.expect, store, expected)
  store:close()
  if not ok then error(words, 0) end
  return "whole"
end

describe("a store", function()
  it("is whole with the original journal, which the database lacks", function()
    assert.equal("whole", try(files[JOURNAL]))
  end)

  it("is refused if frames are lost, and the header is not", function()
    for at = FRAMES, USED - 2 * BLOCK, BLOCK do
      local bytes = files[JOURNAL]
      local damaged = bytes:sub(1, at) .. ("\0"):rep(BLOCK) .. bytes:sub(at + BLOCK + 1)
      assert.equal("refused", try(damaged))
    end
  end)
end)

describe("a store that was not closed, and whose journal is missing", function()
  local lines

  before_each(function()
    lines = {}
    log.to(function(level, text) lines[#lines + 1] = level .. " " .. text end)
    store_files.put(path, { ["data.mdb"] = files["data.mdb"] })
  end)
  after_each(function() log.to(nil) end)

  it("reports that in the log, in its status and in that of its server", function()
    local store = assert(keywatch.open { path = path, now = 0 })
    local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
    local client = keywatch.connect(server:addresses()[1])
    assert.equal(1, store:status().revision)
    assert.matches("the journal was missing", store:status().errors[1])
    assert.is_false(store:status().has_failed)
    assert.matches("the journal was missing", client:status().errors[1])
    assert.same({ "warn " .. path .. ": " .. store:status().errors[1] }, lines)
    client:close()
    server:close()
    store:close()
  end)

  it("does not report that once it was written and closed, also without the journal's files", function()
    local subject = durable.new(path, SMALL_JOURNAL)
    assert(subject:open())
    assert(subject.store:put("a", "1"))
    assert(subject:reopen())
    subject:close()
    os.remove(path .. "/" .. JOURNAL)
    assert.same({}, assert(subject:open()):status().errors)
    subject:close()
    assert.equal(1, #lines)
  end)
end)
