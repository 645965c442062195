--- The errors of Kubernetes: their texts, and what other errors become.

local core = require "keywatch.core"
local errors = require "keywatch.support.errors"
local json = require "keywatch.json"
local kinds = require "keywatch.kubernetes.kind"
local status_error = require "keywatch.kubernetes.status_error"

local KIND = kinds.new { group = "demo.example", version = "v1", kind = "Widget", plural = "widgets" }
local CORE = kinds.new { group = "", version = "v1", kind = "Thing", plural = "things" }

--- Returns the Status of an error as text, without what all have in common.
local function text_of(err)
  local status = status_error.to_status(err)
  assert.same({ "Status", "v1", "Failure" }, { status.kind, status.apiVersion, status.status })
  status.kind, status.apiVersion, status.status = nil, nil, nil
  if not next(status.metadata) then status.metadata = nil end
  return assert(json.encode(status, { sort_keys = true }))
end

describe("an error", function()
  it("has the Status of Kubernetes", function()
    for _, case in ipairs {
      { status_error.not_found(KIND, "a"), '{"code":404,"details":{"group":"demo.example","kind":"widgets","name":"a"},'
        .. '"message":"widgets.demo.example \\"a\\" not found","reason":"NotFound"}' },
      { status_error.not_found(CORE, "a"), '{"code":404,"details":{"kind":"things","name":"a"},'
        .. '"message":"things \\"a\\" not found","reason":"NotFound"}' },
      { status_error.already_exists(CORE, "a"), '{"code":409,"details":{"kind":"things","name":"a"},'
        .. '"message":"things \\"a\\" already exists","reason":"AlreadyExists"}' },
      { status_error.conflict(CORE, "a"), '{"code":409,"details":{"kind":"things","name":"a"},'
        .. '"message":"Operation cannot be fulfilled on things \\"a\\": the object has been modified; please '
        .. 'apply your changes to the latest version and try again","reason":"Conflict"}' },
      { status_error.invalid(KIND, "a", { { reason = "FieldValueRequired", field = "spec.b",
        message = "Required value" } }),
        '{"code":422,"details":{"causes":[{"field":"spec.b","message":"Required value","reason":"FieldValueRequired"}],'
        .. '"group":"demo.example","kind":"Widget","name":"a"},'
        .. '"message":"Widget.demo.example \\"a\\" is invalid: spec.b: Required value","reason":"Invalid"}' },
      { status_error.bad_request "no", '{"code":400,"message":"no","reason":"BadRequest"}' },
      { status_error.expired("old", "token"),
        '{"code":410,"message":"old","metadata":{"continue":"token"},"reason":"Expired"}' },
      { status_error.too_large_revision(9, 8),
        '{"code":504,"details":{"causes":[{"message":"Too large resource version",'
        .. '"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1},'
        .. '"message":"Timeout: Too large resource version: 9, current: 8","reason":"Timeout"}' },
      { status_error.too_many_requests("busy", 3), '{"code":429,"details":{"retryAfterSeconds":3},"message":"busy",'
        .. '"reason":"TooManyRequests"}' },
      { status_error.method_not_allowed(CORE, "patch"), '{"code":405,"details":{"kind":"things"},'
        .. '"message":"patch is not supported on resources of kind \\"things\\"","reason":"MethodNotAllowed"}' },
      { status_error.unauthorized(), '{"code":401,"message":"Unauthorized","reason":"Unauthorized"}' },
      { status_error.too_large(3145728), '{"code":413,"message":"Request entity too large: limit is 3145728",'
        .. '"reason":"RequestEntityTooLarge"}' },
      { status_error.internal "x",
        '{"code":500,"details":{"causes":[{"message":"x"}]},"message":"Internal error occurred: x",'
        .. '"reason":"InternalError"}' },
      { status_error.forbidden({ user = "bob", verb = "get", group = "demo.example", resource = "widgets", name = "a",
        namespace = "default" }, "no role"),
          '{"code":403,"details":{"group":"demo.example","kind":"widgets","name":"a"},'
        .. '"message":"widgets.demo.example \\"a\\" is forbidden: User \\"bob\\" cannot get resource \\"widgets\\" '
        .. 'in API group \\"demo.example\\" in the namespace \\"default\\": no role","reason":"Forbidden"}' },
      { status_error.forbidden { user = "bob", verb = "list", group = "", resource = "things", subresource = "status" },
        '{"code":403,"details":{"kind":"things"},"message":"things is forbidden: User \\"bob\\" cannot list resource '
        .. '\\"things/status\\" in API group \\"\\" at the cluster scope","reason":"Forbidden"}' },
      { status_error.forbidden { user = "bob", verb = "get", path = "/metrics" },
        '{"code":403,"message":"forbidden: User \\"bob\\" cannot get path \\"/metrics\\"","reason":"Forbidden"}' },
    } do
      assert.equal(case[2], text_of(case[1]))
      assert.equal(getmetatable(core.new_error "closed"), getmetatable(case[1]))
    end
  end)

  it("of several causes lists them once, and many of them in part", function()
    local causes = {}
    for i = 1, 30 do causes[i] = { reason = "FieldValueInvalid", field = "f" .. math.ceil(i / 2), message = "bad" } end
    local err = status_error.invalid(KIND, "a", causes)
    assert.equal('Widget.demo.example "a" is invalid: '
      .. '[f1: bad, f2: bad, f3: bad, f4: bad, f5: bad, f6: bad, f7: bad, f8: bad, ...]',
      err.message)
    assert.equal(30, #err.causes)
  end)

  it("of a name that is no UTF-8 can be encoded", function()
    assert.is_string(text_of(status_error.not_found(KIND, "a\255\n\"")))
    assert.equal('widgets.demo.example "a\\xff\\n\\"" not found', status_error.not_found(KIND, "a\255\n\"").message)
  end)
end)

describe("an error of keywatch", function()
  it("becomes one of Kubernetes by its code", function()
    for code, expected in pairs {
      unavailable = 503, closed = 503, stopped = 503, storage = 503, out_of_memory = 503, compacted = 410,
        no_space = 507,
      too_many_requests = 429, resource_exhausted = 429, timeout = 504, deadline_exceeded = 504, cancelled = 504,
      request_too_large = 413, permission_denied = 500, malformed = 500, unknown = 500,
    } do
      local made = status_error.from(errors.new(code))
      assert.equal(expected, made.http_status, code)
      assert.is_string(json.encode(status_error.to_status(made)))
    end
  end)

  it("keeps that the write may have been done", function()
    local err = errors.new "unavailable"
    err.maybe_done = true
    assert.is_true(status_error.from(err).maybe_done)
  end)

  it("is unchanged if it is one of Kubernetes", function()
    local err = status_error.not_found(KIND, "a")
    assert.equal(err, status_error.from(err))
  end)
end)

describe("an error of a program", function()
  it("becomes an internal error without its text", function()
    for _, raised in ipairs { "/home/me/secret.lua:7: boom", { code = 7, message = "secret" }, 1,
      setmetatable({}, { __tostring = function() error "secret" end }) } do
      local err = status_error.from(raised)
      assert.equal(500, err.http_status)
      assert.is_nil(err.message:find("secret", 1, true))
    end
    assert.equal(500, status_error.from(nil).http_status)
  end)
end)
