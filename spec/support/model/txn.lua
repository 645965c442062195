--- Transactions: their validation, the branches that are taken, and their answers.

local int64 = require "spec.support.int64"
local span = require "spec.support.model.span"

local verbs = { "put", "delete", "get", "range", "txn" }

local function verb_of(op)
  for _, verb in ipairs(verbs) do
    if op[verb] ~= nil then return verb end
  end
end

-- Validation: of both branches, whether taken or not -------------------------------------------------------

local check = {}

function check.get(op)
  if op.get == "" then return "empty_key" end
end

function check.range(op)
  if span.new(op.range, op).key == "" then return "empty_key" end
end

function check.delete(op)
  if span.new(op.delete, op).key == "" then return "empty_key" end
end

function check.put(op)
  if op.put == "" then return "empty_key" end
  if op.ignore_value and (op.value or "") ~= "" then return "value_provided" end
  if op.ignore_lease and (op.lease or 0) ~= 0 then return "lease_provided" end
end

local function check_ops(ops, budget)
  for _, op in ipairs(ops) do
    local code = check[verb_of(op)](op, budget)
    if code then return code end
  end
end

--- Checks a transaction. Its longest list counts against the budget; nested transactions have the rest.
local function check_txn(request, budget)
  local compares, success, failure = request.compare or {}, request.success or {}, request.failure or {}
  local n = math.max(#compares, #success, #failure)
  if n > budget then return "too_many_ops" end
  for _, compare in ipairs(compares) do
    if span.new(compare.key, compare).key == "" then return "empty_key" end
  end
  return check_ops(success, budget - n) or check_ops(failure, budget - n)
end

function check.txn(op, budget) return check_txn(op.txn, budget) end

-- The duplicate rule: no key is put twice, nor put and deleted ---------------------------------------------

--- True if a delete covers a key. Like etcd, ignores deletes without an end.
local function is_deleted(key, deletes)
  for _, deleted in ipairs(deletes) do
    if deleted.last ~= "\0" and span.contains(deleted, key) then return true end
  end
  return false
end

local function append(list, more)
  for _, item in ipairs(more) do list[#list + 1] = item end
end

local function each_op(ops, verb)
  local i = 0
  return function()
    repeat i = i + 1 until ops[i] == nil or verb_of(ops[i]) == verb
    return ops[i]
  end
end

local writes_of

--- Adds the puts of a branch of a nested transaction to `puts`. Returns false if one conflicts. Puts of the other
-- branch do not conflict, since only one of the two is executed.
local function admit(branch_puts, puts, deletes, other_branch)
  for key in pairs(branch_puts) do
    if puts[key] and not other_branch[key] then return false end
    if is_deleted(key, deletes) then return false end
  end
  for key in pairs(branch_puts) do puts[key] = true end
  return true
end

local function admit_nested(request, puts, deletes)
  local then_puts, then_deletes = writes_of(request.success or {})
  local else_puts, else_deletes = writes_of(request.failure or {})
  if not then_puts or not else_puts then return false end
  if not admit(then_puts, puts, deletes, {}) then return false end
  if not admit(else_puts, puts, deletes, then_puts) then return false end
  append(deletes, then_deletes)
  append(deletes, else_deletes)
  return true
end

--- Returns the keys put and the spans deleted by a list of operations; nil if they conflict. The order is: the list's
-- own deletes, its nested transactions, its own puts. So a nested delete does not conflict with the puts of earlier
-- nested transactions.
function writes_of(ops)
  local puts, deletes = {}, {}
  for op in each_op(ops, "delete") do deletes[#deletes + 1] = span.new(op.delete, op) end
  for op in each_op(ops, "txn") do
    if not admit_nested(op.txn, puts, deletes) then return nil end
  end
  for op in each_op(ops, "put") do
    if puts[op.put] or is_deleted(op.put, deletes) then return nil end
    puts[op.put] = true
  end
  return puts, deletes
end

--- Returns the code of an invalid request, or nil.
local function validate(request, budget)
  local code = check_txn(request, budget)
  if code then return code end
  if not writes_of(request.success or {}) or not writes_of(request.failure or {}) then return "duplicate_key" end
end

-- What a request holds, in either branch, at any depth -----------------------------------------------------

local function any_op(request, accepts)
  for _, branch in ipairs { request.success or {}, request.failure or {} } do
    for _, op in ipairs(branch) do
      if accepts(op) or op.txn and any_op(op.txn, accepts) then return true end
    end
  end
  return false
end

local function puts_anything(request) return any_op(request, function(op) return op.put ~= nil end) end

--- True unless all operations are reads. A nested transaction counts as a write.
local function is_write(request)
  return any_op(request, function(op) return op.put ~= nil or op.delete ~= nil or op.txn ~= nil end)
end

local function size_of(key, fields) return #key + #(fields.value or "") + #(fields.range_end or "") end

--- Returns the number of bytes in the keys and values of a request.
local function payload(request)
  local total = 0
  for _, compare in ipairs(request.compare or {}) do total = total + size_of(compare.key, compare) end
  for _, branch in ipairs { request.success or {}, request.failure or {} } do
    for _, op in ipairs(branch) do
      total = total + (op.txn and payload(op.txn) or size_of(op[verb_of(op)], op))
    end
  end
  return total
end

-- Compares: against the state at the start, nested ones too ------------------------------------------------

local numbers = { "version", "create_revision", "mod_revision", "lease" }

local missing = { version = 0, create_revision = 0, mod_revision = 0, lease = 0 }

local holds = {
  ["="] = function(order) return order == 0 end,
  ["!="] = function(order) return order ~= 0 end,
  [">"] = function(order) return order > 0 end,
  ["<"] = function(order) return order < 0 end,
}

local function order_of(a, b)
  if a == b then return 0 end
  return a < b and -1 or 1
end

local function compares(kv, compare)
  local accepts = holds[compare.op or "="]
  if compare.value then return accepts(order_of(kv.value, compare.value)) end
  for _, name in ipairs(numbers) do
    if compare[name] then return accepts(int64.compare(kv[name], compare[name])) end
  end
end

--- True if a compare holds for every key of its span. An empty span counts as a key of zeros, without a value.
local function is_true(compare, model)
  local kvs = model:kvs_at(model.revision, span.new(compare.key, compare))
  if #kvs == 0 then return compare.value == nil and compares(missing, compare) end
  for _, kv in ipairs(kvs) do
    if not compares(kv, compare) then return false end
  end
  return true
end

local function are_true(list, model)
  for _, compare in ipairs(list) do
    if not is_true(compare, model) then return false end
  end
  return true
end

--- Returns the branches to execute: { succeeded, ops, nested = { [op] = plan } }.
local function plan(request, model)
  local succeeded = are_true(request.compare or {}, model)
  local ops = (succeeded and request.success or not succeeded and request.failure) or {}
  local nested = {}
  for op in each_op(ops, "txn") do nested[op] = plan(op.txn, model) end
  return { succeeded = succeeded, ops = ops, nested = nested }
end

-- Checks of the executed branches: first all their puts, then all their reads -------------------------------

local function missing_for_put(op, model)
  local needs_key = op.ignore_value or op.ignore_lease
  if needs_key and not model:kv_at(model.revision, op.put) then return "key_not_found" end
  if not model:has_lease(op.lease) then return "lease_not_found" end
end

local needs = {
  puts = {
    put = missing_for_put,
  },
  reads = {
    get = function(op, model) return model:unreadable(op.revision) end,
    range = function(op, model) return model:unreadable(op.revision) end,
  },
}

local function missing_for(the_plan, model, needed)
  for _, op in ipairs(the_plan.ops) do
    local verb, code = verb_of(op), nil
    if verb == "txn" then
      code = missing_for(the_plan.nested[op], model, needed)
    elseif needed[verb] then
      code = needed[verb](op, model)
    end
    if code then return code end
  end
end

local function unmet(the_plan, model)
  return missing_for(the_plan, model, needs.puts) or missing_for(the_plan, model, needs.reads)
end

-- Running --------------------------------------------------------------------------------------------------

local run = {}

function run.get(write, op) return write:range(op.get, op).kvs[1] or false end

function run.range(write, op) return write:range(op.range, op) end

function run.put(write, op) return write:put(op.put, op.value or "", op) end

function run.delete(write, op) return write:delete(op.delete, op) end

--- Returns the answers of a plan, or nil and the code of its error. Nested answers get the revision of the whole
-- transaction later.
local function execute(the_plan, write)
  local responses = {}
  for i, op in ipairs(the_plan.ops) do
    local answer, code = run[verb_of(op)](write, op, the_plan)
    if code then return nil, code end
    responses[i] = answer
  end
  return { succeeded = the_plan.succeeded, responses = responses }
end

function run.txn(write, op, the_plan) return execute(the_plan.nested[op], write) end

local function set_revision(the_plan, answer, revision)
  answer.revision = revision
  for i, op in ipairs(the_plan.ops) do
    if op.txn then set_revision(the_plan.nested[op], answer.responses[i], revision) end
  end
end

return {
  validate = validate,
  puts_anything = puts_anything,
  is_write = is_write,
  payload = payload,
  plan = plan,
  unmet = unmet,
  execute = execute,
  set_revision = set_revision,
}
