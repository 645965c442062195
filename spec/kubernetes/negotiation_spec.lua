--- The form of an answer, by the header Accept.

local negotiation = require "keywatch.kubernetes.negotiation"

local G = ";g=meta.k8s.io"

describe("the header Accept chooses", function()
  local function text_of(accept)
    local form = negotiation.choose(accept)
    return form and (form.as or "objects") .. " " .. (form.version or "")
  end

  it("objects by default", function()
    for _, accept in ipairs { "", "*/*", "application/*", "application/json", "Application/JSON; charset=utf-8",
      "text/html, */*;q=0.8", "application/yaml, application/json", "application/json, */*" } do
      assert.equal("objects ", text_of(accept), accept)
    end
    assert.equal("objects ", text_of(nil))
  end)

  it("tables and metadata, in the client's order", function()
    for accept, wanted in pairs {
      ["application/json;as=Table;v=v1" .. G .. ",application/json;as=Table;v=v1beta1" .. G .. ",application/json"] =
        "Table v1",
      ["application/json;as=Table;v=v2" .. G .. ",application/json;as=Table;v=v1beta1" .. G] = "Table v1beta1",
      ["application/vnd.kubernetes.protobuf;as=Table;v=v1" .. G .. ",application/json"] = "objects ",
      ["application/json;q=0.1, application/json;as=Table;v=v1" .. G] = "Table v1",
      ["application/json;as=PartialObjectMetadataList;v=v1" .. G] = "PartialObjectMetadata v1",
      ["application/json;as=PartialObjectMetadata;v=v1" .. G .. ";q=0.5, application/json;q=0.4"] =
        "PartialObjectMetadata v1",
      ["application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"] = "objects ",
    } do
      assert.equal(wanted, text_of(accept), accept)
    end
  end)

  it("nothing that the server does not have", function()
    for _, accept in ipairs { "text/html", "application/vnd.kubernetes.protobuf", "application/json;q=0", ";;,,",
      "application/json;as=Table;v=v1", "application/json;as=Other;v=v1" .. G, ("a,"):rep(10000) } do
      assert.is_nil(negotiation.choose(accept), accept)
      assert.equal(accept:find "as=" ~= nil, negotiation.accepts_json(accept), accept)
    end
  end)
end)
