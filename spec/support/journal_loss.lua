--- The errors about a journal that has lost written groups.

local SENTENCES = {
  "journal%-%d+ has group %d+, but group %d+ before it is lost$",
  "journal%-%d+ has group %d+, but the groups %d+ to %d+ before it are lost$",
  "journal%-%d+ has a damaged header$",
}

--- Raises an error that is not one of these.
local function expect(err)
  for _, sentence in ipairs(SENTENCES) do
    if type(err) == "table" and err.code == "corrupt" and err.message:find(sentence) then return end
  end
  error("no loss is reported: " .. tostring(err), 0)
end

return { expect = expect }
