--- Where a client is no store, a namespace no store, and etcd 3.4.23 no keywatch: tests of stores that are not run
-- through these, and why.

-- Of everything.
local A_PROGRAM = "a program has a store of its own"
local ALL = {
  ["store/delete"] = {
    ["its files are looked into"] = { "of long keys is written in parts, since LMDB has a part in memory" },
  },
  ["store/txn_misuse"] = { [A_PROGRAM] = { "fails at once when it holds the same tables over and over" } },
  ["watch/watch_reading"] = { [A_PROGRAM] = { "raises a text in nginx, which would log an object as nothing" } },
  ["watch/watch_life"] = { [A_PROGRAM] = { "a program" } },
  ["watch/watch_progress"] = {
    [A_PROGRAM] = {
      "fails where what exists is compacted away", "is woken when the store is closed", "is woken when the watch fails",
    },
  },
}

-- Of every client.
local CLIENT = {
  ["store/txn"] = {
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
    ["clients cannot arm alarms, nor lead replicas"] = {
      "has the code, the words and the status of the table", "prints its words and its code",
      "tells the compacted revision if it is about that, and only then",
    },
    ["the table is nobody's face"] = { "the table of errors" },
  },
  ["store/misuse"] = {
    ["only a store has them"] = {
      "that there is no such choice", "that a name is known only up to a zero byte", "that a step is to no time",
      "that a store is led that is no replica", "do no harm as the revision of a replica",
      "to finalize another object",
    },
    ["it is a store that is opened"] = { "to open a store is refused", "do no harm as the options of a store" },
  },
  ["store/ids"] = { ["a replica is a store"] = { "is kept by a replica" } },
  ["store/hash_kv"] = {
    ["servers do not tell the revision of a hash"] = {
      "tells the revision of the store, of the hash, and of the last compaction",
    },
  },
  ["watch/watch"] = {
    ["errors over the wire do not tell it"] = { "tells the compacted revision if it fails so" },
    ["the server still holds what the watch has no room for"] = {
      "fails if what it has missed is compacted away, after all that it still holds",
    },
  },
  ["watch/watch_reading"] = {
    ["an event of the revision itself is mark enough"] = { "gives what exists one by one, and marks alone" },
    ["a server can wake it at any time"] = { "raises where nothing is left that could wake it" },
    ["an event may come before the answer to its put"] = { "in a task lets others go on until something comes" },
  },
  ["watch/watch_progress"] = {
    ["a mark that says nothing new is not queued"] = { "brings a mark to a watch that begins at the next revision" },
    ["the server is asked, which needs time"] = {
      "needs no time, wherever it is called", "returns at once if that is so already",
    },
  },
  ["watch/watch_misuse"] = {
    ["a client that is closed fails, and does not raise"] = { "a store that is closed" },
  },
  ["watch/watch_life"] = {
    ["what is counted is the server's, too, which hears of it later"] = {
      "gives back what it had, at once", "is collected, and is watched no more by the core", "leave no memory behind",
    },
    ["clients are held until their test is over"] = {
      "is collected with its watches, in whatever order", "is collected too if somebody has waited for it",
    },
  },
}

-- Of etcd alone.
local ETCD = {
  ["store/txn"] = {
    ["etcd panics"] = { "fails as a whole where it has deleted the key whose value or lease is to be kept" },
  },
  ["store/txn_rules"] = {
    ["etcd's work grows with the square"] = { "a key that is deleted many times and put many times" },
    ["etcd has no limit on the whole"] = {
      "all operations and compares of a transaction, each counted as often as it is deep,",
    },
  },
  ["store/lease"] = {
    ["etcd has no such flag"] = { "raises a time that is too short to the least" },
    ["etcd chooses ids of 63 bits"] = { "chooses ids that are positive, below 2^53 and distinct" },
    ["etcd has the keys of a lease in no order"] = {
      "is bound to a lease by a put", "are deleted in the order of keys, when it is revoked and when it expires",
      "are listed in order", "come and go while they become many",
    },
  },
  ["store/compaction"] = {
    ["etcd's file grows and shrinks by pages"] = { "gives back the memory of what it forgets" },
    ["the server has a past, which is compacted"] = { "can be at revision 0 and 1, before which nothing is" },
    ["the steps are the server's own affair"] = {
      "pass over what earlier compactions have left: other keys cost nothing",
    },
  },
  ["store/ids"] = {
    ["etcd has the keys of a lease in no order"] = {
      "is the lease of a put, as string, as given back, and as the lease itself",
    },
    ["etcd's clock goes on"] = { "names a lease for everything that is done with it" },
    ["etcd has leases that end together in no order"] = { "sets the order of leases that end together" },
  },
  ["store/hash_kv"] = {
    ["hashes are over revisions, and the server has a past"] = { "the hash" },
    ["etcd 3.4 refuses to hash at the compacted revision"] = {
      "refuses a revision that is compacted or still to come",
    },
  },
  ["watch/watch"] = {
    ["etcd keeps the last change of a key in the compacted revision alone"] = {
      "at the compacted revision is told of every change that was made in it, until the next compaction",
    },
    ["nobody moves etcd's clock"] = { "tells of the keys of a lease that is revoked, or that ends" },
  },
  ["watch/watch_reading"] = {
    ["etcd has no such flag"] = { "sees what the store does by itself: the end of a lease" },
    ["nobody moves etcd's clock"] = { "with a manual clock sees that when the store is stepped there" },
    ["the progress of etcd 3.4.23 cannot be trusted"] = { "in a task is fed by other tasks, and ended by them" },
  },
  ["watch/watch_misuse"] = {
    ["the server has a past"] = { "a watch tells its key, its revision and its state" },
  },
  ["watch/watch_progress"] = {
    ["nobody sets etcd's interval of progress, nor its clock"] = {
      "is not told unless it was asked for",
      "is told after idle time, with the revision up to which nothing is missing",
      "is told after ten minutes unless it was said otherwise",
      "is not told to one that was told something meanwhile", "comes at most ten times a second",
      "comes by itself to one who waits for it",
      "is told to one that begins at the next revision, and to none that begins later",
    },
    ["the progress of etcd 3.4.23 cannot be trusted"] = {
      "returns the revision up to which everything can be read without waiting",
      "brings a mark to a watch that wants progress, behind what it covers", "goes on behind what was not read yet",
      "refuses to hold more than it should, until something was read",
      "is behind the present where the watch begins later", "fails as the watch does",
      "returns when that task was handed everything", "covers what is not for this watch",
      "may be called by many tasks", "gives up when its time is over",
      "waits for a task that goes on with what another one has begun to read", "is woken when the watch is closed",
      "asks nobody who has ended", "does not take the top level for a task, which reads only while it waits there",
    },
  },
}

-- Of a namespace.
local NAMESPACE = {
  ["store/txn"] = {
    ["a range of a namespace has an end"] = {
      "a delete without an end", "fails as a whole where it has deleted the key whose value or lease is to be kept",
    },
  },
  ["store/txn_rules"] = {
    ["a range of a namespace has an end"] = {
      "a delete without an end is held against no put after it",
      "a delete without an end is held against no put before it",
      "a delete from the key on is not held against its put",
      "a delete of everything is not held against it", "a delete without an end is held against no nested put",
      "a nested delete without an end is held against no put",
      "a delete without an end in one nested transaction is held against no put of the next",
    },
  },
  ["store/error"] = {
    ["a replica is a store"] = {
      "has the code, the words and the status of the table", "prints its words and its code",
      "tells the compacted revision if it is about that, and only then",
    },
  },
  ["store/misuse"] = {
    ["a replica is a store"] = { "do no harm as the revision of a replica" },
    ["a namespace needs no finalizer"] = { "to finalize another object" },
  },
  ["store/ids"] = { ["a replica is a store"] = { "is kept by a replica" } },
  ["store/hash_kv"] = {
    ["hashes are over the keys of the owner"] = {
      "the hash", "tells the revision of the store, of the hash, and of the last compaction",
    },
  },
  ["watch/watch"] = {
    ["a range of a namespace has an end"] = {
      "at the compacted revision is told of every change that was made in it, until the next compaction",
    },
  },
}

local function add(to, list)
  for reason, names in pairs(list or {}) do
    for _, name in ipairs(names) do to[name] = reason end
  end
  return to
end

--- The differences of a client, or a namespace, to a file of specs: reasons by the names of tests, and of groups of
-- them.
local function of(face, file)
  local list = add({}, ALL[file])
  if face == "namespace" then return add(list, NAMESPACE[file]) end
  add(list, CLIENT[file])
  return face == "etcd" and add(list, ETCD[file]) or list
end

return { of = of }
