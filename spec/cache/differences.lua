--- Where a cache is not its server: tests of stores that are not run through a cache, and why.

local of_clients = require "spec.client.differences"

-- Of every cache.
local CACHE = {
  ["store/exists"] = {
    ["the history of a cache is its own"] = { "fails as get does, and does not say false then" },
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
      "before the compacted revision fails, and tells which that is",
      "at the compacted revision is told what was not forgotten",
      "does not come where it is forgotten", "fails if what exists is compacted away before it was read",
    },
  },
  ["watch/watch_reading"] = {
    ["the history of a cache is its own"] = {
      "gives the same error again and again once the watch has failed", "ends as next does",
      "raises what the watch fails with, as the error that it is",
    },
    ["what has come to a watch of a cache can be read after the cache has ended"] = {
      "for what exists of a store that is closed is told so",
    },
    ["a cache is behind its server for a moment"] = {
      "polls from anywhere, from a coroutine that is no task too", "in a task is fed by other tasks, and ended by them",
    },
  },
  ["watch/watch_life"] = {
    ["what has come to a watch of a cache can be read after the cache has ended"] = {
      "that is closed leaves its watches, which say so", "that is closed by one of its readers ends the others",
    },
  },
  ["watch/watch_misuse"] = {
    ["the history of a cache is its own"] = { "a watch tells its key, its revision and its state" },
  },
  ["watch/watch_progress"] = {
    ["the history of a cache is its own"] = { "fails as the watch does" },
    ["the clock of a cache is its own"] = {
      "is told after idle time, with the revision up to which nothing is missing",
      "is told after ten minutes unless it was said otherwise",
      "is not told to one that was told something meanwhile", "comes at most ten times a second",
      "comes by itself to one who waits for it",
      "is told to one that begins at the next revision, and to none that begins later",
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
