--- Where a cache is not its server: tests of stores that are not run through a cache, and why.

local of_clients = require "spec.client.differences"

-- Of every cache.
local CACHE = {
  ["store/exists"] = {
    ["the history of a cache is its own"] = { "fails as get does, and does not return false then" },
  },
  ["store/compaction"] = {
    ["the history of a cache is its own"] = {
      "is visible at once: older revisions cannot be read, the revision itself and later ones can",
    },
  },
  ["store/each"] = {
    ["the history of a cache is its own"] = {
      "raises, rather than end early, when its revision is compacted in between",
    },
  },
  ["watch/watch"] = {
    ["the history of a cache is its own"] = {
      "before the compacted revision fails, and reports that revision",
      "at the compacted revision delivers the events that were kept",
      "does not come if it is compacted", "fails if unread initial kvs are compacted",
    },
  },
  ["watch/watch_reading"] = {
    ["the history of a cache is its own"] = {
      "returns the same error again and again once the watch has failed", "ends as next does",
      "raises the error of the watch, unchanged",
    },
    ["what has come to a watch of a cache can be read after the cache has ended"] = {
      "of the initial kvs of a closed store gets its error",
    },
    ["a cache is behind its server for a moment"] = {
      "polls anywhere, also in a coroutine that is not a task",
      "in a task gets events of other tasks, and ends with them",
    },
  },
  ["watch/watch_life"] = {
    ["what has come to a watch of a cache can be read after the cache has ended"] = {
      "that is closed ends its watches, which report that", "that is closed by one of its readers ends the others",
    },
  },
  ["watch/watch_misuse"] = {
    ["the history of a cache is its own"] = { "a watch has its key, its revision and its state" },
  },
  ["watch/watch_progress"] = {
    ["the history of a cache is its own"] = { "fails as the watch does" },
    ["the clock of a cache is its own"] = {
      "comes after idle time, with the revision up to which nothing is missing",
      "comes after ten minutes by default",
      "is not sent to a watch that has received events since", "comes at most ten times a second",
      "comes by itself to a waiting reader",
      "comes to a watch that begins at the next revision, and not to later ones",
    },
  },
}

local function add(to, list)
  for reason, names in pairs(list or {}) do
    for _, name in ipairs(names) do to[name] = reason end
  end
  return to
end

--- The differences of a cache of `kind` to a file of specs: reasons by the names of tests, and of groups of them.
local function of(kind, file)
  return add(of_clients.of(kind, file), CACHE[file])
end

return { of = of }
