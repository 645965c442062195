--- 64-bit integers in the form that the store accepts and returns: numbers if the VM represents them exactly, else
-- decimal strings.

local EXACT = 9007199254740992 -- 2^53: below it every VM's numbers are exact
local to_integer = rawget(math, "tointeger") -- LuaJIT, whose numbers are doubles, has none

local function text(n)
  if type(n) == "string" then return n end
  return string.format("%d", n)
end

--- Returns `n` in the form in which the store returns it.
local function canonical(n)
  if type(n) == "number" then return n end
  if to_integer then return to_integer(tonumber(n)) end
  local number = tonumber(n)
  if number > -EXACT and number < EXACT then return number end
  return n
end

local function compare_digits(a, b)
  if #a ~= #b then return #a < #b and -1 or 1 end
  if a == b then return 0 end
  return a < b and -1 or 1
end

--- Returns -1, 0 or 1 for a < b, a == b, a > b.
local function compare(a, b)
  a, b = text(a), text(b)
  local a_digits, b_digits = a:match("^%-(.*)"), b:match("^%-(.*)")
  if a_digits and b_digits then return compare_digits(b_digits, a_digits) end
  if a_digits then return -1 end
  if b_digits then return 1 end
  return compare_digits(a, b)
end

--- Divides a decimal string. Returns the quotient as a string, and the remainder.
local function divide(digits, divisor)
  local quotient, rest = {}, 0
  for digit in digits:gmatch("%d") do
    rest = rest * 10 + tonumber(digit)
    quotient[#quotient + 1] = math.floor(rest / divisor)
    rest = rest % divisor
  end
  local stripped = table.concat(quotient):gsub("^0+", "")
  return stripped, rest
end

--- Returns 2^64 minus a decimal string: the two's complement of a negative number.
local function complement(digits)
  local total = "18446744073709551616"
  local padded = ("0"):rep(#total - #digits) .. digits
  local result, borrow = {}, 0
  for i = #total, 1, -1 do
    local digit = tonumber(total:sub(i, i)) - tonumber(padded:sub(i, i)) - borrow
    borrow = digit < 0 and 1 or 0
    result[i] = digit + 10 * borrow
  end
  return (table.concat(result):gsub("^0+", ""))
end

--- Returns the bytes of `n` as a protobuf varint.
local function varint(n)
  local digits = text(n)
  if digits:sub(1, 1) == "-" then digits = complement(digits:sub(2)) end
  local bytes = {}
  repeat
    local rest, group = divide(digits, 128)
    bytes[#bytes + 1] = string.char(rest == "" and group or group + 128)
    digits = rest
  until digits == ""
  return table.concat(bytes)
end

--- Returns the bytes of 0 <= n < 2^53, most significant first.
local function big_endian(n)
  local bytes = {}
  for i = 8, 1, -1 do
    bytes[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(bytes)
end

return { canonical = canonical, compare = compare, varint = varint, big_endian = big_endian }
