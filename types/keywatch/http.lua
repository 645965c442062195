---@meta keywatch.http
-- SPDX-License-Identifier: MIT
-- The HTTP client in LuaCATS annotations, for lua-language-server. This file is not executed.

---A client of HTTP.
---@class keywatch.http
local http = {}

---Makes a client. It connects when it is first used.
---@param opts? keywatch.http.ClientOptions
---@return keywatch.http.Client? client
---@return keywatch.Error? err "failed_precondition": a file of the option tls is unusable
---@nodiscard
function http.client(opts) end

---Makes a request by a client with default options.
---@param url string
---@param opts? keywatch.http.RequestOptions
---@return keywatch.http.Answer? answer
---@return keywatch.Error? err
function http.request(url, opts) end

---@class keywatch.http.ClientOptions
---@field timeout? number seconds for a request; 10
---@field connect_timeout? number seconds to connect; 5
---@field stall? number seconds after which a body fails of which no byte moves; 30
---@field idle_timeout? number seconds after which a connection is closed that is not used; 30
---@field max_connections? integer to all origins; 64
---@field max_per_host? integer connections to each origin; 8
---@field max_body? number bytes of the body of an answer; 64 MiB
---@field redirects? integer the most redirects that are followed; 0
---@field decompress? boolean whether to ask for gzip, and decompress, if the system has zlib; true
---@field headers? table<string, string|number|(string|number)[]|false> of every request
---@field tls? keywatch.ConnectTLSOptions|true

---@class keywatch.http.RequestOptions
---@field method? string GET; with a body POST
---@field headers? table<string, string|number|(string|number)[]|false>
---@field body? string|fun(): string?
---@field timeout? number seconds for all of the request
---@field stall? number seconds in which a byte of a body has to move
---@field max_body? number bytes of the body of the answer
---@field redirects? integer the most redirects that are followed

---@class keywatch.http.OpenOptions
---@field method? string GET
---@field headers? table<string, string|number|(string|number)[]|false>
---@field length? integer of the body that is sent, if known
---@field timeout? number seconds until the head of the answer
---@field stall? number seconds in which a byte of a body has to move

---@class keywatch.http.Head
---@field status integer
---@field headers table<string, string> values by name in lower case

---@class keywatch.http.Answer: keywatch.http.Head
---@field body string
---@field trailers table<string, string> the fields after the body
---@field url string of the answer, after redirects

---@class keywatch.http.Client
local Client = {}

---Makes a request.
---@param url string
---@param opts? keywatch.http.RequestOptions
---@return keywatch.http.Answer? answer
---@return keywatch.Error? err
function Client:request(url, opts) end

---Begins a request whose bodies are streams.
---@param url string
---@param opts? keywatch.http.OpenOptions
---@return keywatch.http.Exchange? exchange
---@return keywatch.Error? err
---@nodiscard
function Client:open(url, opts) end

---Closes the client. Its requests fail.
function Client:close() end

---@class keywatch.http.Exchange
local Exchange = {}

---Sends a part of the body, and waits while the server takes nothing.
---@param bytes string
---@return true? ok
---@return keywatch.Error? err
function Exchange:write(bytes) end

---Ends the request.
function Exchange:finish() end

---Waits for the head of the answer.
---@param timeout? number seconds, after which the exchange stays open
---@return keywatch.http.Head? head
---@return keywatch.Error? err
function Exchange:answer(timeout) end

---Waits for the next part of the body.
---@param timeout? number seconds, after which the exchange stays open
---@return string? part nil at the end
---@return keywatch.Error? err
function Exchange:read(timeout) end

---Returns an iterator over the parts of the body, which raises if the exchange fails.
---@return fun(): string?
---@nodiscard
function Exchange:parts() end

---Returns the fields after the body, once it has ended.
---@return table<string, string>? trailers
---@nodiscard
function Exchange:trailers() end

---Ends the exchange. If it is not complete, its connection is closed.
function Exchange:close() end

return http
