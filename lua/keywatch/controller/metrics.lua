-- SPDX-License-Identifier: MIT
--- metrics: the counters of a manager's components as text in Prometheus' format, version 0.0.4.
--
--   # HELP keywatch_work_queue_depth Requests that are queued.
--   # TYPE keywatch_work_queue_depth gauge
--   keywatch_work_queue_depth{controller="jobs"} 3
--
-- Families without the prefix keywatch_ have the names, labels and buckets of Kubernetes' controller-runtime, so that
-- its dashboards work. Families come in the order of the tables below, and their samples in the order in which the
-- components were added.
--
-- Counters never decrease. Each start of a controller has a new queue, whose counters begin at 0: the counts of former
-- queues are added. So `look` reads the counters whenever a component was started or has stopped.

local histograms = require "keywatch.controller.histogram"
local metrics_text = require "keywatch.support.metrics_text"
local strings_first = require("keywatch.support.order").strings_first

local NO_TIMES = histograms.new(histograms.QUEUE)

local add_family, sample_text = metrics_text.add_family, metrics_text.sample

-- {====== Families ======

-- Each family has a name, a type, a help text and a source: a field of the component's status; or a function of the
-- status, for a histogram of the component. With a label, whose name follows, the source is a list of values of the
-- label with their sources; or a field that is a table, whose keys are the values of the label.
local function of_queue(field)
  return function(status) return status.queue and status.queue[field] or 0 end
end

local function is_true(field)
  return function(status) return status[field] and 1 or 0 end
end

local function is_state(state)
  return function(status) return status.state == state and 1 or 0 end
end

local STUCK_HELP = "Seconds that the call of a handler has not returned while changes wait, if it is stuck."

--- Returns a list of values of a label with their sources.
local function same_names(fields)
  local list = {}
  for i, field in ipairs(fields) do list[i] = { field, field } end
  return list
end

local OUTCOMES = same_names { "done", "later", "again", "failed", "given_up" } -- fields of a controller's status

local function errors(status) return status.failed + status.given_up end

local RESULTS = { { "success", "done" }, { "error", errors }, { "requeue", "again" }, { "requeue_after", "later" } }

--- Returns the source of a histogram: a function of the controller.
local function times_of_queue(field)
  return function(object) return object.present and object.present.queue[field] or NO_TIMES end
end

local CONTROLLER = {
  { "keywatch_controller_running", "gauge", "1 if the workers of the controller run.", is_state "running" },
  { "keywatch_controller_reconciles_total", "counter",
    "Calls of reconcile that have ended, by their outcome.", OUTCOMES,
    "outcome" },
  { "keywatch_controller_reconcile_seconds_total", "counter", "Seconds that the calls of reconcile have taken.",
    "seconds" },
  { "keywatch_controller_raised_total", "counter", "Calls of reconcile that have raised an error.", "raised" },
  { "keywatch_controller_late_total", "counter", "Calls of reconcile that have taken longer than their timeout.",
    "late" },
  { "keywatch_controller_source_failures_total", "counter", "Calls of map and where that have raised an error.",
    "source_failures" },
  { "keywatch_controller_workers", "gauge", "Workers that the controller has.", "workers" },
  { "keywatch_controller_busy_workers", "gauge", "Workers that call reconcile now.", "busy" },
  { "keywatch_controller_longest_call_seconds", "gauge", "Seconds that the oldest present call of reconcile has taken.",
    "longest_call_seconds" },
  { "keywatch_controller_stuck_seconds", "gauge", STUCK_HELP, "stuck", "handler" },
  { "keywatch_work_queue_depth", "gauge", "Requests that are queued.", of_queue "depth" },
  { "keywatch_work_queue_active", "gauge", "Requests that are being worked on.", of_queue "active" },
  { "keywatch_work_queue_delayed", "gauge", "Requests that are due later.", of_queue "delayed" },
  { "keywatch_work_queue_adds_total", "counter", "Requests that were added, also if they were queued already.",
    of_queue "adds" },
  { "keywatch_work_queue_gets_total", "counter", "Requests that were handed out to workers.", of_queue "gets" },
  { "keywatch_work_queue_retries_total", "counter", "Requests that were added again by the limiter.",
    of_queue "retries" },
  { "keywatch_work_queue_latency_seconds_total", "counter", "Seconds that requests have been queued.",
    of_queue "latency_seconds" },
  { "keywatch_work_queue_work_seconds_total", "counter", "Seconds that ended work on requests has taken.",
    of_queue "work_seconds" },
  { "keywatch_work_queue_unfinished_work_seconds", "gauge", "Seconds that the present work has taken, in sum.",
    of_queue "unfinished_seconds" },
  { "keywatch_work_queue_longest_running_seconds", "gauge", "Seconds that the oldest present work has taken.",
    of_queue "longest_running_seconds" },
}

local ELECTOR = {
  { "keywatch_elector_leading", "gauge", "1 if this process leads.", is_state "leading" },
  { "keywatch_elector_terms_total", "counter", "How often this process has begun to lead.", "terms" },
  { "keywatch_elector_trouble", "gauge", "1 if this process cannot take part in the election now.", is_true "trouble" },
}

local INFORMER = {
  { "keywatch_informer_synced", "gauge", "1 if all existing objects have arrived.", is_true "has_synced" },
  { "keywatch_informer_objects", "gauge", "Objects of the informer.", "objects" },
  { "keywatch_informer_bad_values", "gauge", "Values that have not become objects.", "bad" },
  { "keywatch_informer_handlers", "gauge", "Handlers of the informer.", "handlers" },
  { "keywatch_informer_revision", "gauge", "Revision that the informer has reached.", "revision" },
  { "keywatch_informer_gaps_total", "counter", "How often the informer had to read everything again.",
    "gaps" },
  { "keywatch_informer_trouble", "gauge", "1 if the informer cannot follow the server now.", is_true "trouble" },
  { "keywatch_informer_stuck_seconds", "gauge", STUCK_HELP, "stuck", "handler" },
}

local CACHE = {
  { "keywatch_cache_keys", "gauge", "Keys of the cache.", "keys" },
  { "keywatch_cache_revision", "gauge", "Revision that the cache has reached.", "revision" },
  { "keywatch_cache_age_seconds", "gauge", "Seconds since the cache was known to be as new as the server.", "age" },
  { "keywatch_cache_trouble", "gauge", "1 if the cache cannot follow the server now.", is_true "trouble" },
}

-- The names of Kubernetes' controller-runtime, and of its work queues and elections.
local RUNTIME = {
  { "controller_runtime_reconcile_total", "counter", "Calls of reconcile that have ended, by their result.", RESULTS,
    "result" },
  { "controller_runtime_reconcile_errors_total", "counter", "Calls of reconcile that have failed.", errors },
  { "controller_runtime_terminal_reconcile_errors_total", "counter",
    "Calls of reconcile that have failed and are not repeated.", "given_up" },
  { "controller_runtime_reconcile_panics_total", "counter", "Calls of reconcile that have raised an error.", "raised" },
  { "controller_runtime_reconcile_time_seconds", "histogram", "Duration of calls of reconcile.",
    function(object) return object.times end },
  { "controller_runtime_max_concurrent_reconciles", "gauge", "Workers that the controller has.", "workers" },
  { "controller_runtime_active_workers", "gauge", "Workers that call reconcile now.", "busy" },
}

local WORKQUEUE = {
  { "workqueue_depth", "gauge", "Requests that are queued.", of_queue "depth" },
  { "workqueue_adds_total", "counter", "Requests that were added, also if they were queued already.",
    of_queue "adds" },
  { "workqueue_queue_duration_seconds", "histogram", "Time that requests have been queued.", times_of_queue "waits" },
  { "workqueue_work_duration_seconds", "histogram", "Time that work on requests has taken.", times_of_queue "works" },
  { "workqueue_unfinished_work_seconds", "gauge", "Seconds that the present work has taken, in sum.",
    of_queue "unfinished_seconds" },
  { "workqueue_longest_running_processor_seconds", "gauge", "Seconds that the oldest present work has taken.",
    of_queue "longest_running_seconds" },
  { "workqueue_retries_total", "counter", "Requests that were added again by the limiter.", of_queue "retries" },
}

local ELECTION = {
  { "leader_election_master_status", "gauge", "1 if this process leads.", is_state "leading" },
}

local KINDS = {
  { word = "controller", label = "controller", families = CONTROLLER },
  { word = "controller", label = "controller", families = RUNTIME },
  { word = "controller", label = "controller", second_label = "name", families = WORKQUEUE },
  { word = "elector", label = "election", families = ELECTOR },
  { word = "elector", label = "name", families = ELECTION },
  { word = "informer", label = "informer", families = INFORMER },
  { word = "cache", label = "cache", families = CACHE },
}

local STATES = { "new", "started", "stopping", "stopped" } -- of a manager
local RUNNING = { "idle", "starting", "started", "stopping", "stopped", "failed" } -- states of a component

-- }======

-- {====== Values ======

--- Returns the value of a counter that never decreases: if the component has reset its count, the previous count is
-- added.
local function count(record, name, value)
  local counter = record.counts[name]
  if not counter then
    counter = { before = 0, last = 0 }
    record.counts[name] = counter
  end
  if value < counter.last then counter.before = counter.before + counter.last end
  counter.last = value
  return counter.before + value
end

--- Returns the value of a family in a status, or nil.
local function value_of(status, source)
  if type(source) == "function" then return source(status) end
  return status[source]
end

--- Returns the histogram of a family, none of whose counts ever decreases, for metrics_text.add_histogram.
local function histogram_of(record, family)
  local found, name, sum = family[4](record.object), family[1], 0
  local counts = {}
  for i, n in ipairs(found.counts) do
    sum = sum + count(record, name .. i, n)
    counts[i] = sum
  end
  return { bounds = found.bounds, counts = counts, sum = count(record, name .. "sum", found.sum),
    count = count(record, name .. "count", found.count) }
end

--- Returns the values of a family that has a label, as a list of { value of the label, value of the family }.
local function labelled_values(status, source)
  local list = {}
  if type(source) == "string" then
    for _, key in ipairs(strings_first(status[source])) do list[#list + 1] = { key, status[source][key] } end
  else
    for i, one in ipairs(source) do list[i] = { one[1], value_of(status, one[2]) } end
  end
  return list
end

--- Calls fn(family, key, value) for each value of a component. `key` is the value of the label of the family, or nil.
local function each_value(record, families, fn)
  local status = record.kind.status(record)
  for _, family in ipairs(families) do
    if family[2] == "histogram" then
      fn(family, nil, histogram_of(record, family))
    else
      local values = family[5] and labelled_values(status, family[4]) or { { nil, value_of(status, family[4]) } }
      for _, one in ipairs(values) do
        local key, value = one[1], one[2]
        if family[2] == "counter" and value then value = count(record, family[1] .. (key or ""), value) end
        if type(value) == "number" then fn(family, key, value) end
      end
    end
  end
end

--- Reads the counters of a component. Called after its start and its stop.
local function look(record)
  for _, kind in ipairs(KINDS) do
    if kind.word == record.kind.word then each_value(record, kind.families, function() end) end
  end
end

-- }======

-- {====== Text ======

local HEALTHY, STATE, COMPONENTS = "keywatch_manager_healthy", "keywatch_manager_state", "keywatch_manager_components"

--- Returns the names of all families, in order.
local function names()
  local list = { HEALTHY, STATE, COMPONENTS }
  for _, kind in ipairs(KINDS) do
    for _, family in ipairs(kind.families) do list[#list + 1] = family[1] end
  end
  return list
end

--- Adds the families of the manager itself to a list.
local function add_manager(lines, records, is_healthy, state)
  add_family(lines, HEALTHY, "gauge", "1 if nothing is wrong with the manager.",
    { sample_text(HEALTHY, {}, is_healthy and 1 or 0) })
  local samples = {}
  for i, one in ipairs(STATES) do
    samples[i] = sample_text(STATE, { "state", one }, one == state and 1 or 0)
  end
  add_family(lines, STATE, "gauge", "1 for the state that the manager is in.", samples)
  local counts, numbers = {}, {}
  for _, record in ipairs(records) do counts[record.state] = (counts[record.state] or 0) + 1 end
  for i, one in ipairs(RUNNING) do
    numbers[i] = sample_text(COMPONENTS, { "state", one }, counts[one] or 0)
  end
  add_family(lines, COMPONENTS, "gauge", "Components of the manager, by their state.", numbers)
end

--- Returns the samples of all components of a kind, by the name of the family.
local function samples_of(kind, records)
  local samples = {}
  for _, family in ipairs(kind.families) do samples[family[1]] = {} end
  for _, record in ipairs(records) do
    if record.kind.word == kind.word then
      each_value(record, kind.families, function(family, key, value)
        local labels, list = { kind.label, record.name }, samples[family[1]]
        if kind.second_label then labels[3], labels[4] = kind.second_label, record.name end
        if key then labels[#labels + 1], labels[#labels + 2] = family[5], key end
        if type(value) == "table" then
          metrics_text.add_histogram(list, family[1], metrics_text.labels(labels), value)
        else
          list[#list + 1] = sample_text(family[1], labels, value)
        end
      end)
    end
  end
  return samples
end

--- Returns the counters of components as text.
local function text(records, is_healthy, state)
  local lines = {}
  add_manager(lines, records, is_healthy, state)
  for _, kind in ipairs(KINDS) do
    local samples = samples_of(kind, records)
    for _, family in ipairs(kind.families) do
      add_family(lines, family[1], family[2], family[3], samples[family[1]])
    end
  end
  return table.concat(lines)
end

-- }======

return { look = look, text = text, names = names }
