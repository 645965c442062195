--- Passwords, as users have them: hashed.

local core = require "keywatch.core"

local misuse = require "spec.support.misuse"

local CHEAP = 4 -- the least that bcrypt takes

describe("the hash of a password", function()
  it("is one of bcrypt, and names its cost", function()
    assert.matches("^%$2b%$04%$" .. ("[%w./]"):rep(53) .. "$", core.hash_password("secret", CHEAP))
    assert.matches("^%$2b%$05%$", core.hash_password("", CHEAP + 1))
  end)

  it("has a salt of its own", function()
    assert.not_equal(core.hash_password("secret", CHEAP), core.hash_password("secret", CHEAP))
  end)

  it("cannot be had of a zero byte", function()
    assert.same({ nil, "keywatch: a password must not have a zero byte" }, { core.hash_password("a\0", CHEAP) })
  end)

  it("is refused if it cannot be meant", function()
    for _, cost in ipairs { 3, 32, -1, 4.5, "x", {} } do misuse.raises(core.hash_password, "secret", cost) end
    for _, text in ipairs { {}, true } do misuse.raises(core.hash_password, text, CHEAP) end
    misuse.raises(core.hash_password, "secret")
  end)
end)
