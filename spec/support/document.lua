--- A page of documentation in Markdown: its fenced blocks, headings, tables and text.
--
--   lines     the lines of the file
--   blocks    { language, section, first, last, output }: first and last are line numbers; output is the console block
--             that follows, which makes a lua block a separate program
--   anchors   the headings as GitHub makes them targets of links: { [anchor] = true }

local document = {}
document.__index = document

--- Returns the anchor that GitHub gives a heading.
local function anchor_of(heading) return (heading:lower():gsub("[^%w%s_-]", ""):gsub("%s", "-")) end

local function add_block(self, language, section, first)
  local block = { language = language, section = section, first = first, last = nil, output = nil }
  local before = self.blocks[#self.blocks]
  if language == "console" and before and before.language == "lua" then before.output = block end
  table.insert(self.blocks, block)
  return block
end

local function read_blocks(self)
  local open, section = nil, nil
  for n, line in ipairs(self.lines) do
    local fence = line:match("^```(.*)")
    if open and fence then
      open.last = n - 1
      open = nil
    elseif fence then
      open = add_block(self, fence, section, n + 1)
    elseif not open and line:find("^#") then
      section = line:match("^#+ (.*)")
      self.anchors[anchor_of(section)] = true
    end
  end
  assert(not open, self.path .. ": a block is not closed")
end

function document.read(path)
  local self = setmetatable({ path = path, lines = {}, blocks = {}, anchors = {} }, document)
  for line in io.lines(path) do table.insert(self.lines, line) end
  read_blocks(self)
  return self
end

--- Returns the blocks of a language, in order.
function document:blocks_of(language)
  local found = {}
  for _, block in ipairs(self.blocks) do
    if block.language == language then table.insert(found, block) end
  end
  return found
end

--- Returns the lines of a block.
function document:lines_of(block)
  local list = {}
  for n = block.first, block.last do table.insert(list, self.lines[n]) end
  return list
end

--- Returns the text outside of blocks, with a line break for each line of the file.
function document:prose()
  local kept = {}
  for n, line in ipairs(self.lines) do kept[n] = line end
  for _, block in ipairs(self.blocks) do
    for n = block.first - 1, block.last + 1 do kept[n] = "" end
  end
  return table.concat(kept, "\n")
end

--- Returns a text with one blank for each run of white space.
function document.one_blank(text) return (text:gsub("%s+", " "):gsub("^ ", ""):gsub(" $", "")) end

--- Returns the rows of all tables in a section, without the heads, as lists of cells.
function document:rows_of(section)
  local rows, is_here, before = {}, false, ""
  for _, line in ipairs(self.lines) do
    if line:find("^#") then is_here = line:match("^#+ (.*)") == section end
    local is_row = is_here and line:find("^|") and not line:find("^|%-") and before:find("^|")
    before = line
    if is_row then
      local cells = {}
      for cell in line:gmatch("([^|]*)|") do table.insert(cells, document.one_blank(cell)) end
      table.remove(cells, 1)
      table.insert(rows, cells)
    end
  end
  assert(#rows > 0, ("%s has no table in: %s"):format(self.path, section))
  return rows
end

return document
