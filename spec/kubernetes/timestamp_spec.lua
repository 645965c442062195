--- Times and ages, and the formats of strings.

local formats = require "keywatch.kubernetes.format"
local timestamp = require "keywatch.kubernetes.timestamp"

describe("a timestamp", function()
  it("is parsed as it was written", function()
    for _, seconds in ipairs { 0, 951782400, 951868800, 1767225600, 4107542400, 1795120676 } do
      assert.equal(seconds, timestamp.parse(timestamp.format(seconds)))
    end
  end)

  it("may have a fraction and an offset", function()
    local noon = timestamp.parse "2026-08-20T12:00:00Z"
    for _, text in ipairs { "2026-08-20T14:00:00+02:00", "2026-08-20t12:00:00.123456z", "2026-08-20T06:30:00-05:30" } do
      assert.equal(noon, timestamp.parse(text), text)
    end
  end)

  it("is refused if there is no such time", function()
    for _, text in ipairs { "", "2026-08-20", "2026-13-01T00:00:00Z", "2026-02-29T00:00:00Z", "2026-00-10T00:00:00Z",
      "2026-01-32T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:00",
        "2026-01-01 00:00:00Z",
      "2026-01-01T00:00:00+25:00", "2026-01-01T00:00:00Zx", ("2"):rep(1000) } do
      assert.is_nil(timestamp.parse(text), text)
    end
  end)

  it("has an age as kubectl shows it", function()
    for seconds, text in pairs {
      [-5] = "<invalid>", [-1] = "0s", [0] = "0s", [119] = "119s", [120] = "2m", [330] = "5m30s", [600] = "10m",
        [10799] = "179m",
      [10800] = "3h", [16200] = "4h30m", [28800] = "8h", [172799] = "47h", [172800] = "2d", [180000] = "2d2h",
        [691200] = "8d",
      [63072000] = "2y", [63158400] = "2y1d", [252288000] = "8y",
    } do
      assert.equal(text, timestamp.age(seconds))
    end
  end)
end)

describe("a format", function()
  -- By format: valid texts, and invalid ones.
  local CASES = {
    date = { { "2024-02-29" }, { "2023-02-29", "2024-2-9", "x" } },
    duration = { { "1h30m", "-1.5s", "10ms", "0", "3 days", "1\194\181s" }, { "", "1", "1x2y", "h",
      ("1h"):rep(1000) } },
    byte = { { "", "aGVsbG8=", "aGVsbG8h" }, { "a", "aGVsbG8", "a===", "a\195\164==" } },
    uuid = { { "c7643c28-4ffd-4458-b2a9-bb3072050f25", "C7643C284FFD4458B2A9BB3072050F25" }, { "c7643c28", "x" } },
    uuid4 = { { "c7643c28-4ffd-4458-b2a9-bb3072050f25" }, { "c7643c28-4ffd-1458-b2a9-bb3072050f25" } },
    ipv4 = { { "1.2.3.4", "0.0.0.0", "255.255.255.255" }, { "1.2.3", "256.1.1.1", "01.2.3.4", "1.2.3.4.5", "::1" } },
    ipv6 = { { "::", "::1", "1:2:3:4:5:6:7:8", "fe80::1:2", "::ffff:1.2.3.4" },
      { "1", "1:2", ":::", "1::2::3", "1:2:3:4:5:6:7:8:9", "12345::", "::g", "1.2.3.4" } },
    cidr = { { "10.0.0.0/8", "fe80::/64" }, { "10.0.0.0", "10.0.0.0/33", "fe80::/129", "10.0.0.0/08" } },
    mac = { { "01:23:45:67:89:ab", "01-23-45-67-89-AB", "0123.4567.89ab" }, { "01:23", "01:23:45:67:89:ag" } },
    hostname = { { "a.example", "A-1" }, { "", "-a", "a..b", ("a"):rep(64), "a b" } },
    uri = { { "http://a/b?c", "/a", "urn:x" }, { "", "a b", "http" } },
    email = { { "a@b.example" }, { "a", "a@", "@b", "a b@c" } },
  }

  it("accepts and refuses texts", function()
    for name, case in pairs(CASES) do
      for _, text in ipairs(case[1]) do assert.is_true(formats.CHECKS[name](text), name .. ": " .. text) end
      for _, text in ipairs(case[2]) do assert.is_falsy(formats.CHECKS[name](text), name .. ": " .. text) end
    end
  end)

  it("takes linear time for a long text #slow", function() -- where each byte is read under supervision
    for name, is_valid in pairs(formats.CHECKS) do
      for _, part in ipairs { "a", "1", ".", ":", "a.", "1h", "a@", "=", "-", "0123456789abcdef" } do
        assert.is_falsy(is_valid(part:rep(30000) .. "\n\1"), name) -- of quadratic time 10 seconds
      end
    end
  end)
end)
