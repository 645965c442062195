# keywatch: every command of the project. On a fresh Debian machine each of them installs what it needs.

.DEFAULT_GOAL := build
.PHONY: build run quick test peers check night simulate mutations fuzz lint format bench deps clean help
.DELETE_ON_ERROR:
MAKEFLAGS += --jobs=$(shell nproc)

VMS := lua5.4 luajit
ROCKSPECS := keywatch-scm-1.rockspec tls/keywatch-tls-scm-1.rockspec
LUAJIT_INCDIR := /usr/include/luajit-2.1

WARNINGS := -std=gnu11 -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
  -Wundef -Wvla -Wwrite-strings

help:           ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

# Packages ----------------------------------------------------------------------------------------------------------

# Groups, each of which stands on the one before: what serving needs, what building for LuaJIT does, and so on.
GROUPS := run build test peers check night
PACKAGES.run := make gcc libc6-dev lua5.4 liblua5.4-dev luarocks libuv1-dev libnghttp2-dev liblmdb-dev libssl-dev
PACKAGES.build := luajit2 libluajit2-5.1-dev
PACKAGES.test := ccache git openssl lua-busted lua-check lua-luv lua-cjson lua-yaml lua-cqueues lua-socket lua-sec \
  lua-luaossl lua5.1 liblua5.1-0-dev clang-format etcd-server etcd-client curl nghttp2-client strace
# Who has npm from elsewhere keeps it: Debian's cannot stand beside it.
PACKAGES.peers := golang-go golang-etcd-server-dev python3-etcd3 python3-prometheus-client nginx-light \
  libnginx-mod-http-lua neovim wrk clang \
  python3-kubernetes $(if $(shell command -v npm 2>/dev/null),,nodejs npm)
PACKAGES.check := libclang-rt-dev
PACKAGES.night := valgrind libc6-dbg

.PHONY: $(GROUPS:%=deps-%)
$(GROUPS:%=deps-%): deps-%:
	@command -v dpkg-query >/dev/null || { echo "not Debian: the packages are $(PACKAGES.$*)"; exit 0; }; \
	have=$$(dpkg-query -W -f '$${db:Status-Status} $${Package}\n' $(PACKAGES.$*) 2>/dev/null | sed -n 's/^installed //p'); \
	missing=$$(printf '%s\n' $(PACKAGES.$*) | grep -vxF "$$have"); \
	[ -n "$$missing" ] || exit 0; \
	as_root=; [ "$$(id -u)" = 0 ] || as_root=sudo; \
	$$as_root apt-get update && \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $$missing
deps-build: deps-run
deps-test: deps-build
deps-peers: deps-test
deps-check: deps-peers
deps-night: deps-check

deps: deps-night  ## install all Debian packages that are missing; every other command installs those that it needs

# The rocks, once for each VM ---------------------------------------------------------------------------------------
# LuaRocks leaves object files beside the sources, so each VM builds in a copy of its own.

SHIPPED := $(wildcard *.rockspec tls bin csrc lua types docs examples README.md CHANGELOG.md LICENSE)
LUAROCKS.lua5.4 := luarocks --lua-version=5.4
LUAROCKS.luajit := LUAROCKS_CONFIG="$(CURDIR)/build/luajit.config.lua" luarocks --lua-version=5.1

build: $(VMS:%=build/%/built)   ## the rocks into build/lua5.4 and build/luajit

build/luajit/built: | deps-build
build/%/built: $(shell find $(SHIPPED) ! -name '*.o' ! -path 'csrc/probe/*') Makefile build/luajit.config.lua | deps-run
	@echo "building the rocks in build/$*"
	@rm -rf build/$* && mkdir -p build/$*/src && cp -R $(SHIPPED) build/$*/src && rm -r build/$*/src/csrc/probe
	@cd build/$*/src && for rockspec in $(ROCKSPECS); do \
	  $(LUAROCKS.$*) make --tree="$(CURDIR)/build/$*" $$rockspec \
	  CFLAGS="-O2 -fPIC $(WARNINGS)" >../log 2>&1 || { cat ../log; exit 1; }; done
	@touch $@

# Without this LuaRocks takes LuaJIT for PUC Lua 5.1: its headers, and its interpreter for installed programs.
build/luajit.config.lua: Makefile
	@mkdir -p build
	@printf '%s\n' 'lua_version = "5.1"' 'lua_interpreter = "luajit"' \
	  'variables = { LUA_DIR = "/usr", LUA_BINDIR = "/usr/bin", LUA_INCDIR = "$(LUAJIT_INCDIR)" }' >$@

# Tests -------------------------------------------------------------------------------------------------------------

quick: build/luajit/built build/fault.so | deps-test   ## what can be tested in two minutes, on LuaJIT
	@spec/run quick-luajit

test: build build/fault.so | deps-test   ## every spec on Lua 5.4 and LuaJIT, with etcd and etcdctl as peers
	@spec/run once-lua5.4 $(VMS:%=rock-%)

PEERS := build/node/installed build/kubectl build/go/peer build/fault.so build/neovim.so
peers: build $(PEERS) | deps-peers   ## the specs with Go, Node, Python, nginx, Neovim, clang and LuaRocks
	@spec/run $(VMS:%=peer-%)

# Node's etcd client and what it needs, in the very versions of the lock file. None of it runs a script of its own.
build/node/installed: $(wildcard spec/support/node/package*.json) | deps-peers
	@echo "installing npm's packages in build/node"
	@rm -rf build/node && mkdir -p build/node && cp spec/support/node/package*.json build/node
	@cd build/node && npm ci --ignore-scripts --no-audit --no-fund >log 2>&1 || { cat log; exit 1; }
	@touch $@

# Debian's kubectl, which cannot be installed beside one from elsewhere.
build/kubectl: | deps-peers
	@echo "unpacking $@"
	@rm -rf build/kubernetes-client && mkdir -p build/kubernetes-client && cd build/kubernetes-client && \
	  { apt-get download kubernetes-client || { apt-get update && apt-get download kubernetes-client; }; } >log 2>&1 && \
	  dpkg -x kubernetes-client_*.deb . || { cat log; exit 1; }
	@cp build/kubernetes-client/usr/bin/kubectl $@

# A program with etcd's client for Go, from Debian's sources of it. Compiled packages are kept in build/go/cache.
build/go/peer: $(wildcard spec/support/go/*.go) | deps-peers
	@echo "building $@"
	@mkdir -p $(@D)
	@cd spec/support/go && test -z "$$(gofmt -l . | tee -a /dev/stderr)" && env -u GOROOT -u GOFLAGS GO111MODULE=off GOPATH=/usr/share/gocode \
	  GOCACHE="$(CURDIR)/build/go/cache" /usr/bin/go build -o "$(CURDIR)/$@" .

# Go's TLS server, for bench/tls.lua.
build/go/handshakes: $(wildcard bench/go/*.go) | deps-peers
	@echo "building $@"
	@mkdir -p $(@D)
	@cd bench/go && test -z "$$(gofmt -l . | tee -a /dev/stderr)" && env -u GOROOT -u GOFLAGS GO111MODULE=off GOCACHE="$(CURDIR)/build/go/cache" \
	  /usr/bin/go build -o "$(CURDIR)/$@" .

# A disk that fails, preloaded into programs of the specs.
build/fault.so: spec/support/fault.c Makefile | deps-run
	@mkdir -p $(@D)
	@$(CC) -O1 -g -fPIC $(WARNINGS) -shared $< -lpthread -o $@

# LuaJIT in the place of Neovim's Lua, where that is not LuaJIT.
build/neovim.so: spec/support/neovim.c Makefile | deps-run
	@mkdir -p $(@D)
	@$(CC) -O1 -g -fPIC $(WARNINGS) -shared $< -ldl -o $@

C_FILES = $(wildcard csrc/*/*.[ch] csrc/probe/*/*.c bench/*.[ch] fuzz/*.[ch] spec/support/*.c)

lint: | deps-test   ## luacheck, clang-format, and no line of C with more than 120 columns
	@luacheck --quiet --no-color $(wildcard bin/* lua spec bench examples types) .luacheckrc .busted; lua=$$?; \
	clang-format --dry-run -Werror $(C_FILES) && \
	awk 'length > 120 { print FILENAME ":" FNR ": more than 120 columns"; bad = 1 } END { exit bad }' $(C_FILES) && exit $$lua

format: | deps-test ## write the C files as clang-format has them
	@clang-format -i $(C_FILES)

UV := csrc/base/heap.c csrc/base/histogram.c csrc/base/mem.c csrc/base/process.c csrc/face/module.c $(wildcard csrc/uv/*.c)
TLS := csrc/base/directory.c csrc/base/mem.c csrc/face/module.c $(wildcard csrc/tls/*.c)
CORE := $(filter-out csrc/exec/% csrc/tls/% csrc/uv/%,$(wildcard csrc/*/*.c))

# Builds for tests: files in csrc/probe stand in the place of those with the same name, or come in addition.
PROBE_FILES := $(wildcard csrc/probe/*/*.c)
probed = $(filter-out $(PROBE_FILES:csrc/probe/%=csrc/%),$(1)) $(filter $(addprefix csrc/probe/,$(2)),$(PROBE_FILES))
PROBED_UV := $(call probed,$(UV),base/% uv/%)
PROBED_TLS := $(call probed,$(TLS),base/% tls/%)
PROBED_CORE := $(call probed,$(CORE),base/% disk/% store/% watch/% h2/% http/% rpc/% bind/%)
INCDIR.lua5.4 := /usr/include/lua5.4
INCDIR.luajit := $(LUAJIT_INCDIR)
PROBE.check := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
PROBE.valgrind := -O1
PROBE.tsan := -O1 -fno-omit-frame-pointer -fsanitize=thread

define probe_build # kind, VM
build/$(1)/$(2)/obj/%.o: csrc/%.c Makefile | deps-build
	@mkdir -p $$(@D)
	@$$(CC) -g -fPIC -DKW_PROBE $(WARNINGS) $$(PROBE.$(1)) -MMD -MP -Icsrc -I$$(INCDIR.$(2)) -c $$< -o $$@
build/$(1)/$(2)/keywatch/core.so: $(PROBED_CORE:csrc/%.c=build/$(1)/$(2)/obj/%.o) $(wildcard csrc csrc/*/ csrc/probe/*/)
	@mkdir -p $$(@D)
	@$$(CC) -shared $$(PROBE.$(1)) $$(filter %.o,$$^) -lnghttp2 -llmdb -lcrypt -lpthread -lm -o $$@
build/$(1)/$(2)/keywatch/uv.so: $(PROBED_UV:csrc/%.c=build/$(1)/$(2)/obj/%.o) $(wildcard csrc csrc/*/ csrc/probe/*/)
	@mkdir -p $$(@D)
	@$$(CC) -shared $$(PROBE.$(1)) $$(filter %.o,$$^) -luv -lm -o $$@
build/$(1)/$(2)/keywatch/tls.so: $(PROBED_TLS:csrc/%.c=build/$(1)/$(2)/obj/%.o) $(wildcard csrc csrc/*/ csrc/probe/*/)
	@mkdir -p $$(@D)
	@$$(CC) -shared $$(PROBE.$(1)) $$(filter %.o,$$^) -lssl -lcrypto -lpthread -o $$@
PROBES.$(1) += build/$(1)/$(2)/keywatch/core.so build/$(1)/$(2)/keywatch/uv.so build/$(1)/$(2)/keywatch/tls.so
endef
$(foreach kind,check valgrind,$(foreach vm,$(VMS),$(eval $(call probe_build,$(kind),$(vm)))))
$(eval $(call probe_build,tsan,lua5.4))
-include $(wildcard build/*/*/obj/*/*.d build/*/*/obj/*/*/*.d)

check: $(PROBES.check) $(PROBES.tsan) build $(PEERS) fuzz | deps-check ## sanitizers, eager collection, finalizers, threads, fuzzing, simulations
	@spec/run check-lua5.4 check-luajit tsan-lua5.4
	@$(MAKE) --no-print-directory simulate SEEDS=200
	@$(MAKE) --no-print-directory simulate SEEDS=20 PROBE=check VM=lua5.4

# Whoever waits for hours wants other cases each time.
night: export KW_SEED := $(or $(KW_SEED),$(shell date +%s))
night: export KW_DOSE := $(or $(KW_DOSE),4)
night: $(PROBES.check) $(PROBES.valgrind) build $(PEERS) fuzz | deps-night ## valgrind, TLS in all that clients do, large doses, many simulations
	@$(MAKE) --no-print-directory simulate SEEDS=5000 SEED=$$((KW_SEED % 1000000))
	@spec/run --strict $(foreach how,fin valgrind rock peer tls,$(VMS:%=$(how)-%)) once-lua5.4 etcd-lua5.4

# Simulation: the whole system in one process, in virtual time, from one seed. With PROBE=check as that pass has it:
# memory runs short, too, and sanitizers look on.
SEEDS ?= $(if $(SEED),1,200)
SEED ?= 1
VM ?= luajit
PRELOADED.check = $(shell $(CC) -print-file-name=libasan.so)
LUA_OF.lua5.4 := 5.4
LUA_OF.luajit := 5.1
ON_DISKS_IN_MEMORY = disks=$$(mktemp -d -p "$$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)") && \
  trap 'rm -rf '$$disks EXIT && export KW_FAULT_DIR=$$disks LD_PRELOAD="$(PRELOADED.$(PROBE)) $(CURDIR)/build/fault.so" && \
  export ASAN_OPTIONS=detect_leaks=0:intercept_tls_get_addr=0 && \
  export LUA_PATH="./?.lua;build/$(VM)/share/lua/$(LUA_OF.$(VM))/?.lua;build/$(VM)/share/lua/$(LUA_OF.$(VM))/?/init.lua;;" \
    LUA_CPATH="$(PROBE:%=build/%/$(VM)/?.so;)build/$(VM)/lib/lua/$(LUA_OF.$(VM))/?.so;;" && $(VM) spec/simulation

simulate: build/$(VM)/built build/fault.so $(PROBE:%=build/%/$(VM)/keywatch/core.so) ## SEEDS=200 simulations from SEED=1 on, in virtual time; KEEP=… has a part of one
	@$(ON_DISKS_IN_MEMORY)/simulate.lua --seeds=$(SEEDS) --seed=$(SEED) --jobs=$(shell nproc) $(if $(KEEP),--keep=$(KEEP)) \
	  --how="$(strip $(PROBE:%=PROBE=%) $(filter-out VM=luajit,VM=$(VM)))"

mutations: SEEDS = 1000
mutations: build/$(VM)/built build/fault.so    ## break keywatch on purpose, and look for a simulation of SEEDS=1000 that fails; ONLY=NAME,… has some mutations alone
	@$(ON_DISKS_IN_MEMORY)/mutate.lua --vm=$(VM) --include=$(INCDIR.$(VM)) --seeds=$(SEEDS) --jobs=$(shell nproc) --only=$(ONLY)

# Fuzzing: the core without Lua, and an arena of its own.
FUZZERS := split decode http json serve client image content journal tls tls_peer
FUZZED := $(filter-out csrc/base/arena.c csrc/face/% csrc/bind/% csrc/probe/bind/%,$(PROBED_CORE)) \
  $(filter-out csrc/tls/lua_% csrc/tls/tls.c,$(wildcard csrc/tls/*.c)) csrc/uv/tls_peer.c \
  $(filter-out $(FUZZERS:%=fuzz/%.c),$(wildcard fuzz/*.c))
FUZZ_PROBE := $(PROBE.check) -fsanitize=fuzzer-no-link

build/fuzz/obj/%.o: %.c Makefile | deps-check
	@mkdir -p $(@D)
	@clang -g -DKW_PROBE $(WARNINGS) $(FUZZ_PROBE) -MMD -MP -Icsrc -c $< -o $@
build/fuzz/all.a: $(FUZZED:%.c=build/fuzz/obj/%.o) $(wildcard csrc csrc/*/ csrc/probe/*/)
	@rm -f $@ && ar rc $@ $(filter %.o,$^)
$(FUZZERS:%=build/fuzz/%): build/fuzz/%: build/fuzz/obj/fuzz/%.o build/fuzz/all.a
	@clang $(FUZZ_PROBE) -fsanitize=fuzzer $^ -lnghttp2 -llmdb -lssl -lcrypto -lpthread -lm -o $@
-include $(wildcard build/fuzz/obj/*.d build/fuzz/obj/*/*.d build/fuzz/obj/*/*/*.d build/fuzz/obj/*/*/*/*.d)

fuzz: $(FUZZERS:%=build/fuzz/%) ## 30 seconds of each target in fuzz
	@fuzz/run $(FUZZERS)

# Trying it ---------------------------------------------------------------------------------------------------------

SHARE := build/lua5.4/share/lua/5.4
LUA54 := env -u LUA_PATH_5_4 -u LUA_CPATH_5_4 \
  LUA_PATH="$(SHARE)/?.lua;$(SHARE)/?/init.lua;;" LUA_CPATH="build/lua5.4/lib/lua/5.4/?.so;;" lua5.4

run: build/lua5.4/built     ## serve on 127.0.0.1:2379, with durable data in ./keywatch.data
	@exec $(LUA54) bin/keywatch serve

bench: build build/node/installed build/go/peer build/go/handshakes build/bench/load build/fault.so | deps-peers ## speed and memory, beside etcd, other clients and attackers
	@$(LUA54) bench/store.lua
	@$(LUA54) bench/durable.lua
	@$(LUA54) bench/watch.lua
	@$(LUA54) bench/object_watch.lua
	@$(LUA54) bench/json.lua
	@$(LUA54) bench/tasks.lua
	@$(LUA54) bench/locks.lua
	@$(LUA54) bench/mutex.lua
	@$(LUA54) bench/leases.lua
	@$(LUA54) bench/serve.lua
	@$(LUA54) bench/client.lua
	@$(LUA54) bench/cache.lua
	@$(LUA54) bench/cache_file.lua
	@$(LUA54) bench/follow.lua
	@$(LUA54) bench/informer.lua
	@$(LUA54) bench/controller.lua
	@$(LUA54) bench/loops.lua
	@$(LUA54) bench/openresty.lua
	@$(LUA54) bench/http.lua
	@$(LUA54) bench/kubernetes.lua
	@$(LUA54) bench/hostile.lua
	@$(LUA54) bench/tls.lua

build/bench/load: $(wildcard bench/*.[ch]) Makefile | deps-build
	@mkdir -p $(@D)
	@$(CC) -O2 $(WARNINGS) $(filter %.c,$^) -lssl -lcrypto -o $@

clean:                      ## forget what was built
	rm -rf build
