--- Short forms of the events of a watch, for specs.

--- Returns an event as text: "put a 2", "delete a 3", "initial a 2", "synced 3", "progress 4".
local function text(event)
  if event.revision then return ("%s %d"):format(event.type, event.revision) end
  return ("%s %s %d"):format(event.initial and "initial" or event.type, event.key, event.mod_revision)
end

--- Returns a list of events in the same form, as one string: "put a 2, delete a 3".
local function texts(list)
  local words = {}
  for i, event in ipairs(list) do words[i] = text(event) end
  return table.concat(words, ", ")
end

--- Returns a list of all events that can be read without waiting; and the code of the error that ends it.
local function read(watch)
  local list = {}
  while true do
    local event, err = watch:next(0)
    if not event then return list, err and err.code end
    list[#list + 1] = event
  end
end

--- Returns the same as text: "put a 2, delete a 3", "timeout".
local function drain(watch)
  local list, code = read(watch)
  return texts(list), code
end

--- Brings a store to revision 4: "a" is put twice, and "b" once. Returns the store.
local function fill(store)
  store:put("a", "1")
  store:put("a", "2")
  store:put("b", "1")
  return store
end

return { fill = fill, text = text, texts = texts, read = read, drain = drain }
