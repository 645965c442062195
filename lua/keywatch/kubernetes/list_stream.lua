-- SPDX-License-Identifier: MIT
--- list_stream: sends a list page by page, so that neither memory nor a turn grows with its length.

local driver = require "keywatch.task.driver"
local slices = require "keywatch.task.slice"

local HEADERS = { ["content-type"] = "application/json", ["cache-control"] = "no-cache, private" }
local STALL = 60 -- seconds in which a client must take something
local SMALL = 65536 -- bytes of a list that is sent with its length
local MAX_ITEMS = 500 -- of one text

--- Returns the texts of at most MAX_ITEMS items from `from` on, as one text, and the next index. Other tasks run in
-- between if that takes a while.
local function take(form, page, from, slice)
  local parts, last = {}, math.min(#page, from - 1 + MAX_ITEMS)
  for i = from, last do
    parts[i - from + 1] = form:list_item(page[i])
    slices.pass(slice)
  end
  return table.concat(parts, ","), last + 1
end

--- Returns a function that returns the texts of the next items, separated by commas; nil at the end; nil and an error.
local function texts_of(form, list)
  local page, at, slice = {}, 1, slices.new(MAX_ITEMS)
  return function()
    if at > #page and form.id == "" and list.next_text then
      local text = list:next_text()
      if text then return text end
    end
    while at > #page do
      local err
      page, err = list:next_page()
      at = 1
      if not page then return nil, err end
    end
    local text
    text, at = take(form, page, at, slice)
    return text
  end
end

--- Sends a part of a list, and waits while the client does not read. Raises if that takes too long: the answer is cut
-- off.
local function write(request, text)
  if not request.status then request:answer(200, HEADERS) end
  if not request:write(text, STALL) then error("the client does not read the list", 0) end
  driver.get().sleep(0) -- other tasks have their turn
end

--- Sends the answer to a request: a list of reads.lua. Returns true; or nil and an error, if nothing was sent yet. If
-- a later page cannot be read, the answer is cut off, so that the client notices.
local function send(request, form, list)
  local next_text, parts, bytes = texts_of(form, list), { form:begin(list) }, 0
  local text, err = next_text()
  while text do
    parts[#parts + 1], bytes = text, bytes + #text
    if bytes >= SMALL then
      write(request, table.concat(parts))
      parts, bytes = {}, 0
    end
    text, err = next_text()
    if text then parts[#parts + 1] = "," end
  end
  if err and not request.status then return nil, err end
  if err then error(err, 0) end
  parts[#parts + 1] = form.finish
  text = table.concat(parts)
  if not request.status then request:answer(200, HEADERS, #text) end
  request:write(text, STALL)
  return true
end

--- Sends a list of entries as an answer, with this revision. Returns what send returns.
local function send_all(request, form, entries, revision)
  local list = { revision = revision }
  function list.next_page()
    local page = entries
    entries = nil
    return page
  end
  return send(request, form, list)
end

return { send = send, send_all = send_all }
