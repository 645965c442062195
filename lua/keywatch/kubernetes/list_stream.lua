-- SPDX-License-Identifier: MIT
--- list_stream: sends a list page by page, so that neither memory nor a turn grows with its length.

local driver = require "keywatch.task.driver"
local requests = require "keywatch.server.request"
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

--- Returns a function of a text that returns this text and the next items, separated by commas: a text, or one of the
-- core, and its bytes. It returns nil at the end; or nil and an error.
local function parts_of(form, list)
  local page, at, slice = {}, 1, slices.new(MAX_ITEMS)
  return function(lead)
    if at > #page and form.id == "" then
      local text, _, bytes = list:next_text(lead)
      if text then return text, bytes end
    end
    while at > #page do
      local err
      page, err = list:next_page()
      at = 1
      if not page then return nil, err end
    end
    local text
    text, at = take(form, page, at, slice)
    text = lead .. text
    return text, #text
  end
end

--- Sends a part of a list, a text or one of the core, and waits while the client does not read. Raises if that takes
-- too long: the answer is cut off. `length` is that of the whole answer, if it is known.
local function send_part(request, part, length)
  if not request.status then request:answer(200, HEADERS, length) end
  if not requests.pass_on(request, part, STALL) then error("the client does not read the list", 0) end
  driver.get().sleep(0) -- other tasks have their turn
end

--- Sends the answer to a request: a list of reads.lua. Returns true; or nil and an error, if nothing was sent yet. If
-- a later page cannot be read, the answer is cut off, so that the client notices.
local function send(request, form, list)
  local next_part, unsent = parts_of(form, list), form:begin(list)
  local part, bytes = next_part(unsent)
  while part do
    unsent = ""
    if type(part) ~= "string" then
      send_part(request, part, not list.has_more and bytes + #form.finish or nil)
    elseif bytes >= SMALL then
      send_part(request, part)
    else
      unsent = part
    end
    part, bytes = next_part(unsent .. ",")
  end
  local err = bytes
  if err and not request.status then return nil, err end
  if err then error(err, 0) end
  local text = unsent .. form.finish
  if not request.status then request:answer(200, HEADERS, #text) end
  request:write(text, STALL)
  return true
end

--- Sends a list of entries as an answer, with this revision. Returns what send returns.
local function send_all(request, form, entries, revision)
  local list = { revision = revision, next_text = function() end }
  function list.next_page()
    local page = entries
    entries = nil
    return page
  end
  return send(request, form, list)
end

return { send = send, send_all = send_all }
