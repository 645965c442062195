-- SPDX-License-Identifier: MIT
--- The speed of keywatch.json beside lua-cjson, on Lua 5.4 and LuaJIT: decode and encode of a small object, of an
-- object like those of Kubernetes, and of a list of 10,000 objects.
--
--   lua5.4 bench/json.lua                     everything; the two take turns, and the median of the ratios counts
--   lua5.4 bench/json.lua TEXT ACT MODULE N   does an act N times, for callgrind: "pod" "decode" "keywatch.json" 1000

package.path = arg[0]:match("^(.-)[^/]*$") .. "?.lua;" .. package.path

local measure = require "measure"

local ROUNDS, SECONDS = 9, 0.1

-- {====== Texts ======

local SMALL = '{"id":1234567,"name":"worker-17","enabled":true,"ratio":0.75,"owner":null,"tags":["blue","fast"],'
  .. '"address":{"host":"10.0.0.17","port":8080},"note":"restarts at midnight","revision":98765432}'

local CONTAINER = '{"name":"%s","image":"registry.example.com/team/%s:v1.27.3","imagePullPolicy":"IfNotPresent",'
  .. '"args":["--listen=0.0.0.0:8080","--config=/etc/%s/config.yaml","--verbose"],"ports":[{"name":"http",'
  .. '"containerPort":8080,"protocol":"TCP"},{"name":"metrics","containerPort":9090,"protocol":"TCP"}],'
  .. '"env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}},'
  .. '{"name":"LOG_LEVEL","value":"info"}],"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":'
  .. '{"cpu":"100m","memory":"128Mi"}},"volumeMounts":[{"name":"config","mountPath":"/etc/config","readOnly":true}],'
  .. '"livenessProbe":{"httpGet":{"path":"/healthz","port":8080,"scheme":"HTTP"},"initialDelaySeconds":10,'
  .. '"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}}'

local function container(name) return (CONTAINER:gsub("%%s", name)) end

local POD = '{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-7d4b9c6f5-x2x8v",'
  .. '"generateName":"web-7d4b9c6f5-",'
  .. '"namespace":"default","uid":"0f4e8d2a-5b7c-4c39-9f0a-3d1c2b4a5e6f","resourceVersion":"48291734",'
  .. '"creationTimestamp":"2026-03-01T09:15:27Z","labels":{"app":"web","pod-template-hash":"7d4b9c6f5","tier":"front"},'
  .. '"annotations":{"example.com/description":"serves \\"the page\\"\\nand nothing else"},'
  .. '"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-7d4b9c6f5",'
  .. '"uid":"9a8b7c6d-1111-2222-3333-444455556666","controller":true,'
  .. '"blockOwnerDeletion":true}]},"spec":{"volumes":[{"name":"config","configMap":{"name":"web","defaultMode":420}}],'
  .. '"containers":[' .. container "web" .. "," .. container "proxy" .. '],"restartPolicy":"Always",'
  .. '"terminationGracePeriodSeconds":30,"nodeName":"node-12","tolerations":[]},"status":{"phase":"Running",'
  .. '"conditions":[{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T09:15:31Z"}],'
  .. '"podIP":"10.244.3.17","startTime":"2026-03-01T09:15:27Z","qosClass":"Burstable"}}'

local function list()
  local items = {}
  for i = 1, 10000 do
    items[i] = ('{"metadata":{"name":"item-%d","uid":"%08x-5b7c-4c39","resourceVersion":"%d","labels":{"app":"web",'
      .. '"index":"%d"}},"spec":{"replicas":%d,"weight":%.2f,"paused":false,"selector":null,"template":%s}}'):format(
      i, i, i * 7, i, i % 10, i / 4, container "web")
  end
  return '{"kind":"List","items":[' .. table.concat(items, ",") .. "]}"
end

local TEXTS = { { "small", SMALL }, { "pod", POD }, { "list", list } }
local ACTS = { "decode", "encode" }

-- }======

--- Returns a function that does an act of a module once.
local function act_of(text, act, name)
  local module = require(name)
  if act == "decode" then return function() return module.decode(text) end end
  local value = module.decode(text)
  return function() return module.encode(value) end
end

local function text_of(name)
  for _, entry in ipairs(TEXTS) do
    if entry[1] == name then return type(entry[2]) == "function" and entry[2]() or entry[2] end
  end
end

--- Returns the processor seconds of n calls.
local function time(fn, n)
  return measure.seconds(function()
    for _ = 1, n do fn() end
  end)
end

local function median(list_of_numbers)
  table.sort(list_of_numbers)
  return list_of_numbers[math.ceil(#list_of_numbers / 2)]
end

--- Measures both modules in turns. Prints the time of one act, and how many times as fast as lua-cjson that is.
local function compare(name, act)
  local text = text_of(name)
  local own, peer = act_of(text, act, "keywatch.json"), act_of(text, act, "cjson")
  local n = math.max(1, math.ceil(SECONDS / (time(peer, 1) + 1e-6)))
  n = math.max(1, math.ceil(n * SECONDS / time(peer, n)))
  local ratios, best = {}, math.huge
  for i = 1, ROUNDS do
    local own_time = time(own, n)
    ratios[i] = time(peer, n) / own_time
    best = math.min(best, own_time / n)
  end
  measure.report(("%s %s, %d bytes"):format(act, name, #text), best * 1e6, "us",
    ("%.2f times as fast"):format(median(ratios)))
end

if #arg == 4 then
  local fn = act_of(text_of(arg[1]), arg[2], arg[3])
  for _ = 1, tonumber(arg[4]) do fn() end
elseif arg[1] == "here" then
  for _, entry in ipairs(TEXTS) do
    for _, act in ipairs(ACTS) do compare(entry[1], act) end
  end
else
  for _, vm in ipairs { "lua5.4", "luajit" } do
    print("JSON beside lua-cjson, " .. vm)
    io.stdout:flush()
    local version = vm == "luajit" and "5.1" or "5.4"
    local share, lib = ("build/%s/share/lua/%s"):format(vm, version), ("build/%s/lib/lua/%s"):format(vm, version)
    local status = os.execute(("env -u LUA_PATH_5_4 -u LUA_CPATH_5_4 'LUA_PATH=%s/?.lua;%s/?/init.lua;;' " ..
      "'LUA_CPATH=%s/?.so;;' %s %s here"):format(share, share, lib, vm, arg[0]))
    assert(status == true or status == 0, "a part has failed") -- LuaJIT gives the status
  end
end
