-- SPDX-License-Identifier: MIT
--- label: what names and values of Kubernetes may look like: labels, annotations, objects, fields. Each function
-- returns the reason why a text is invalid, in Kubernetes' words; or nil.

local MAX_LABEL, MAX_SUBDOMAIN = 63, 253 -- bytes

local REGEX = "regex used for validation is '%s')"
local TEXTS = {
  label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
    .. "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
    .. REGEX:format "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
  label_1035 = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    .. "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    .. REGEX:format "[a-z]([-a-z0-9]*[a-z0-9])?",
  subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    .. "must start and end with an alphanumeric character (e.g. 'example.com', "
    .. REGEX:format "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
  name = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    .. "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    .. REGEX:format "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
  value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    .. "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    .. REGEX:format "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
  key = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
    .. "'KEY_NAME',  or 'key-name', " .. REGEX:format "[-._a-zA-Z0-9]+",
}

local function too_long(most)
  return ("must be no more than %d characters"):format(most)
end

--- True if a text has only characters of a set, a Lua pattern, and begins and ends with a letter or a digit.
local function is_word(text, set)
  return text:find("^" .. set .. "+$") ~= nil and text:find("^[A-Za-z0-9]") ~= nil and text:find("[A-Za-z0-9]$") ~= nil
end

--- True for "a-b", without capital letters.
local function is_label(text)
  return is_word(text, "[a-z0-9-]")
end

--- Of a namespace, for example.
local function label_trouble(text)
  if #text > MAX_LABEL then return too_long(MAX_LABEL) end
  if not is_label(text) then return TEXTS.label end
end

--- Of a plural, for example: begins with a letter.
local function label_1035_trouble(text)
  if #text > MAX_LABEL then return too_long(MAX_LABEL) end
  if not is_label(text) or text:find("^[0-9]") then return TEXTS.label_1035 end
end

--- Of the name of an object.
local function subdomain_trouble(text)
  if #text > MAX_SUBDOMAIN then return too_long(MAX_SUBDOMAIN) end
  for part in (text .. "."):gmatch("([^.]*)%.") do
    if not is_label(part) then return TEXTS.subdomain end
  end
end

--- Of the name of a label, an annotation or a finalizer: "name" or "prefix.example/name".
local function name_trouble(text)
  local prefix, name = text:match("^([^/]*)/([^/]*)$")
  if not prefix and text:find("/", 1, true) then
    return "a qualified name " .. TEXTS.name:gsub("^name part ", "")
      .. " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
  end
  if prefix == "" then return "prefix part must be non-empty" end
  local why = prefix and subdomain_trouble(prefix)
  if why then return "prefix part " .. why end
  name = name or text
  if name == "" then return "name part must be non-empty" end
  if #name > MAX_LABEL then return "name part " .. too_long(MAX_LABEL) end
  if not is_word(name, "[A-Za-z0-9_.-]") then return TEXTS.name end
end

--- Of the value of a label.
local function value_trouble(text)
  if #text > MAX_LABEL then return too_long(MAX_LABEL) end
  if text ~= "" and not is_word(text, "[A-Za-z0-9_.-]") then return TEXTS.value end
end

--- Of a key in the data of a ConfigMap or a Secret.
local function key_trouble(text)
  if #text > MAX_SUBDOMAIN then return too_long(MAX_SUBDOMAIN) end
  if not text:find("^[A-Za-z0-9_.-]+$") then return TEXTS.key end
  if text == "." then return "must not be '.'" end
  if text:find("^%.%.") then return text == ".." and "must not be '..'" or "must not start with '..'" end
end

return {
  label_trouble = label_trouble, label_1035_trouble = label_1035_trouble, subdomain_trouble = subdomain_trouble,
  name_trouble = name_trouble, value_trouble = value_trouble, key_trouble = key_trouble,
}
