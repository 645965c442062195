--- The log: levels, loggers, and bytes that must not get into it.

local log = require "keywatch.support.log"

describe("the log", function()
  local written, stderr

  before_each(function()
    written, stderr = "", io.stderr
    rawset(io, "stderr", { write = function(_, text) written = written .. text end })
  end)

  after_each(function()
    rawset(io, "stderr", stderr)
    log.set_level("info")
  end)

  local STAMP = "^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%dZ "

  it("writes lines with time and level, from its level on", function()
    log.debug("not %s", "this")
    log.info("this %d", 1)
    assert.matches(STAMP .. "info this 1\n$", written)
    assert.is_true(log.set_level("debug"))
    assert.is_true(log.has("debug"))
    assert.is_false(log.set_level("loud"))
    written = ""
    log.debug("100 %")
    assert.matches(STAMP .. "debug 100 %%\n$", written)
  end)

  it("escapes control bytes, and indents further lines", function()
    log.warn("%s", "a\0b\27[2Jc\r\n2026-01-01T00:00:00.000Z info forged\tx\127\194\155y \195\188")
    assert.matches(STAMP .. "warn a\\x00b\\x1b%[2Jc\\x0d\n    2026[^\n]* info forged\tx\\x7f\\xc2\\x9by \195\188\n$",
      written)
  end)

  it("quotes what a peer has sent, on one line, in printable ASCII", function()
    assert.equal('"/a b"', log.quote("/a b"))
    assert.equal([["\"\\x\x0a\x00\xff\xc3\xbc"]], log.quote('"\\x\n\0\255\195\188'))
  end)

  it("has loggers with their own level and destination", function()
    local lines = {}
    local logger = log.new("warn", function(level, text) table.insert(lines, level .. " " .. text) end)
    logger.info("no")
    logger.warn("a\rb %d %s", 1, "%d")
    assert.same({ "warn a\\x0db 1 %d" }, lines)
    assert.equal("", written)
    assert.is_false(logger.has("info"))
    logger = log.new()
    logger.info("as the program")
    logger.debug("has it")
    assert.matches(STAMP .. "info as the program\n$", written)
  end)

  it("lives on when a destination raises, and says so", function()
    log.new("info", function() error("a slip") end).error("x")
    assert.matches(STAMP .. "error the function for log lines has failed: [^\n]*a slip\n$", written)
  end)

  it("lives on when a destination raises what cannot be printed", function()
    local unprintable = setmetatable({}, { __tostring = function() error("a slip") end })
    log.new("info", function() error(unprintable, 0) end).error("x")
    assert.matches(STAMP .. "error the function for log lines has failed: an error that cannot be printed\n$", written)
  end)
end)
