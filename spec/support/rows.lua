--- Returns the rows of a table of a store: { { key, bytes }, ... }, in the order of their keys.
local function rows_of(store, table_name)
  local list = {}
  for i, key in ipairs(store:rows(table_name)) do list[i] = { key, store:rows(table_name, key) } end
  return list
end

return rows_of
