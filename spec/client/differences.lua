--- Where clients and namespaces differ from stores, and etcd 3.4.23 from keywatch: tests of stores that are not run
-- through these, and why.

-- Of everything.
local A_PROGRAM = "a program has a store of its own"
local ALL = {
  ["store/delete"] = {
    ["its files are looked into"] = { "of long keys is written in parts, since LMDB keeps a part in memory" },
  },
  ["store/txn_misuse"] = { [A_PROGRAM] = { "fails at once if it repeats the same tables many times" } },
  ["watch/watch_reading"] = { [A_PROGRAM] = { "raises a text in nginx, which would log an object as nothing" } },
  ["watch/watch_life"] = { [A_PROGRAM] = { "a program" } },
  ["watch/watch_progress"] = {
    [A_PROGRAM] = {
      "fails if the initial kvs are compacted", "is woken when the store is closed", "is woken when the watch fails",
    },
  },
}

-- Of every client.
local CLIENT = {
  ["store/txn"] = {
    ["errors over the wire lack the revision"] = { "reports the compacted revision, if it reads an older one" },
  },
  ["store/compaction"] = {
    ["errors over the wire lack the revision"] = { "reports the compacted revision in the error and in the status" },
    ["the steps are the server's own affair"] = {
      "are due at once, and the last one leaves none due", "each visit as many records as the option says",
      "are done by other calls as well, one by each", "are all done before a physical compaction returns",
      "are all done by a physical compaction of a compacted revision",
    },
  },
  ["store/error"] = {
    ["clients cannot arm alarms, nor lead replicas"] = {
      "has the code, the text and the status of the table", "prints its text and its code",
      "has the compacted revision if it is about compaction, and only then",
    },
    ["the table belongs to no store"] = { "the table of errors" },
  },
  ["store/misuse"] = {
    ["only a store has them"] = {
      "with an unknown choice", "with a name that is known only up to a zero byte", "with a step to a malformed time",
      "do no harm as the revision of a replica",
      "to finalize another object",
    },
    ["it is a store that is opened"] = { "opening a store is refused", "do no harm as the options of a store" },
  },
  ["store/ids"] = { ["a replica is a store"] = { "is kept by a replica" } },
  ["store/hash_kv"] = {
    ["servers do not return the revision of a hash"] = {
      "returns the revision of the store, of the hash, and of the last compaction",
    },
  },
  ["watch/watch"] = {
    ["errors over the wire lack the revision"] = { "reports the compacted revision in that case" },
    ["the server still holds what the watch has no room for"] = {
      "fails if its missed events are compacted, after its queue",
    },
  },
  ["watch/watch_reading"] = {
    ["an event of the revision itself is mark enough"] = { "returns initial kvs one by one, and each mark separately" },
    ["a server can wake it at any time"] = { "raises at a deadlock" },
    ["an event may come before the answer to its put"] = { "in a task lets others run until an event comes" },
  },
  ["watch/watch_progress"] = {
    ["a mark that says nothing new is not queued"] = { "adds progress to a watch that begins at the next revision" },
    ["the server is asked, which needs time"] = {
      "takes no time, and may be called anywhere", "returns at once if that has already happened",
    },
  },
  ["watch/watch_misuse"] = {
    ["a client that is closed fails, and does not raise"] = { "a closed store" },
  },
  ["watch/watch_life"] = {
    ["what is counted is the server's, too, which hears of it later"] = {
      "frees its queue at once", "is collected, and the core removes its watcher", "leave no memory behind",
    },
    ["clients are held until their test is over"] = {
      "is collected with its watches, in whatever order", "is collected also after a task has waited for it",
    },
  },
}

-- Of etcd alone.
local ETCD = {
  ["store/txn"] = {
    ["etcd panics"] = { "fails as a whole if it has deleted a key whose value or lease an operation needs" },
  },
  ["store/txn_rules"] = {
    ["etcd's work grows with the square"] = { "a key that is deleted and put many times" },
    ["etcd has no limit on the whole"] = {
      "all operations and compares of a transaction, each counted as often as it is deep,",
    },
  },
  ["store/lease"] = {
    ["etcd has no such flag"] = { "raises a short TTL to the minimum" },
    ["etcd chooses ids of 63 bits"] = { "chooses ids that are positive, below 2^53 and distinct" },
    ["etcd has the keys of a lease in no order"] = {
      "is bound to a lease by a put", "are deleted in the order of keys, by a revocation and by an expiry",
      "are listed in order", "may be added and removed while they become many",
    },
  },
  ["store/compaction"] = {
    ["etcd's file grows and shrinks by pages"] = { "frees the memory of removed records" },
    ["the server has a past, which is compacted"] = { "may be at revision 0 and 1, with nothing before" },
    ["the steps are the server's own affair"] = {
      "skip the remains of earlier compactions: other keys cost nothing",
    },
  },
  ["store/ids"] = {
    ["etcd has the keys of a lease in no order"] = {
      "may be the lease of a put as a string, as it was returned, and as the lease object",
    },
    ["etcd's clock cannot be stopped"] = { "refers to a lease in every function" },
    ["etcd has leases that end together in no order"] = { "sets the order of leases that end together" },
  },
  ["store/hash_kv"] = {
    ["hashes are over revisions, and the server has a past"] = { "the hash" },
    ["etcd 3.4 refuses to hash at the compacted revision"] = {
      "refuses compacted and future revisions",
    },
  },
  ["watch/watch"] = {
    ["etcd keeps the last change of a key in the compacted revision alone"] = {
      "at the compacted revision delivers every change of it, until the next compaction",
    },
    ["nobody moves etcd's clock"] = { "delivers the keys of a lease that is revoked, or that expires" },
  },
  ["watch/watch_reading"] = {
    ["etcd has no such flag"] = { "returns events of the store itself: the expiry of a lease" },
    ["nobody moves etcd's clock"] = { "with a manual clock returns them when the store is stepped" },
    ["the progress of etcd 3.4.23 cannot be trusted"] = { "in a task gets events of other tasks, and ends with them" },
  },
  ["watch/watch_misuse"] = {
    ["the server has a past"] = { "a watch has its key, its revision and its state" },
  },
  ["watch/watch_progress"] = {
    ["etcd's interval of progress and clock cannot be set"] = {
      "comes only if it was requested",
      "comes after idle time, with the revision up to which nothing is missing",
      "comes after ten minutes by default",
      "is not sent to a watch that has received events since", "comes at most ten times a second",
      "comes by itself to a waiting reader",
      "comes to a watch that begins at the next revision, and not to later ones",
    },
    ["the progress of etcd 3.4.23 cannot be trusted"] = {
      "returns the revision up to which everything can be read without waiting",
      "adds progress to a watch that wants it, behind the events that it covers", "continues behind unread events",
      "refuses to exceed the bound of the queue, until events were read",
      "returns an older revision if the watch begins later", "fails as the watch does",
      "returns when that task was handed everything", "covers revisions without events for this watch",
      "may be called by many tasks", "returns at its timeout",
      "waits for a task that continues a read of another one", "is woken when the watch is closed",
      "waits for no reader that has ended",
      "does not treat the top level as a task, which reads only while it waits there",
    },
  },
}

-- Of a namespace.
local NAMESPACE = {
  ["store/txn"] = {
    ["a range of a namespace has an end"] = {
      "a delete without an end", "fails as a whole if it has deleted a key whose value or lease an operation needs",
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
      "has the code, the text and the status of the table", "prints its text and its code",
      "has the compacted revision if it is about compaction, and only then",
    },
  },
  ["store/misuse"] = {
    ["a replica is a store"] = { "do no harm as the revision of a replica" },
    ["a namespace needs no finalizer"] = { "to finalize another object" },
  },
  ["store/ids"] = { ["a replica is a store"] = { "is kept by a replica" } },
  ["store/hash_kv"] = {
    ["hashes are over the keys of the owner"] = {
      "the hash", "returns the revision of the store, of the hash, and of the last compaction",
    },
  },
  ["watch/watch"] = {
    ["a range of a namespace has an end"] = {
      "at the compacted revision delivers every change of it, until the next compaction",
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
