---@meta keywatch.http
-- SPDX-License-Identifier: MIT
-- The HTTP client in LuaCATS annotations, for lua-language-server. This file is not executed.

---An HTTP client.
---@class keywatch.http
local http = {}

---Makes a client. It connects when it is first used.
---@param opts? keywatch.http.ClientOptions
---@return keywatch.http.Client? client
---@return keywatch.Error? err "failed_precondition": a file of the option tls is unusable
---@nodiscard
function http.client(opts) end

---Makes a request with a client that has default options.
---@param url string
---@param opts? keywatch.http.RequestOptions
---@return keywatch.http.Answer? answer
---@return keywatch.Error? err
function http.request(url, opts) end

---@class keywatch.http.ClientOptions
---@field timeout? number seconds for a request; 10
---@field connect_timeout? number seconds to look up a name, and again to connect to each of its addresses; 5
---@field stall? number seconds without a byte, after which a body fails; 30
---@field idle_timeout? number seconds after which an unused connection is closed; 30
---@field max_connections? integer maximum number of connections in total; 64
---@field max_per_host? integer maximum number of connections to one origin; 8
---@field max_body? number maximum size of the body of an answer, in bytes; 64 MiB
---@field redirects? integer maximum number of redirects to follow; 0
---@field decompress? boolean whether to ask for gzip, and decompress, if the system has zlib; true
---@field protocol? "h1"|"h2" HTTP/1.1 or HTTP/2; unless given, the server chooses with TLS, and without TLS it is "h1"
---@field headers? table<string, string|number|(string|number)[]|false> headers of every request
---@field tls? keywatch.ConnectTLSOptions|true

---@class keywatch.http.RequestOptions
---@field method? string GET; with a body POST
---@field headers? table<string, string|number|(string|number)[]|false>
---@field body? string|fun(): string?
---@field timeout? number seconds for the whole request, with its redirects
---@field stall? number seconds without a byte, after which a body fails
---@field max_body? number maximum size of the body of the answer, in bytes
---@field redirects? integer maximum number of redirects to follow

---@class keywatch.http.OpenOptions
---@field method? string GET
---@field headers? table<string, string|number|(string|number)[]|false>
---@field length? integer size of the sent body, if it is known
---@field timeout? number seconds until the head of the answer
---@field stall? number seconds without a byte, after which a body fails

---@class keywatch.http.Head
---@field status integer
---@field headers table<string, string> values by name in lower case

---@class keywatch.http.Answer: keywatch.http.Head
---@field body string
---@field trailers table<string, string> the headers after the body
---@field url string the URL of the answer, after redirects

---@class keywatch.http.Client
local Client = {}

---Makes a request.
---@param url string
---@param opts? keywatch.http.RequestOptions
---@return keywatch.http.Answer? answer
---@return keywatch.Error? err
function Client:request(url, opts) end

---Begins a request. The bodies of the request and of the answer are streams.
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

---Sends a part of the body, and waits while the server does not read.
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

---Returns an iterator over the parts of the body. If the exchange fails, the iterator raises the error.
---@return fun(): string?
---@nodiscard
function Exchange:parts() end

---Returns the headers after the body, by name; nil before the end of the body.
---@return table<string, string>? trailers
---@nodiscard
function Exchange:trailers() end

---Ends the exchange. If it is not complete, its stream is reset, or its HTTP/1.1 connection closed.
function Exchange:close() end

return http
