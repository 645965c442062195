-- SPDX-License-Identifier: MIT
--- metrics_text: writes metrics in Prometheus' text format, version 0.0.4.
--
--   # HELP keywatch_work_queue_depth Requests that are queued.
--   # TYPE keywatch_work_queue_depth gauge
--   keywatch_work_queue_depth{controller="jobs"} 3

--- Returns how many bytes the character of UTF-8 at a position of a text has; nil if its first byte must be escaped: a
-- byte that is not UTF-8, a control character, or a backslash that would look like the escape of such a byte.
local function character_at(text, at)
  local byte = text:byte(at)
  if byte < 0x20 or byte == 0x7f or text:find("^\\x", at) then return nil end
  if byte < 0x80 then return 1 end
  local found = text:match("^[\194-\223][\128-\191]", at) or text:match("^\224[\160-\191][\128-\191]", at)
    or text:match("^[\225-\236\238\239][\128-\191][\128-\191]", at) or text:match("^\237[\128-\159][\128-\191]", at)
    or text:match("^\240[\144-\191][\128-\191][\128-\191]", at)
    or text:match("^[\241-\243][\128-\191][\128-\191][\128-\191]", at)
    or text:match("^\244[\128-\143][\128-\191][\128-\191]", at)
  return found and #found or nil
end

--- Returns a text as UTF-8 without control characters. Other bytes are shown as \xff. Different texts stay different.
local function to_utf8(text)
  if not text:find("[^ -%[%]-~]") then return text end -- nor a backslash
  local parts, at = {}, 1
  while at <= #text do
    local n = character_at(text, at)
    parts[#parts + 1] = n and text:sub(at, at + n - 1) or ("\\x%02x"):format(text:byte(at))
    at = at + (n or 1)
  end
  return table.concat(parts)
end

local ESCAPES = { ["\\"] = "\\\\", ['"'] = '\\"', ["\n"] = "\\n" }

--- Returns the value of a label, escaped.
local function label_text(value)
  return (to_utf8(value):gsub('[\\"\n]', ESCAPES))
end

--- Returns a number as Prometheus writes it.
local function number_text(value)
  if value ~= value then return "NaN" end
  if value == math.huge then return "+Inf" end
  if value == -math.huge then return "-Inf" end
  if value % 1 == 0 and math.abs(value) <= 2 ^ 53 then return ("%.0f"):format(value) end
  return ("%.17g"):format(value)
end

--- Returns labels, without braces. `labels` is a list of names and values, in turn.
local function labels_text(labels)
  local parts = {}
  for i = 1, #labels, 2 do parts[#parts + 1] = ('%s="%s"'):format(labels[i], label_text(labels[i + 1])) end
  return table.concat(parts, ",")
end

--- Returns labels in braces; "" if there are none.
local function in_braces(labels)
  return labels == "" and "" or "{" .. labels .. "}"
end

--- Returns the line of a sample. `labels` is a list of names and values, in turn.
local function sample(name, labels, value)
  return ("%s%s %s\n"):format(name, in_braces(labels_text(labels)), number_text(value))
end

--- Adds the lines of a family to a list, if it has samples.
local function add_family(lines, name, kind, help, samples)
  if #samples == 0 then return end
  lines[#lines + 1] = ("# HELP %s %s\n# TYPE %s %s\n"):format(name, help, name, kind)
  for _, line in ipairs(samples) do lines[#lines + 1] = line end
end

--- Returns the bound of a bucket as Go writes it, so that it equals that of etcd, also as a text.
local function bound_text(bound)
  if bound < 1e6 then return ("%.14g"):format(bound) end
  return (("%.13e"):format(bound):gsub("%.?0*e", "e"))
end

--- Adds the lines of a histogram, { sum =, count =, bounds = {}, counts = {} }, whose counts are cumulative, to the
-- samples of its family. `labels` is a text without braces, or "".
local function add_histogram(samples, name, labels, histogram)
  local before, braces = labels == "" and "" or labels .. ",", in_braces(labels)
  for i, bound in ipairs(histogram.bounds) do
    samples[#samples + 1] = ('%s_bucket{%sle="%s"} %s\n'):format(name, before, bound_text(bound),
      number_text(histogram.counts[i]))
  end
  local count = number_text(histogram.count)
  samples[#samples + 1] = ('%s_bucket{%sle="+Inf"} %s\n'):format(name, before, count)
  samples[#samples + 1] = ("%s_sum%s %s\n"):format(name, braces, number_text(histogram.sum))
  samples[#samples + 1] = ("%s_count%s %s\n"):format(name, braces, count)
end

return {
  HEADERS = { ["content-type"] = "text/plain; version=0.0.4; charset=utf-8" }, -- of an HTTP answer
  add_family = add_family, add_histogram = add_histogram, labels = labels_text, number = number_text, sample = sample,
  to_utf8 = to_utf8,
}
