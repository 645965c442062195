--- Where a client is no store, and etcd 3.4.23 no keywatch: tests of stores that are not run through clients, and why.

-- Of every client.
local CLIENT = {
  ["store/txn"] = {
    ["messages are nested less deeply"] = { "may be as deep as the number of operations allows" },
    ["errors over the wire do not tell it"] = { "tells the compacted revision, if it cannot read what is older" },
  },
  ["store/compaction"] = {
    ["errors over the wire do not tell it"] = { "tells the compacted revision with the error and in the status" },
    ["the steps are the server's own affair"] = {
      "are due at once, and nothing is due when they are over", "each visit as many records as the store was told",
      "are taken by other calls as well, one by each", "are all taken before a physical compaction returns",
      "are all taken by a physical compaction that comes too late",
    },
  },
  ["store/error"] = {
    ["clients cannot arm alarms, nor lead followers"] = {
      "has the code, the words and the status of the table", "prints its words and its code",
      "tells the compacted revision if it is about that, and only then",
    },
    ["the table is nobody's face"] = { "the table of errors" },
  },
  ["store/misuse"] = {
    ["only a store has them"] = {
      "that there is no such choice", "that a name is known only up to a zero byte", "that a step is to no time",
      "that a store is led that is no follower", "do no harm as the revision of a follower", "to finalize another object",
    },
    ["it is a store that is opened"] = { "to open a store is refused", "do no harm as the options of a store" },
  },
  ["store/ids"] = { ["a follower is a store"] = { "is kept by a follower" } },
  ["store/hash_kv"] = {
    ["servers do not tell the revision of a hash"] = {
      "tells the revision of the store, of the hash, and of the last compaction",
    },
  },
  ["watch/watch"] = {
    ["a follower is a store"] = { "reads what a follower is told" },
    ["errors over the wire do not tell it"] = { "tells the compacted revision if it fails so" },
    ["the server still holds what the watch has no room for"] = {
      "fails if what it has missed is compacted away, after all that it still holds",
    },
  },
  ["watch/watch_reading"] = {
    ["an event of the revision itself is mark enough"] = { "gives what exists one by one, and marks alone" },
    ["a server can wake it at any time"] = { "raises where nothing is left that could wake it" },
    ["the server still holds what the watch has no room for"] = {
      "raises after the events that came before a compaction",
    },
  },
  ["watch/watch_progress"] = {
    ["progress is told where it is news, and not at every interval"] = {
      "is told after idle time, with the revision up to which nothing is missing",
      "is not told before the first interval is over", "is told after ten minutes unless it was said otherwise",
      "is not told to one that was told something meanwhile", "comes at most ten times a second",
      "comes by itself to one who waits for it",
    },
    ["an event of the revision itself is mark enough"] = { "comes behind everything that it covers" },
    ["the server is asked, which needs time"] = {
      "needs no time, wherever it is called", "returns at once if that is so already",
    },
  },
  ["watch/watch_misuse"] = {
    ["a client that is closed fails, and does not raise"] = { "a store that is closed" },
  },
  ["watch/watch_life"] = {
    ["clients are held until their test is over"] = {
      "is collected with its watches, in whatever order", "is collected too if somebody has waited for it",
    },
    ["a program has a store of its own"] = { "a program" },
  },
}

-- Of etcd alone.
local ETCD = {
}

local function add(to, list)
  for reason, names in pairs(list or {}) do
    for _, name in ipairs(names) do to[name] = reason end
  end
  return to
end

--- The differences of a client to a file of specs: reasons by the names of tests, and of groups of them.
local function of(face, file)
  local list = add({}, CLIENT[file])
  return face == "etcd" and add(list, ETCD[file]) or list
end

return { of = of }
