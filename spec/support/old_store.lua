--- A store of the version before the journal, as that version has left it: spec/fixtures/old_store.txt.
--
-- A server of that version has stored the role, the user and the ids of the server; a program has then taken the steps,
-- and closed the store. The compaction of the last but one was not at its end. In the text each line is an offset of
-- data.mdb and bytes, in hexadecimal; all other bytes are zero, and the last line has the size of the file.

local core = require "keywatch.core"

local BIG = ("big "):rep(700) -- LMDB gives such a value a page of its own

local old_store = {}

--- Steps of spec.support.durable.
old_store.STEPS = {
  { "put", "a", "1" },
  { "put", "a", "2" },
  { "put", "gone", "soon" },
  { "grant", 7, 60 },
  { "put", "leased", "y", { lease = 7 } },
  { "txn", { success = { { put = "c/1", value = "x" }, { put = "big", value = BIG }, { delete = "gone" } } } },
  { "compact", 2, { physical = true } },
  { "put", "a", "3" },
  { "delete", "c/1" },
  { "put", "c/2", "" },
  { "grant", 8, 6000 },
  { "compact", 2 },
  { "arm", "no_space" },
}

--- Returns what is stored of users and roles: the messages by their names.
function old_store.auth(store)
  local found = {}
  for table_name, message in pairs { authUsers = "User", authRoles = "Role" } do
    found[message] = {}
    for i, pair in ipairs(store:rows(table_name)) do found[message][i] = core.decode(message, pair[2]) end
  end
  return found
end

local function bytes_of(hex)
  return (hex:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

--- Returns the bytes of its data.mdb.
function old_store.read()
  local pieces, size = {}, 0
  for line in io.lines("spec/fixtures/old_store.txt") do
    local at, hex = line:match("^(%x+) (%x*)$")
    pieces[#pieces + 1] = ("\0"):rep(tonumber(at, 16) - size) .. bytes_of(hex)
    size = size + #pieces[#pieces]
  end
  return table.concat(pieces)
end

return old_store
