---@meta keywatch.kubernetes
-- SPDX-License-Identifier: MIT
-- Resources of Kubernetes in LuaCATS annotations, for lua-language-server. This file is not executed.

---Resources of your own, as Kubernetes' API serves them.
---@class keywatch.kubernetes
---@field builtin table<string, keywatch.kubernetes.Resource> kinds of Kubernetes' own, by plural: namespaces, configmaps, secrets, events, leases and pods
local kubernetes = {}

---Opens the API of some resources.
---@param opts keywatch.kubernetes.Options
---@return keywatch.kubernetes.Api api
---@nodiscard
function kubernetes.api(opts) end

---Opens an API, and serves it.
---@param opts keywatch.kubernetes.Options|keywatch.kubernetes.ServeOptions
---@return keywatch.kubernetes.Api? api
---@return keywatch.kubernetes.Server|keywatch.Error server or the error
function kubernetes.serve(opts) end

---@class keywatch.kubernetes.Options
---@field store keywatch.Store|keywatch.Client|keywatch.Namespace where the objects are: a store, a client, or a namespace of either
---@field resources (keywatch.kubernetes.Resource|table)[] declarations, decoded CustomResourceDefinitions, or kinds of kubernetes.builtin
---@field compact? boolean whether to compact the store every five minutes; unless given, while the API is served
---@field history_bytes? integer bytes of changes of each resource that watches can begin in; 16 MiB

---@class keywatch.kubernetes.Resource
---@field group string
---@field version string
---@field kind string
---@field plural string
---@field singular? string
---@field list_kind? string
---@field scope? "Namespaced"|"Cluster"
---@field short_names? string[]
---@field categories? string[]
---@field schema? table an OpenAPI v3 schema, as of a CustomResourceDefinition
---@field columns? table[]
---@field selectable? string[] paths of fields for field selectors
---@field status? boolean whether there is the subresource status
---@field scale? table<string, string> paths of the subresource scale: replicas, status_replicas, selector
---@field mutate? fun(object: table, request: keywatch.kubernetes.Request): table?, string? changes an object before it is stored; false, or nil and a text, refuse it
---@field validate? fun(object: table, request: keywatch.kubernetes.Request): boolean?, (string|table)? false and a text, or { message, field }, refuse an object

---@class keywatch.kubernetes.Request
---@field operation "CREATE"|"UPDATE"
---@field kind string
---@field resource string plural and group
---@field namespace? string
---@field name string
---@field subresource? string
---@field user? any
---@field dry_run? boolean
---@field old? table the object that is replaced

---@class keywatch.kubernetes.Error
---@field code string as of keywatch.Error
---@field message string Kubernetes' text
---@field http_status integer
---@field reason string such as "NotFound"
---@field details? table
---@field causes? table[] { reason, message, field }
---@field retry_after? number seconds
---@field continue? string of an expired list: the token for the rest as it is now

---@class keywatch.kubernetes.Api
local api = {}

---Returns the objects of a resource, which is named by plural, plural and group, kind, or a short name.
---@param name string
---@return keywatch.kubernetes.Handle handle
---@nodiscard
function api:resource(name) end

---Begins to compact the store every five minutes, as the option `compact` does. It is called when the API is served.
function api:start_compacting() end

---Serves the API on listeners of its own.
---@param opts? keywatch.kubernetes.ServeOptions
---@return keywatch.kubernetes.Server? server
---@return keywatch.Error? err
function api:serve(opts) end

---Serves the API on a server of keywatch, beside its other services.
---@param server keywatch.Server
---@param opts? keywatch.kubernetes.MountOptions
function api:mount(server, opts) end

---Ends the API. Watches fail, and the store stays open.
function api:close() end

---The objects of a resource. Keys are "namespace/name", or a name alone: of cluster-scoped kinds, and in the handle of a namespace.
---@class keywatch.kubernetes.Handle
local handle = {}

---@class keywatch.kubernetes.ReadOptions
---@field resource_version? string|integer "0": whatever the cache has; a revision: at least this one; unless given, the newest
---@field timeout? number

---@class keywatch.kubernetes.SelectOptions
---@field labels? string a label selector
---@field fields? string a field selector
---@field namespace? string

---@class keywatch.kubernetes.ListOptions: keywatch.kubernetes.SelectOptions
---@field limit? integer
---@field continue? string
---@field resource_version? string|integer
---@field resource_version_match? "Exact"|"NotOlderThan"

---@class keywatch.kubernetes.WatchOptions: keywatch.kubernetes.SelectOptions
---@field resource_version? string|integer
---@field bookmarks? boolean
---@field initial? boolean whether to begin with the existing objects; unless given, only without a resource_version

---@class keywatch.kubernetes.WriteOptions
---@field dry_run? boolean
---@field field_validation? "Ignore"|"Warn"|"Strict"
---@field user? any for the functions of the resource

---@class keywatch.kubernetes.PatchOptions: keywatch.kubernetes.WriteOptions
---@field type? "merge"|"json"|"strategic"

---@class keywatch.kubernetes.DeleteOptions: keywatch.kubernetes.WriteOptions
---@field preconditions? table { uid, resourceVersion }
---@field propagation? "Background"|"Foreground"|"Orphan"

---@class keywatch.kubernetes.List
---@field items table[]
---@field resource_version string
---@field continue? string
---@field remaining? integer

---Returns an object; nil if there is none.
---@param key string
---@param opts? keywatch.kubernetes.ReadOptions
---@return table? object
---@return keywatch.kubernetes.Error? err
function handle:get(key, opts) end

---Lists objects.
---@param opts? keywatch.kubernetes.ListOptions
---@return keywatch.kubernetes.List? list
---@return keywatch.kubernetes.Error? err
function handle:list(opts) end

---Returns an iterator over objects, all of one state. It raises errors.
---@param opts? keywatch.kubernetes.ListOptions
---@return fun(): table? iterator
---@nodiscard
function handle:each(opts) end

---Watches objects.
---@param opts? keywatch.kubernetes.WatchOptions
---@return keywatch.kubernetes.Watch? watch
---@return keywatch.kubernetes.Error? err
---@nodiscard
function handle:watch(opts) end

---Creates an object.
---@param object table
---@param opts? keywatch.kubernetes.WriteOptions
---@return table? object
---@return string[]|keywatch.kubernetes.Error warnings
function handle:create(object, opts) end

---Replaces an object.
---@param object table with the resourceVersion that it replaces
---@param opts? keywatch.kubernetes.WriteOptions
---@return table? object
---@return string[]|keywatch.kubernetes.Error warnings
function handle:update(object, opts) end

---Changes an object by a patch.
---@param key string
---@param patch table
---@param opts? keywatch.kubernetes.PatchOptions
---@return table? object
---@return string[]|keywatch.kubernetes.Error warnings
function handle:patch(key, patch, opts) end

---Deletes an object. One with finalizers is only marked.
---@param key string
---@param opts? keywatch.kubernetes.DeleteOptions
---@return table? object its last state
---@return boolean|keywatch.kubernetes.Error is_gone
function handle:delete(key, opts) end

---Deletes all objects that match.
---@param opts? keywatch.kubernetes.SelectOptions|keywatch.kubernetes.DeleteOptions
---@return table[]? objects their last states
---@return keywatch.kubernetes.Error? err
function handle:delete_collection(opts) end

---Returns the handle of a namespace.
---@param name string
---@return keywatch.kubernetes.Handle handle
---@nodiscard
function handle:namespace(name) end

---Returns the handle of the subresource status.
---@return keywatch.kubernetes.Handle handle
---@nodiscard
function handle:status() end

---Returns the handle of the subresource scale.
---@return keywatch.kubernetes.Handle handle
---@nodiscard
function handle:scale() end

---@class keywatch.kubernetes.Event
---@field type "ADDED"|"MODIFIED"|"DELETED"|"BOOKMARK"
---@field object table
---@field key? string

---@class keywatch.kubernetes.Watch
---@field revision integer of the last change that was returned
local watch = {}

---Waits for the next event. Returns nil and an error, or only nil after close. With the code "timeout" the watch stays open.
---@param timeout? number seconds
---@return keywatch.kubernetes.Event? event
---@return keywatch.kubernetes.Error? err
function watch:next(timeout) end

---Returns an iterator over events. It ends when the watch is closed, and raises the error with which the watch fails.
---@return fun(): keywatch.kubernetes.Event? iterator
---@nodiscard
function watch:events() end

---Returns the error that the watch has failed with, or nil.
---@return keywatch.kubernetes.Error? err
function watch:error() end

---Ends the watch.
function watch:close() end

---@class keywatch.kubernetes.MountOptions
---@field tokens? fun(token: string): any the user of a bearer token: a name, or { name, groups }
---@field authorize? fun(attributes: table): boolean, string?
---@field anonymous? boolean whether requests without credentials are allowed

---@class keywatch.kubernetes.ServeOptions: keywatch.kubernetes.MountOptions
---@field listen? string|string[] URLs; http://127.0.0.1:8001
---@field tls? keywatch.ServeTLSOptions
---@field cors? string[] origins of web pages that may use the API
---@field host_whitelist? string[] host names under which the API may be used
---@field log_level? string
---@field on_log? fun(level: string, text: string)

---A server of an API.
---@class keywatch.kubernetes.Server
local server = {}

---Returns the URLs that the server listens on.
---@return string[] urls
---@nodiscard
function server:addresses() end

---Stops listening, ends all watches in order, waits until all connections have ended, and closes.
---@param grace? number seconds, at most; 5
---@return boolean ok
function server:shutdown(grace) end

---Closes every connection at once. Idempotent.
function server:close() end

return kubernetes
