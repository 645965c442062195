-- SPDX-License-Identifier: MIT
--- pattern: regular expressions that never take more than linear time: whether a text has a part that a pattern
-- matches.
--
-- A pattern is a deterministic automaton that is made while texts are read. Each of its states is a set of states of
-- the program (pattern_program.lua), and for each byte the next state. Reading a byte is one lookup if it is known, and
-- else a walk through the states of the program. What is known is bounded: a pattern with too many states forgets them.
--
-- A budget bounds the work for several texts, in steps of a walk; reading bytes costs less.

local programs = require "keywatch.kubernetes.pattern_program"
local syntax = require "keywatch.kubernetes.pattern_syntax"

local BUDGET = 100000 -- steps: some milliseconds
local BYTES_PER_STEP, TEXTS_PER_STEP = 10, 5
local MAX_KNOWN = 100000 -- entries of all states: members, and next states
local STATE_COST = 20 -- entries

local END = 256 -- the "byte" after the last one
local MATCHED, DEAD = { "matched" }, { "dead" } -- states that no byte leaves

local byte = string.byte

local pattern_methods = {}
local pattern_mt = { __name = "keywatch.pattern", __index = pattern_methods }

-- {====== Assertions ======

-- Classes of the byte before a state.
local START, WORD, NEWLINE, OTHER = 1, 2, 3, 4

local classes = {} -- by byte
for b = 0, 255 do classes[b] = string.char(b):find("^[0-9A-Za-z_]$") and WORD or b == 10 and NEWLINE or OTHER end
classes[END] = OTHER

-- By kind: functions of the class of the byte before, and the byte after.
local holds = {
  ["begin"] = function(before) return before == START end,
  ["end"] = function(_, after) return after == END end,
  ["line begin"] = function(before) return before == START or before == NEWLINE end,
  ["line end"] = function(_, after) return after == END or after == 10 end,
  ["word"] = function(before, after) return (before == WORD) ~= (classes[after] == WORD) end,
  ["not word"] = function(before, after) return (before == WORD) == (classes[after] == WORD) end,
}

--- Returns by class the one that is remembered: those that no assertion of the program distinguishes are the same.
local function remembered(asserts)
  local is_line, is_word = asserts["line begin"], asserts["word"] or asserts["not word"]
  return {
    [START] = START, [WORD] = is_word and WORD or OTHER, [NEWLINE] = is_line and NEWLINE or OTHER, [OTHER] = OTHER,
  }
end

-- }======

-- {====== States ======

--- Forgets all states.
local function forget(self)
  self.states, self.known, self.first = {}, 0, nil
end

--- Returns the state of a list of states of the program, and of the class of the byte before.
local function state_of(self, members, before)
  local ids = {}
  table.sort(members, function(a, b) return a.id < b.id end)
  for i = 1, #members do ids[i] = members[i].id end
  local key = before .. ":" .. table.concat(ids, ",")
  local state = self.states[key]
  if not state then
    if self.known > MAX_KNOWN then forget(self) end
    state = { members = members, before = before }
    self.states[key], self.known = state, self.known + #members + STATE_COST
  end
  return state
end

--- Returns the state before the first byte.
local function first_state(self)
  self.first = state_of(self, { self.program.first }, START)
  return self.first
end

--- Returns the states of the program after a byte, and the number of steps; MATCHED instead of the states if the
-- pattern matches before the byte. Marks the states of the program that were seen, and those that are returned.
local function walk(self, from, b)
  local members, n, stack, top, steps = {}, 0, {}, #from.members, 0
  self.walks = self.walks + 1
  local mark = self.walks
  for i = 1, top do stack[i] = from.members[i] end
  while top > 0 do
    local state = stack[top]
    top, steps = top - 1, steps + 1
    if state.seen ~= mark then
      state.seen = mark
      if state.set then
        local following = state.next
        if state.set[b] and following.returned ~= mark then
          n, following.returned = n + 1, mark
          members[n] = following
        end
      elseif state.branches then
        for _, branch in ipairs(state.branches) do
          top = top + 1
          stack[top] = branch
        end
      elseif state.is_match then
        return MATCHED, steps
      elseif holds[state.assert](from.before, b) then
        top = top + 1
        stack[top] = state.next
      end
    end
  end
  return members, steps + n
end

--- Returns the state after a byte in a state, which is remembered; nil if the budget is spent.
local function advance(self, state, b, budget)
  local members, steps = walk(self, state, b)
  budget.left = budget.left - steps
  if budget.left < 0 then return nil end
  local program, following = self.program, MATCHED
  if members ~= MATCHED then
    if not program.is_anchored then members[#members + 1] = program.first end
    following = members[1] and state_of(self, members, self.class_of[classes[b]]) or DEAD
  end
  state[b + 1] = following
  self.known = self.known + 1
  return following
end

-- }======

--- True if the pattern matches a part of a text. Returns nil if the budget is spent: the text was too long.
function pattern_methods:matches(text, budget)
  budget.left = budget.left - #text / BYTES_PER_STEP - 1 / TEXTS_PER_STEP
  if budget.left < 0 then return nil end
  local state = self.first or first_state(self)
  for i = 1, #text do
    local b = byte(text, i)
    state = state[b + 1] or advance(self, state, b, budget)
    if not state then return nil end
    if state == MATCHED then return true end
    if state == DEAD then return false end
  end
  state = state[END + 1] or advance(self, state, END, budget)
  if not state then return nil end
  return state == MATCHED
end

--- Returns a pattern; or nil and the reason why it is refused, as a predicate.
local function compile(text)
  local tree, why = syntax.parse(text)
  if not tree then return nil, why end
  local program, trouble = programs.of(tree)
  if not program then return nil, trouble end
  local self = { program = program, class_of = remembered(program.asserts), states = {}, known = 0, walks = 0 }
  return setmetatable(self, pattern_mt)
end

--- Returns a budget for the texts of one object.
local function budget()
  return { left = BUDGET }
end

return { compile = compile, budget = budget }
