--- The checker of histories: it accepts what a server may do, and objects to all else.

local check = require "spec.crash.check"

--- What is objected to, in one round after the other.
local function verdict(...)
  local checker, list = check.new(), {}
  for _, text in ipairs { ... } do
    for _, objection in ipairs(checker:round(text:gmatch("%s*([^\n]+)\n"))) do list[#list + 1] = objection end
  end
  return table.concat(list, "\n")
end

local function accepts(...)
  assert.equal("", verdict(...))
end

local function objects(pattern, ...)
  assert.matches(pattern, verdict(...))
end

-- Two keys in revision 2, one of them again in 3; and a watcher who sees that.
local OPEN = "open w 0 1 ! ~\n"
local TWO = "write 1 2 ok 2 p,a,0.1,0 p,b,0.1,0\n"
local THREE = "write 3 4 ok 3 p,a,0.2,0\n"
local TWO_TOLD = "2 p,a,0.1,2,2,1,0 p,b,0.1,2,2,1,0"
local THREE_TOLD = "3 p,a,0.2,2,3,2,0"
local TOLD = OPEN .. "events w 5 3|" .. TWO_TOLD .. "|" .. THREE_TOLD .. "\n"
local CAUGHT = "caught w 3\n"
local PAST = OPEN .. TWO .. THREE .. TOLD:sub(#OPEN + 1) .. CAUGHT

describe("the checker of crashes", function()
  it("accepts a history", function()
    accepts(PAST)
    accepts(PAST, "open w 10 4 ! ~\nwrite 11 12 ok 4 d,a,c\nevents w 13 4|4 d,a,4 d,b,4\ncaught w 4\n")
  end)

  describe("of writes", function()
    it("misses one that was acknowledged", function()
      objects("no watcher sees revision 4", PAST .. "write 6 7 ok 4 p,a,0.3,0\n")
      objects("an acknowledged write is not in revision 3", PAST .. "write 3 4 ok 3 p,c,0.3,0\n")
    end)

    it("finds half of one", function()
      objects("revision 2 holds .*, but should hold", OPEN .. TWO .. "events w 5 2|2 p,a,0.1,2,2,1,0\n")
    end)

    it("finds half of one that was lost", function()
      objects("revision 2 holds .*, but should hold", OPEN .. "write 1 2 lost 0 p,a,0.1,0 p,b,0.1,0\n" ..
        "events w 5 2|2 p,a,0.1,2,2,1,0\n")
    end)

    it("leaves open whether a lost one is there", function()
      accepts(PAST .. "write 6 7 lost 0 p,c,0.3,0 d,a,c\nwrite 6 7 lost 0 d,b,=\n")
      accepts(PAST .. "write 6 7 lost 0 p,c,0.3,0 d,a,=\nwrite 6 7 lost 0 d,b,=\n" ..
        "events w 8 5|4 p,c,0.3,4,4,1,0 d,a,4|5 d,b,5\n")
    end)

    it("takes the first of two lost ones for the one that is there, if they are alike", function()
      accepts(PAST .. "write 16 17 lost 0 d,b,=\nwrite 6 7 lost 0 d,b,=\nevents w 8 4|4 d,b,4\n")
    end)

    it("finds a lost one too late", function()
      objects("revision 4 holds what nobody wrote", PAST .. "write 6 7 lost 0 p,c,0.3,0\n",
        "events w 8 4|4 p,c,0.3,4,4,1,0\n")
    end)

    it("finds one twice", function()
      objects("one write is there twice", PAST .. "events w 8 4|4 p,a,0.2,2,4,3,0\n")
      objects("two writes were acknowledged at one revision", PAST .. "write 3 4 ok 3 p,c,0.3,0\n")
    end)

    it("finds one that nobody made, or that was refused", function()
      objects("revision 4 holds what nobody wrote", PAST .. "events w 8 4|4 p,a,0.9,2,4,3,0\n")
      objects("revision 4 holds what nobody wrote", PAST .. "events w 8 4|4 d,a,4\n")
      objects("but should hold nothing", PAST .. "write 6 7 refused 0 p,a,0.9,5|lease not found\n" ..
        "events w 8 4|4 p,a,0.9,2,4,3,5\n")
    end)

    it("finds a version that does not follow", function()
      objects("revision 3 holds", OPEN .. TWO .. THREE .. "events w 5 3|" .. TWO_TOLD .. "|3 p,a,0.2,2,3,5,0\n")
    end)
  end)

  describe("of revisions", function()
    it("finds one that was given twice", function()
      objects("w2 is told of revision 3", PAST .. "open w2 6 3 ! ~\nevents w2 7 3|3 p,a,0.9,2,3,2,0\n")
      objects("w2 is told of revision 3", PAST, "open w2 6 3 ! ~\nwrite 6 7 ok 3 p,a,0.9,0\n" ..
        "events w2 8 3|3 p,a,0.9,2,3,2,0\n")
    end)

    it("finds that they go back", function()
      objects("revision 3 was known before", PAST .. "range 8 9 2 0 a =|a,0.1,2,2,1,0\n")
      objects("revision 3 was known before", PAST, "grant 8 9 ok 2 7 60\n")
      objects("revision 5 was known before", PAST .. "progress w 6 5\n", "range 8 9 3 0 x =\n")
    end)

    it("finds writes that are not in the order of their time", function()
      objects("revision 3 was known before", OPEN .. "write 1 2 ok 3 p,a,0.2,0\nwrite 3 4 ok 2 p,a,0.1,0\n" ..
        "events w 5 3|2 p,a,0.1,2,2,1,0|3 p,a,0.2,2,3,2,0\n")
    end)
  end)

  describe("of reads", function()
    it("accepts the present and the past", function()
      accepts(PAST .. "range 6 7 3 0 a c|a,0.2,2,3,2,0|b,0.1,2,2,1,0\nrange 6 7 3 2 a =|a,0.1,2,2,1,0\n")
    end)

    it("finds what is not there, and misses what is", function()
      objects("not as read", PAST .. "range 6 7 3 0 a c|a,0.2,2,3,2,0\n")
      objects("not as read", PAST .. "range 6 7 3 2 a =|a,0.2,2,3,2,0\n")
      objects("there is", PAST .. "write 6 7 idle 3 d,b,=\n")
    end)

    it("compares hashes", function()
      accepts(PAST .. "hash 6 7 3 2 -1 99\n", "hash 8 9 3 2 -1 99\n")
      objects("the hash was 99", PAST .. "hash 6 7 3 2 -1 99\n", "hash 8 9 3 2 -1 98\n")
    end)
  end)

  describe("of comparisons", function()
    local COUNT = OPEN .. "write 1 2 ok 2 i,c/1,0 p,c/1,1:0.1,0\nevents w 3 2|2 p,c/1,1:0.1,2,2,1,0\n"

    it("accepts those that hold, and those that do not", function()
      accepts(COUNT .. "write 4 5 unmet 2 i,c/1,0 p,c/1,1:0.2,0|c/1,1:0.1,2,2,1,0\n")
      accepts(COUNT .. "write 4 5 ok 3 i,c/1,2 p,c/1,2:0.2,0\nevents w 6 3|3 p,c/1,2:0.2,2,3,2,0\n")
    end)

    it("finds one that held without right", function()
      objects("but should hold nothing", COUNT .. "write 4 5 ok 3 i,c/1,0 p,c/1,2:0.2,0\n" ..
        "events w 6 3|3 p,c/1,2:0.2,2,3,2,0\n")
    end)

    it("finds one that failed without right", function()
      objects("a comparison fails that holds", COUNT .. "write 4 5 unmet 2 i,c/1,2 p,c/1,2:0.2,0|c/1,1:0.1,2,2,1,0\n")
      objects("it is not as read", COUNT .. "write 4 5 unmet 2 i,c/1,0 p,c/1,2:0.2,0|\n")
    end)

    it("finds an increment that is lost, or counted twice", function()
      objects("counter c/1 goes from 1 to 3", COUNT .. "write 4 5 ok 3 i,c/1,2 p,c/1,3:0.2,0\n" ..
        "events w 6 3|3 p,c/1,3:0.2,2,3,2,0\n")
      objects("counter c/1 goes from 1 to 1", COUNT .. "write 4 5 ok 3 p,c/1,1:0.2,0\n" ..
        "events w 6 3|3 p,c/1,1:0.2,2,3,2,0\n")
    end)
  end)

  describe("of watchers", function()
    it("finds one that is told out of order", function()
      objects("w is told of revision 2 again, or too late", OPEN .. TWO .. THREE ..
        "events w 5 3|" .. THREE_TOLD .. "|" .. TWO_TOLD .. "\n")
    end)

    it("finds one that is told twice", function()
      objects("w is told of revision 3 again", PAST .. "events w 6 3|" .. THREE_TOLD .. "\n")
    end)

    it("finds one that is told with a gap", function()
      objects("wa is told of revision 3, but not of revision 2", PAST ..
        "open wa 0 1 a b\nevents wa 5 3|" .. THREE_TOLD .. "\n")
      objects("wb is told of nothing more up to 3, but not of revision 2", PAST .. "open wb 0 1 b c\n")
      objects("revision 3 is seen, but nobody sees revision 2", OPEN .. THREE .. "events w 5 3|" .. THREE_TOLD .. "\n")
    end)

    it("finds one that is told of half a revision", function()
      objects("w is told of revision 2 again", OPEN .. TWO ..
        "events w 5 2|2 p,a,0.1,2,2,1,0\nevents w 5 2|2 p,b,0.1,2,2,1,0\n")
      objects("w2 is told of revision 2: .*, but it holds", PAST ..
        "open w2 0 1 ! ~\nevents w2 5 3|2 p,a,0.1,2,2,1,0\n")
    end)

    it("finds one that does not go on from where it was", function()
      accepts(PAST, "open w 6 4 ! ~\n")
      objects("w goes on from 5, but is to be told of 4", PAST, "open w 6 5 ! ~\n")
      objects("w is told of revision 5, but not of revision 4", PAST ..
        "write 6 7 ok 4 d,a,=\nwrite 8 9 ok 5 d,b,=\nopen w2 6 4 ! ~\nevents w2 9 5|4 d,a,4|5 d,b,5\n",
        "open w 9 4 ! ~\nevents w 10 5|5 d,b,5\n")
    end)

    it("finds events that come after progress beyond them", function()
      objects("wa is told of progress up to 3, but not of revision 2", PAST ..
        "open wa 0 1 a b\nprogress wa 4 3\nevents wa 5 3|2 p,a,0.1,2,2,1,0|" .. THREE_TOLD .. "\n")
      objects("wa is told of revision 3 again, or too late", PAST ..
        "open wa 0 3 a b\nprogress wa 4 3\nevents wa 5 3|" .. THREE_TOLD .. "\n")
    end)

    it("finds a response that is older than its events", function()
      objects("by a response of revision 2", PAST .. "open w2 0 3 ! ~\nevents w2 5 2|" .. THREE_TOLD .. "\n")
    end)

    it("knows of filters", function()
      local more = "write 6 7 ok 4 d,a,=\nevents w 8 4|4 d,a,4\n"
      accepts(PAST .. more .. "open w2 0 1 ! ~ u\nevents w2 8 4|4 d,a,4\nopen w3 0 4 ! ~ d\nprogress w3 8 4\n")
      objects("w2 is told of progress up to 4, but not of revision 4", PAST .. more ..
        "open w2 0 1 ! ~ u\nprogress w2 8 4\n")
    end)

    it("compares what was before", function()
      accepts(PAST .. "open wa 0 3 a b p\nevents wa 5 3|" .. THREE_TOLD .. ";a,0.1,2,2,1,0\n")
      objects("there was nothing, but it was a,0.1", PAST .. "open wa 0 3 a b p\nevents wa 5 3|" .. THREE_TOLD .. "\n")
      objects("there was a,0.9", PAST .. "open wa 0 3 a b p\nevents wa 5 3|" .. THREE_TOLD .. ";a,0.9,2,2,1,0\n")
    end)

    it("finds one that ends", function()
      objects("w ends", PAST .. "ended w 6 for no reason\n")
    end)
  end)

  describe("of compactions", function()
    local COMPACTED = "compact 6 7 ok 3 3\n"

    it("accepts that watchers are overtaken, and old revisions gone", function()
      accepts(PAST .. COMPACTED, "open w2 8 1 ! ~\novertaken w2 9 3\nopen w2 9 3 ! ~\nevents w2 9 3|" .. THREE_TOLD ..
        "\ngone 8 9 2 it has been compacted\nhash 8 9 3 3 3 99\n")
    end)

    it("finds one that nobody asked for", function()
      objects("is told that 3 is compacted", PAST .. "open w2 8 1 ! ~\novertaken w2 9 3\n")
      objects("cannot be read that is there", PAST .. "gone 8 9 2 it has been compacted\n")
      objects("cannot be read that is there", PAST .. COMPACTED, "gone 8 9 3 it has been compacted\n")
    end)

    it("finds one that is forgotten", function()
      objects("a revision is read that was compacted", PAST .. COMPACTED, "range 8 9 3 2 a =|a,0.1,2,2,1,0\n")
      objects("a compaction is forgotten", PAST .. COMPACTED, "hash 8 9 3 3 -1 99\n")
      objects("later compactions are forgotten", PAST .. "compact 6 7 ok 3 2\n" .. COMPACTED,
        "open w2 8 1 ! ~\novertaken w2 9 2\n")
    end)
  end)

  describe("of leases", function()
    local GRANTED = "spawn 0\ngrant 6 7 ok 3 77 60\nwrite 8 9 ok 4 p,l,0.3,77\nevents w 10 4|4 p,l,0.3,4,4,1,77\n"
    local REVOKED = "revoke 11 12 ok 5 77\nevents w 13 5|5 d,l,5\n"

    it("accepts their life", function()
      accepts(PAST .. GRANTED .. "kept 11 12 4 77 60\n", "spawn 20\nleases 21 22 4 77\nlease 21 22 4 77 58 60 l\n")
      accepts(PAST .. GRANTED .. REVOKED, "leases 21 22 5\n")
      accepts(PAST .. GRANTED .. "revoke 11 12 lost 0 77\n", "leases 21 22 4 77\n")
      accepts(PAST .. GRANTED .. "revoke 11 12 lost 0 77\nevents w 13 5|5 d,l,5\n", "leases 21 22 5\n")
    end)

    it("finds one that is lost, or comes back", function()
      objects("lease 77 is not there", PAST .. GRANTED, "leases 21 22 4\n")
      objects("lease 77 is gone, but not its key l", PAST .. GRANTED, "leases 21 22 4\n")
      objects("lease 77 is there again", PAST .. GRANTED .. REVOKED, "leases 21 22 5 77\n")
      objects("lease 77 is there again", PAST .. "grant 6 7 lost 0 77 60\n", "leases 21 22 3\n", "leases 31 32 3 77\n")
      objects("leases that nobody asked for", PAST .. "leases 21 22 3 77\n")
      objects("cannot be kept that is there", PAST .. GRANTED .. "kept 11 12 4 77 0\n")
      objects("not found that is there", PAST .. GRANTED .. "write 11 12 refused 0 p,l,0.4,77|lease not found\n")
    end)

    it("finds one with less time than it had, or with other keys", function()
      objects("at least 58 of 60 seconds", PAST .. GRANTED, "spawn 20\nlease 21 22 4 77 57 60 l\n")
      objects("its keys are l", PAST .. GRANTED, "spawn 20\nlease 21 22 4 77 58 60\n")
    end)

    it("finds one that ends early", function()
      local short = "spawn 0\ngrant 6 7 ok 3 77 2\nwrite 8 9 ok 4 p,l,0.3,77\nevents w 10 4|4 p,l,0.3,4,4,1,77\n"
      accepts(PAST .. short, "events w 12 5|5 d,l,5\n")
      objects("lease 77 ends 1.000 seconds early", PAST .. short .. "spawn 11\n", "events w 12 5|5 d,l,5\n")
      objects("lease 77 ends .* seconds early", PAST .. GRANTED, "events w 12 5|5 d,l,5\n")
    end)

    it("finds a key that is bound to one that was revoked", function()
      objects("which is not there", PAST .. GRANTED .. REVOKED ..
        "write 14 15 ok 6 p,l,0.4,77\nevents w 16 6|6 p,l,0.4,6,6,1,77\n")
    end)
  end)
end)
