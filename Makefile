# Holdfast. `make help` tells the targets.
#
# Sources are found by folder: a new .c file needs no line here. Objects, static
# libraries and programs go to $(BUILD), which has a default for each variant;
# a change of compiler or flags rebuilds all of it.
#
#   make                        build/holdfastd build/holdfast
#   make SANITIZE=1             the same under build/asan
#   make CC=clang WERROR=1      as continuous integration does
#   make CFLAGS=... LDFLAGS=... replaces optimisation and hardening flags

VERSION = 0.1.0

ifeq ($(origin CC),default)
CC = gcc
endif
AR ?= ar
PYTHON ?= python3
INSTALL ?= install
JOBS ?= $(shell nproc 2>/dev/null || echo 1)

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
SBINDIR ?= $(PREFIX)/sbin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
DOCDIR ?= $(PREFIX)/share/doc/holdfast
DATADIR ?= $(PREFIX)/share/holdfast
COMPLETIONDIR ?= $(PREFIX)/share/bash-completion/completions
SYSCONFDIR ?= /etc
UNITDIR ?= $(PREFIX)/lib/systemd/system
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d

# --- variants -------------------------------------------------------------

# SANITIZE: empty, 1 (gcc or clang), fuzz (clang) or coverage (gcc)
ifeq ($(SANITIZE),1)
BUILD ?= build/asan
SANITIZE_FLAGS = -fsanitize=address,undefined -fno-sanitize-recover=undefined
CFLAGS ?= -O1 -g -fno-omit-frame-pointer
LDFLAGS ?=
else ifeq ($(SANITIZE),fuzz)
BUILD ?= build/fuzz
SANITIZE_FLAGS = -fsanitize=fuzzer-no-link,address,undefined \
	-fno-sanitize-recover=undefined
CFLAGS ?= -O1 -g -fno-omit-frame-pointer
LDFLAGS ?=
else ifeq ($(SANITIZE),coverage)
BUILD ?= build/coverage
SANITIZE_FLAGS = --coverage
CFLAGS ?= -O0 -g
LDFLAGS ?=
else
BUILD ?= build
SANITIZE_FLAGS =
CFLAGS ?= -O2 -g -fPIE -fstack-protector-strong -fstack-clash-protection \
	-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
LDFLAGS ?= -pie -Wl,-z,relro -Wl,-z,now
endif

WARNINGS = -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion \
	-Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wcast-qual \
	-Wwrite-strings -Wformat=2 -Wundef -Wvla -Werror=switch-enum \
	-Wimplicit-fallthrough
ifeq ($(WERROR),1)
WARNINGS += -Werror
endif

PKG_CONFIG ?= pkg-config
pkg_cflags = $(patsubst -I%,-isystem %,\
	$(shell $(PKG_CONFIG) --cflags $(1) 2>/dev/null))
pkg_libs = $(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null)
TLS_PACKAGES = libssl libcrypto
DAEMON_PACKAGES = libevent_core libevent_extra hiredis yaml-0.1 \
	$(TLS_PACKAGES)
SYSTEMD := $(shell $(PKG_CONFIG) --exists libsystemd 2>/dev/null && \
	echo libsystemd)
DAEMON_CFLAGS := $(call pkg_cflags,$(DAEMON_PACKAGES) $(SYSTEMD)) \
	$(if $(SYSTEMD),-DHAVE_SYSTEMD=1)
DAEMON_LIBS := $(call pkg_libs,$(DAEMON_PACKAGES) $(SYSTEMD))
TLS_LIBS := $(call pkg_libs,$(TLS_PACKAGES))

ALL_CPPFLAGS = -D_GNU_SOURCE -DHOLDFAST_VERSION='"$(VERSION)"' \
	-I. -I$(BUILD)/gen $(DAEMON_CFLAGS) $(CPPFLAGS)
# The same program wherever it is built: no path of this machine is in it.
PREFIX_MAPS := -fdebug-prefix-map=$(CURDIR)=. \
	-fdebug-prefix-map=$(abspath $(BUILD))=build
ALL_CFLAGS = -std=gnu11 $(WARNINGS) $(SANITIZE_FLAGS) $(PREFIX_MAPS) $(CFLAGS)
ALL_LDFLAGS = $(SANITIZE_FLAGS) $(CFLAGS) $(LDFLAGS)

ifeq ($(V),1)
Q =
say = @:
else
Q = @
say = @printf '  %-5s %s\n'
endif

# --- what there is to build -----------------------------------------------

objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(sort $(foreach folder,$(1),\
	$(wildcard $(folder)/*.c))))
# The same of its sub-folders as well.
all_objects = $(call objects,$(1) $(wildcard $(1)/*))

base_OBJ := $(call objects,daemon/base)
proto_OBJ := $(call objects,proto)
op_OBJ := $(call objects,daemon/op)
core_OBJ := $(call all_objects,daemon/core)
store_OBJ := $(call all_objects,daemon/store) $(BUILD)/obj/gen/lua_scripts.o
driver_OBJ := $(call objects,daemon/driver)
io_OBJ := $(call objects,daemon/io)
conf_OBJ := $(call objects,conf)
client_OBJ := $(call objects,proto/clients/c)
tls_OBJ := $(call objects,proto/tls)
daemon_OBJ := $(call objects,daemon)
command_OBJ := $(call objects,proto/holdfast)
client-driver_OBJ := $(call objects,proto/clients/c/driver)
unit_OBJ := $(call objects,tests/unit)
fuzz_OBJ := $(call objects,tests/fuzz)
bench_OBJ := $(call objects,tests/bench)
sim_OBJ := $(call objects,tests/sim)

LIBRARIES = base proto op core store driver io conf
DAEMON_ARCHIVES = $(patsubst %,$(BUILD)/lib%.a,io driver store core op conf \
	holdfast-tls proto base)
COMMAND_ARCHIVES = $(patsubst %,$(BUILD)/lib%.a,\
	holdfast-tls holdfast proto base)
ALL_OBJECTS = $(foreach part,$(LIBRARIES) client tls daemon command,\
	$($(part)_OBJ))
PROGRAMS = $(BUILD)/holdfastd $(BUILD)/holdfast
FUZZERS = $(patsubst tests/fuzz/%.c,$(BUILD)/%,\
	$(sort $(wildcard tests/fuzz/fuzz_*.c)))

.PHONY: all libraries objects lint-objects unit unit-tests loadgen fuzzers \
	simulator FORCE
.DELETE_ON_ERROR:
.SECONDARY:

all: $(PROGRAMS)

CLIENT_ARCHIVES = libholdfast.a libholdfast-tls.a
ABI = 1
CLIENT_SHARED = libholdfast.so.$(ABI) libholdfast-tls.so.$(ABI)

libraries: $(patsubst %,$(BUILD)/lib%.a,$(LIBRARIES)) \
	$(addprefix $(BUILD)/,$(CLIENT_ARCHIVES) $(CLIENT_SHARED))

objects: $(ALL_OBJECTS)

FORCE:

# $(call rewrite,TEXT): the target's content, touched only where it changes.
define rewrite
	$(shell mkdir -p $(@D))$(file >$@.new,$(1))
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
endef

# Libraries without which nothing can be compiled.
define need_libraries
	@echo 'make: $(PKG_CONFIG) does not find all of: $(DAEMON_PACKAGES)' >&2; \
	echo 'make: `make deps` installs what is missing' >&2; exit 1
endef

$(BUILD)/flags: FORCE
	$(if $(strip $(DAEMON_LIBS)),,$(need_libraries))
	$(call rewrite,$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS))

$(BUILD)/%.members: FORCE
	$(call rewrite,$($*_MEMBERS))

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(PIC) -MMD -MP -c -o $@ $<

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# The expanded scripts are in $(BUILD)/lua as well, for the tests.
$(BUILD)/gen/lua_scripts.c: $(wildcard lua/*.py lua/*.lua) \
		daemon/store/wire/record.def daemon/store/wire/scripts.h
	@mkdir -p $(@D)
	$(say) LUA $@
	$(Q)$(PYTHON) lua/embed.py --c $@ --lua $(BUILD)/lua

# $(call archive,NAME,OBJECTS): the static library; its list of members makes it
# anew when a source is added or taken away.
define archive
lib$(1)_MEMBERS := $(2)
$(BUILD)/lib$(1).a: $(2) $(BUILD)/lib$(1).members
	$$(say) AR $$@
	$$(Q)rm -f $$@ && $$(AR) rcs $$@ $(2)
endef
$(foreach name,$(LIBRARIES),$(eval $(call archive,$(name),$($(name)_OBJ))))
$(eval $(call archive,holdfast,$(client_OBJ)))
$(eval $(call archive,holdfast-tls,$(tls_OBJ)))

# $(call shared,NAME,OBJECTS,MAP,LIBS): the shared library, which exports the
# names of the map.
define shared
$(2): PIC = -fPIC -fno-semantic-interposition
$(BUILD)/lib$(1).so.$(ABI): $(2) $(3) $(BUILD)/lib$(1).members
	$$(say) LINK $$@
	$$(Q)$$(CC) $$(filter-out -pie,$$(ALL_LDFLAGS)) -shared -o $$@ $(2) \
		-Wl,-soname,$$(@F) -Wl,--version-script=$(3) \
		$$(if $(SANITIZE),,-Wl,-z,defs) $(4) $$(LDLIBS)
endef
$(eval $(call shared,holdfast,$(client_OBJ),proto/clients/c/holdfast.map))
$(eval $(call shared,holdfast-tls,$(tls_OBJ),proto/tls/holdfast_tls.map,\
	$$(TLS_LIBS)))

# For tests: the programs without their main().
main_OBJ = $(patsubst %,$(BUILD)/obj/%/main.o,daemon proto/holdfast)
$(eval $(call archive,programs,\
	$(filter-out $(main_OBJ),$(daemon_OBJ) $(command_OBJ))))

holdfastd_MEMBERS := $(daemon_OBJ)
$(BUILD)/holdfastd: $(daemon_OBJ) $(DAEMON_ARCHIVES) $(BUILD)/holdfastd.members
	$(say) LINK $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(daemon_OBJ) $(DAEMON_ARCHIVES) \
		$(DAEMON_LIBS) $(LDLIBS)

holdfast_MEMBERS := $(command_OBJ)
$(BUILD)/holdfast: $(command_OBJ) $(COMMAND_ARCHIVES) $(BUILD)/holdfast.members
	$(say) LINK $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(command_OBJ) $(COMMAND_ARCHIVES) \
		$(TLS_LIBS) $(LDLIBS)

# The C library under the conformance suite of all clients.
client-driver_MEMBERS := $(client-driver_OBJ)
$(BUILD)/client-driver: $(client-driver_OBJ) $(COMMAND_ARCHIVES) \
		$(BUILD)/client-driver.members
	$(say) LINK $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(client-driver_OBJ) $(COMMAND_ARCHIVES) \
		$(TLS_LIBS) $(LDLIBS)

# --- tests ----------------------------------------------------------------

# tests/unit/test_NAME.c has a NAME_suite(); main.c includes the list.
SUITES = $(patsubst tests/unit/test_%.c,SUITE(%),\
	$(sort $(wildcard tests/unit/test_*.c)))

$(BUILD)/gen/suites.def: FORCE
	$(call rewrite,$(SUITES))

$(BUILD)/obj/tests/unit/main.o: $(BUILD)/gen/suites.def

unit-tests_MEMBERS := $(unit_OBJ)
UNIT_ARCHIVES = $(patsubst %,$(BUILD)/lib%.a,programs holdfast-tls holdfast) \
	$(DAEMON_ARCHIVES)
$(BUILD)/unit-tests: $(unit_OBJ) $(UNIT_ARCHIVES) $(BUILD)/unit-tests.members
	$(say) LINK $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(unit_OBJ) \
		-Wl,--start-group $(UNIT_ARCHIVES) -Wl,--end-group \
		$(call pkg_libs,check) $(DAEMON_LIBS) $(LDLIBS)

# What `make bench` measures with.
loadgen_MEMBERS := $(bench_OBJ)
$(BUILD)/loadgen: $(bench_OBJ) $(COMMAND_ARCHIVES) $(BUILD)/loadgen.members
	$(say) LINK $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(bench_OBJ) $(COMMAND_ARCHIVES) \
		$(TLS_LIBS) -lm $(LDLIBS)

loadgen: $(BUILD)/loadgen

# The simulator: the pure layers, a world, and Redis by liblua. Each program of
# tests/sim has one of these files for its main().
SIM_MAINS = $(patsubst %,$(BUILD)/obj/tests/sim/%.o,main) $(SIM_CHECK_OBJ)
SIM_ARCHIVES = $(patsubst %,$(BUILD)/lib%.a,driver store core op proto base)
$(BUILD)/obj/tests/sim/%.o: ALL_CPPFLAGS += $(call pkg_cflags,lua5.1)

holdfast-sim_MEMBERS := $(sim_OBJ)
$(BUILD)/holdfast-sim: $(sim_OBJ) $(SIM_ARCHIVES) $(BUILD)/holdfast-sim.members
	$(say) LINK $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ \
		$(filter-out $(SIM_MAINS),$(sim_OBJ)) $(BUILD)/obj/tests/sim/main.o \
		$(SIM_ARCHIVES) $(call pkg_libs,lua5.1) $(LDLIBS)

# Its Redis alone, held against a real one.
SIM_CHECK_OBJ := $(patsubst %.c,$(BUILD)/obj/%.o,\
	$(sort $(wildcard tests/sim/fake_check*.c)))
SIM_FAKE_OBJ := $(patsubst %.c,$(BUILD)/obj/%.o,\
	$(sort $(wildcard tests/sim/fake*.c))) $(BUILD)/obj/gen/lua_scripts.o
sim-fake-check_MEMBERS := $(SIM_FAKE_OBJ)
$(BUILD)/sim-fake-check: $(SIM_FAKE_OBJ) $(BUILD)/libbase.a \
		$(BUILD)/sim-fake-check.members
	$(say) LINK $@
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(SIM_FAKE_OBJ) $(BUILD)/libbase.a \
		$(call pkg_libs,lua5.1) $(LDLIBS)

simulator: $(BUILD)/holdfast-sim $(BUILD)/sim-fake-check

unit-tests: $(BUILD)/unit-tests

unit: $(BUILD)/unit-tests
	$(BUILD)/unit-tests

FUZZ_ARCHIVES = $(BUILD)/libholdfast.a $(DAEMON_ARCHIVES)
$(FUZZERS): $(BUILD)/%: $(BUILD)/obj/tests/fuzz/%.o $(FUZZ_ARCHIVES)
	$(say) LINK $@
	$(Q)$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $< \
		$(FUZZ_ARCHIVES) $(DAEMON_LIBS) $(LDLIBS)

fuzzers: $(FUZZERS)

-include $(patsubst %.o,%.d,$(ALL_OBJECTS) \
	$(unit_OBJ) $(fuzz_OBJ) $(bench_OBJ) $(sim_OBJ) $(client-driver_OBJ))

# --- for people -----------------------------------------------------------

.PHONY: help deps deps-lint deps-fuzz deps-chaos deps-deb deps-valgrind
.PHONY: deps-promtool
.PHONY: run check bench conformance check-clients clients clients-docs
.PHONY: fuzz coverage valgrind sim sim-mutants chaos deb lint clean
.PHONY: install install-library uninstall

# Packages may have come only now: what needs them is another make.
SUBMAKE = $(MAKE) --no-print-directory \
	$(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS))

help:
	@echo 'make            build/holdfastd and build/holdfast'
	@echo 'make run        a private Redis Cluster and holdfastd before it'
	@echo 'make check      builds and runs all the tests'
	@echo 'make unit       the unit tests alone (SANITIZE=1: sanitized)'
	@echo 'make sim        simulated runs: SIM_SEEDS (1000), or HOURS of them'
	@echo 'make sim-mutants planted bugs, each of which the simulator finds'
	@echo 'make chaos      faults of all kinds for CHAOS_MINUTES (5) each, on a'
	@echo '                single Redis, a cluster, and a quorum of three'
	@echo 'make conformance one suite for the clients of all languages'
	@echo 'make check-clients that suite, and the tests of each client'
	@echo 'make clients    packages of all clients in build/clients'
	@echo 'make clients-docs pages of their APIs in build/clients/docs'
	@echo 'make bench      measures the daemon before a real Redis'
	@echo 'make fuzz       each fuzz target for FUZZ_SECONDS (60)'
	@echo 'make coverage   which branches the tests take (some minutes)'
	@echo 'make valgrind   unit tests and a session under memcheck (minutes)'
	@echo 'make lint       format, warnings, static analysis, layers'
	@echo 'make deps       installs the Debian packages for the above'
	@echo 'make install    to PREFIX (/usr/local); uninstall takes it back'
	@echo 'make deb        Debian packages in build/deb'
	@echo 'make clean      removes build/'

DEPS = gcc libc6-dev binutils pkgconf python3 libevent-dev libhiredis-dev \
	libyaml-dev libssl-dev libsystemd-dev liblua5.1-0-dev check \
	redis-server systemd netcat-openbsd openssl
DEPS_LINT = $(DEPS) clang clang-format clang-tidy cppcheck mandoc
DEPS_FUZZ = $(DEPS) clang libclang-rt-dev
DEPS_VALGRIND = $(DEPS) valgrind
DEPS_DEB = $(DEPS) debhelper dpkg-dev
DEPS_CHAOS = $(DEPS) iproute2 nftables util-linux

# $(call install_packages,NAMES): those that are not there; no network and no
# root where all are.
define install_packages
@if ! command -v dpkg-query >/dev/null; then \
	echo 'make deps: no Debian; please install: $(1)'; exit 0; fi; \
missing=; for package in $(1); do \
	status=$$(dpkg-query -W -f '$${db:Status-Status}' $$package \
		2>/dev/null) || status=; \
	[ "$$status" = installed ] || missing="$$missing $$package"; done; \
[ -n "$$missing" ] || exit 0; \
echo "make deps: installing$$missing"; \
sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
$$sudo apt-get update -q && \
$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
	--no-install-recommends $$missing
endef

deps:
	$(call install_packages,$(DEPS))

deps-lint:
	$(call install_packages,$(DEPS_LINT))

deps-fuzz:
	$(call install_packages,$(DEPS_FUZZ))

deps-valgrind:
	$(call install_packages,$(DEPS_VALGRIND))

deps-chaos:
	$(call install_packages,$(DEPS_CHAOS))

deps-deb:
	$(call install_packages,$(DEPS_DEB))

# The tool alone, not installed: with its package a server would be started.
# Where it cannot be had, the tests that need it are skipped, and say so.
PROMTOOL = build/tools/usr/bin/promtool

deps-promtool: deps
	@command -v promtool >/dev/null || [ -x $(PROMTOOL) ] || { \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; mkdir -p build/tools && \
	cd build/tools && { apt-get download -q prometheus || \
		{ $$sudo apt-get update -q && apt-get download -q prometheus; }; } && \
	dpkg-deb --fsys-tarfile prometheus_*.deb | \
		tar -x ./usr/bin/promtool && rm prometheus_*.deb; } || \
	echo 'make deps: no promtool to be had'

run: deps
	@$(SUBMAKE) all
	@exec $(PYTHON) tests/harness/run.py

check: deps deps-promtool
	@$(SUBMAKE) SANITIZE= all libraries unit-tests simulator
	@$(SUBMAKE) SANITIZE=1 BUILD=build/asan all unit-tests \
		build/asan/client-driver
	@exec $(PYTHON) tests/check.py

# Without tools for a language: skipped, or failed with
# HOLDFAST_CLIENTS=required.
conformance check-clients clients clients-docs: deps
	@$(SUBMAKE) all libraries $(BUILD)/client-driver
	@exec $(PYTHON) proto/clients/clients.py $(clients_$@) $(CLIENTS)
clients_conformance = conformance
clients_check-clients = check
clients_clients = packages
clients_clients-docs = docs

bench: deps
	@$(SUBMAKE) all loadgen
	@exec $(PYTHON) tests/bench/run.py $(BENCH_ARGS)

# Fails nothing: that is what `make check` is for. gcov comes with gcc.
COVERAGE = build/coverage

coverage: deps
	@$(SUBMAKE) CC=gcc SANITIZE=coverage BUILD=$(COVERAGE) all unit-tests \
		simulator
	@find $(COVERAGE) -name '*.gcda' -delete
	-@$(COVERAGE)/unit-tests >$(COVERAGE)/unit.log 2>&1 || \
		tail -3 $(COVERAGE)/unit.log
	-@HOLDFASTD=$(CURDIR)/$(COVERAGE)/holdfastd \
		HOLDFAST=$(CURDIR)/$(COVERAGE)/holdfast \
		HOLDFAST_MEMORY_SWEEP=plain \
		$(PYTHON) tests/e2e/run.py >$(COVERAGE)/e2e.log 2>&1 || \
		tail -3 $(COVERAGE)/e2e.log
	-@$(COVERAGE)/holdfast-sim --count 300 --no-shrink --lines \
		>$(COVERAGE)/sim.log 2>&1 || tail -3 $(COVERAGE)/sim.log
	@grep 'ran' $(COVERAGE)/sim.log
	@$(PYTHON) tests/coverage.py $(COVERAGE)

# memcheck; the programs as they are delivered.
valgrind: deps-valgrind
	@$(SUBMAKE) SANITIZE= all unit-tests
	@exec $(PYTHON) tests/valgrind.py build

FUZZ_SECONDS ?= 60

fuzz: deps-fuzz
	@$(SUBMAKE) CC=clang SANITIZE=fuzz BUILD=build/fuzz fuzzers
	@set -e; for path in $(wildcard tests/fuzz/fuzz_*.c); do \
		name=$${path##*/fuzz_}; name=$${name%.c}; \
		new=build/fuzz/corpus/$$name; seeds=tests/fuzz/corpus/$$name; \
		dict=tests/fuzz/$$name.dict; \
		mkdir -p $$new; [ -d $$seeds ] || seeds=; \
		[ ! -e $$dict ] || dict=-dict=$$dict; \
		[ "$${dict#-}" != "$$dict" ] || dict=; \
		echo "fuzz: $$name for $(FUZZ_SECONDS) s"; \
		build/fuzz/fuzz_$$name -max_total_time=$(FUZZ_SECONDS) \
			-print_final_stats=1 -artifact_prefix=build/fuzz/ \
			$$dict $$new $$seeds; done

CHAOS_MINUTES ?= 5
CHAOS_TOPOLOGIES ?= single cluster quorum

# As root: each server has a host of its own, whose network can be cut.
chaos: deps-chaos
	@$(SUBMAKE) all
	@set -e; for topology in $(CHAOS_TOPOLOGIES); do \
		$(PYTHON) tests/chaos/run.py --minutes $(CHAOS_MINUTES) \
			--topology $$topology $(CHAOS_ARGS); done

# HOURS=h: as many seeds as fit; each summary is a line of SIM_RECORD, so that
# they add up. SIM_SEED is the first seed.
SIM_SEED ?= 1
SIM_SEEDS ?= 1000
SIM_RECORD ?= $(BUILD)/sim.jsonl

sim: deps
	@$(SUBMAKE) simulator
	@$(BUILD)/holdfast-sim --seed $(SIM_SEED) --record $(SIM_RECORD) \
		$(if $(HOURS),--hours $(HOURS),--count $(SIM_SEEDS)) $(SIM_ARGS); \
	status=$$?; $(PYTHON) tests/sim/summary.py $(SIM_RECORD); exit $$status

sim-mutants: deps
	@exec $(PYTHON) tests/sim/mutants.py $(SIM_ARGS)

# Of a copy of the tree, in which packaging/debian is where Debian wants it. The
# packages are in build/deb, and are looked at before it says so.
DEB = build/deb

deb: deps-deb
	@rm -rf $(DEB) && mkdir -p $(DEB)/holdfast-$(VERSION)
	@tar -c --exclude=./build --exclude=./.git --exclude=__pycache__ . | \
		tar -x -C $(DEB)/holdfast-$(VERSION)
	@mv $(DEB)/holdfast-$(VERSION)/packaging/debian $(DEB)/holdfast-$(VERSION)/
	@cd $(DEB)/holdfast-$(VERSION) && env -u MAKEFLAGS -u MFLAGS \
		dpkg-buildpackage -b -us -uc -j$(JOBS) >../build.log 2>&1 || \
		{ tail -20 ../build.log; exit 1; }
	@$(PYTHON) packaging/debian/inspect.py $(DEB) $(VERSION)

clean:
	rm -rf build

# --- lint -----------------------------------------------------------------

C_FOLDERS = daemon daemon/base daemon/op daemon/driver daemon/io conf \
	$(foreach part,core store,daemon/$(part) $(wildcard daemon/$(part)/*)) \
	proto proto/clients/c proto/clients/c/driver proto/tls proto/holdfast \
	tests/unit tests/fuzz tests/bench tests/sim tests/e2e
C_SOURCES := $(sort $(wildcard $(addsuffix /*.c,$(C_FOLDERS))))
C_HEADERS := $(sort $(wildcard $(addsuffix /*.h,$(C_FOLDERS))))
TIDY_MARKS = $(patsubst %,$(BUILD)/tidy/%.ok,$(C_SOURCES))

.PHONY: lint-format lint-gcc lint-clang lint-go lint-tidy lint-tidy-marks \
	lint-cppcheck lint-rules lint-manual

# Every part is done, also after one with findings.
lint: deps-lint
	@$(SUBMAKE) -k -j1 lint-format lint-gcc lint-clang lint-tidy \
		lint-cppcheck lint-go lint-rules lint-manual
	@echo 'lint: no findings'

lint-format:
	@echo 'lint: clang-format: $(words $(C_SOURCES) $(C_HEADERS)) files'
	@clang-format --dry-run -Werror $(C_SOURCES) $(C_HEADERS)

lint-objects: objects $(unit_OBJ) $(fuzz_OBJ) $(bench_OBJ) $(sim_OBJ) \
	$(client-driver_OBJ)

lint-gcc lint-clang: lint-%:
	@echo 'lint: warnings of $*'
	@$(MAKE) --no-print-directory -j$(JOBS) CC=$* WERROR=1 SANITIZE= \
		BUILD=build/lint-$* lint-objects libraries

lint-tidy:
	@echo 'lint: clang-tidy: $(words $(C_SOURCES)) files'
	@$(MAKE) --no-print-directory -k -j$(JOBS) CC=clang SANITIZE= \
		BUILD=build/lint-clang lint-tidy-marks

lint-tidy-marks: $(TIDY_MARKS)

$(BUILD)/tidy/tests/sim/%.ok: ALL_CPPFLAGS += $(call pkg_cflags,lua5.1)
$(BUILD)/tidy/%.ok: % .clang-tidy $(C_HEADERS) | $(BUILD)/gen/suites.def
	@mkdir -p $(@D)
	$(say) TIDY $<
	$(Q)clang-tidy --quiet --warnings-as-errors='*' $< -- -std=gnu11 \
		$(ALL_CPPFLAGS) 2>$@.err || { cat $@.err; exit 1; }
	@touch $@

lint-cppcheck:
	@echo 'lint: cppcheck: $(words $(C_SOURCES)) files'
	@mkdir -p build/cppcheck
	@cppcheck --quiet --std=c11 --language=c -I. --error-exitcode=1 \
		--enable=warning,performance,portability --inline-suppr \
		--suppress=missingIncludeSystem -j $(JOBS) \
		--cppcheck-build-dir=build/cppcheck $(C_SOURCES)

GO_FOLDERS = proto/clients/go proto/clients/examples/go
GO_MODULES = $(GO_FOLDERS) proto/clients/go/gocron

lint-go:
	@echo 'lint: gofmt and go vet: $(words $(shell find $(GO_FOLDERS) \
		-name '*.go')) files'
	@if command -v go >/dev/null; then test -z "`gofmt -l $(GO_FOLDERS) | \
		tee /dev/stderr`" && for module in $(GO_MODULES); do \
			go -C $$module vet ./... || exit 1; done; else \
		echo 'lint: no go: skipped'; fi

MAN1 = $(wildcard packaging/man/*.1)
MAN5 = $(BUILD)/gen/holdfast.yaml.5
MAN7 = $(patsubst %,$(BUILD)/gen/holdfast-%.7,failures metrics protocol)
MAN8 = $(wildcard packaging/man/*.8)

$(MAN5): packaging/man/config_page.py conf/holdfast.yaml
	@mkdir -p $(@D)
	$(say) MAN $@
	$(Q)$(PYTHON) $^ >$@

$(BUILD)/gen/holdfast-metrics.7: packaging/man/metrics_page.py \
		daemon/io/gauges.def daemon/core/model/namespaces.def daemon/op/counters.def
	@mkdir -p $(@D)
	$(say) MAN $@
	$(Q)$(PYTHON) $^ >$@

$(BUILD)/gen/holdfast-protocol.7: packaging/man/protocol_page.py \
		proto/PROTOCOL.md
	@mkdir -p $(@D)
	$(say) MAN $@
	$(Q)$(PYTHON) $^ >$@

$(BUILD)/gen/holdfast-failures.7: packaging/man/failures_page.py \
		packaging/doc/failures.md \
		packaging/man/protocol_page.py
	@mkdir -p $(@D)
	$(say) MAN $@
	$(Q)$(PYTHON) -B $< packaging/doc/failures.md >$@

lint-manual: $(MAN5) $(MAN7)
	@echo 'lint: mandoc: $(words $(MAN1) $(MAN5) $(MAN7) $(MAN8)) pages'
	@mandoc -Tlint -W warning $(MAN1) $(MAN5) $(MAN7) $(MAN8)

lint-rules: lint-gcc
	@$(PYTHON) tests/lint.py --build build/lint-gcc

# --- install --------------------------------------------------------------

# Folders may have blanks in their names, so they stand in quotes and in no list
# of make's own.

D = $(DESTDIR)
UNITS = $(wildcard systemd/*.service systemd/*.socket)
SYSUSERS = $(firstword $(wildcard systemd/*sysusers*))
DOCS = README.md LICENSE proto/PROTOCOL.md $(wildcard packaging/doc/*.md)
CLIENT_HEADERS = $(wildcard proto/clients/c/holdfast.h proto/tls/holdfast_tls.h)
CLIENT_LINKS = $(CLIENT_SHARED:.$(ABI)=)
EXAMPLES = $(wildcard packaging/prometheus/* packaging/grafana/*)
EXAMPLE_CONFIGS = conf/holdfast.yaml conf/minimal.yaml
RESOURCE_SCRIPTS = $(wildcard lua/resource/*.lua)
PC_FILES = $(wildcard packaging/pkgconfig/*.pc)

# A unit for several brokers on one host: as the one for one, with a
# configuration and a folder in /run of its own.
INSTANCE_UNIT = $(BUILD)/gen/holdfastd@.service
$(INSTANCE_UNIT): systemd/holdfastd.service
	@mkdir -p $(@D)
	$(say) GEN $@
	$(Q)sed -e 's|/etc/holdfast/holdfast\.yaml|/etc/holdfast/%i.yaml|' \
		-e 's|^\(RuntimeDirectory=holdfast\)$$|\1-%i|' \
		-e 's|/run/holdfast |/run/holdfast-%i |' \
		-e 's|holdfastd\.service/|holdfastd@%i.service/|' \
		-e 's|^\(Description=.*\)$$|\1, %i|' $< >$@

# The units name /usr; where else it goes, they follow. There a blank is \x20.
BLANK := $(subst ,, )
in_unit = $(subst $(BLANK),\\x20,$(1))
install_unit = sed -e 's|/usr/sbin/|$(call in_unit,$(SBINDIR))/|g' \
	-e 's|/usr/bin/|$(call in_unit,$(BINDIR))/|g' \
	-e 's|/etc/holdfast|$(call in_unit,$(SYSCONFDIR))/holdfast|g'

# The same for the files of pkg-config, which has its own way with blanks.
in_pc = $(subst $(BLANK),\\ ,$(1))
install_pc = sed -e 's|^prefix=.*|prefix=$(call in_pc,$(PREFIX))|' \
	-e 's|^libdir=.*|libdir=$(call in_pc,$(LIBDIR))|' \
	-e 's|^includedir=.*|includedir=$(call in_pc,$(INCLUDEDIR))|' \
	-e 's|^Version:.*|Version: $(VERSION)|'

# Installed documents lie side by side: their links follow.
install_doc = sed -E \
	-e 's,\]\((\.\./)*(packaging/doc|proto)/([A-Za-z]+\.md),](\3,g' \
	-e 's,\]\((\.\./)*conf/,](examples/,g' \
	-e 's,\]\(\.\./prometheus/,](examples/prometheus/,g' \
	-e 's,\]\(\.\./\.\./README,](README,g'

# $(call install_files,FILES,FOLDER), and back again
install_files = $(if $(1),$(INSTALL) -m 644 $(1) "$(2)/")
remove_files = ! cd "$(2)" 2>/dev/null || rm -f $(notdir $(1))

# What programs in C need.
install-library: libraries
	$(INSTALL) -d "$(D)$(LIBDIR)/pkgconfig" "$(D)$(INCLUDEDIR)"
	$(call install_files,$(addprefix $(BUILD)/,$(CLIENT_ARCHIVES) \
		$(CLIENT_SHARED)),$(D)$(LIBDIR))
	for link in $(CLIENT_LINKS); do \
		ln -sf $$link.$(ABI) "$(D)$(LIBDIR)/$$link" || exit 1; done
	$(call install_files,$(CLIENT_HEADERS),$(D)$(INCLUDEDIR))
	for file in $(PC_FILES); do \
		place="$(D)$(LIBDIR)/pkgconfig/$${file##*/}"; \
		$(install_pc) $$file >"$$place" && chmod 644 "$$place" || \
		exit 1; done

install: all install-library $(MAN5) $(MAN7) $(INSTANCE_UNIT)
	$(INSTALL) -d "$(D)$(BINDIR)" "$(D)$(SBINDIR)" "$(D)$(DATADIR)/resource" \
		"$(D)$(DOCDIR)/examples/prometheus" \
		"$(D)$(DOCDIR)/examples/grafana" "$(D)$(SYSCONFDIR)/holdfast" \
		"$(D)$(UNITDIR)" "$(D)$(SYSUSERSDIR)" "$(D)$(COMPLETIONDIR)" \
		"$(D)$(MANDIR)/man1" "$(D)$(MANDIR)/man5" "$(D)$(MANDIR)/man7" \
		"$(D)$(MANDIR)/man8"
	$(INSTALL) -m 755 $(BUILD)/holdfastd "$(D)$(SBINDIR)/"
	$(INSTALL) -m 755 $(BUILD)/holdfast "$(D)$(BINDIR)/"
	$(INSTALL) -m 644 packaging/completion/holdfast.bash \
		"$(D)$(COMPLETIONDIR)/holdfast"
	for file in $(DOCS); do place="$(D)$(DOCDIR)/$${file##*/}"; \
		$(install_doc) $$file >"$$place" && chmod 644 "$$place" || \
		exit 1; done
	$(call install_files,$(EXAMPLE_CONFIGS),$(D)$(DOCDIR)/examples)
	$(call install_files,$(RESOURCE_SCRIPTS),$(D)$(DATADIR)/resource)
	for file in $(EXAMPLES); do $(INSTALL) -m 644 $$file \
		"$(D)$(DOCDIR)/examples/$${file#packaging/}" || exit 1; done
	[ -e "$(D)$(SYSCONFDIR)/holdfast/holdfast.yaml" ] || $(INSTALL) -m 644 \
		conf/minimal.yaml "$(D)$(SYSCONFDIR)/holdfast/holdfast.yaml"
	for unit in $(UNITS) $(INSTANCE_UNIT); do \
		place="$(D)$(UNITDIR)/$${unit##*/}"; \
		$(install_unit) $$unit >"$$place" && chmod 644 "$$place" || \
		exit 1; done
	$(if $(SYSUSERS),$(INSTALL) -m 644 $(SYSUSERS) \
		"$(D)$(SYSUSERSDIR)/holdfast.conf")
	$(call install_files,$(MAN1),$(D)$(MANDIR)/man1)
	$(call install_files,$(MAN5),$(D)$(MANDIR)/man5)
	$(call install_files,$(MAN7),$(D)$(MANDIR)/man7)
	$(call install_files,$(MAN8),$(D)$(MANDIR)/man8)

# A configuration that somebody has changed stays.
uninstall:
	rm -f "$(D)$(SBINDIR)/holdfastd" "$(D)$(BINDIR)/holdfast" \
		"$(D)$(SYSUSERSDIR)/holdfast.conf" "$(D)$(COMPLETIONDIR)/holdfast"
	$(call remove_files,$(CLIENT_ARCHIVES) $(CLIENT_SHARED) \
		$(CLIENT_LINKS),$(D)$(LIBDIR))
	$(call remove_files,$(CLIENT_HEADERS),$(D)$(INCLUDEDIR))
	$(call remove_files,$(PC_FILES),$(D)$(LIBDIR)/pkgconfig)
	$(call remove_files,$(RESOURCE_SCRIPTS),$(D)$(DATADIR)/resource)
	$(call remove_files,$(EXAMPLE_CONFIGS),$(D)$(DOCDIR)/examples)
	$(call remove_files,$(UNITS) $(INSTANCE_UNIT),$(D)$(UNITDIR))
	$(call remove_files,$(MAN1),$(D)$(MANDIR)/man1)
	$(call remove_files,$(MAN5),$(D)$(MANDIR)/man5)
	$(call remove_files,$(MAN7),$(D)$(MANDIR)/man7)
	$(call remove_files,$(MAN8),$(D)$(MANDIR)/man8)
	$(call remove_files,$(DOCS),$(D)$(DOCDIR))
	for file in $(EXAMPLES); do \
		rm -f "$(D)$(DOCDIR)/examples/$${file#packaging/}" || exit 1; done
	! cmp -s conf/minimal.yaml "$(D)$(SYSCONFDIR)/holdfast/holdfast.yaml" || \
		rm "$(D)$(SYSCONFDIR)/holdfast/holdfast.yaml"
	rmdir "$(D)$(DATADIR)/resource" "$(D)$(DATADIR)" \
		"$(D)$(DOCDIR)/examples/prometheus" \
		"$(D)$(DOCDIR)/examples/grafana" "$(D)$(DOCDIR)/examples" \
		"$(D)$(DOCDIR)" "$(D)$(SYSCONFDIR)/holdfast" 2>/dev/null || :
